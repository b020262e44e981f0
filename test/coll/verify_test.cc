// verify() must go red: plans are damaged one way at a time, at every place where it can be done,
// and every damage must be found.
#include "lib/coll/verify.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

namespace hetccl::coll {
namespace {

using Plans = std::vector<Plan>;

Plans plans_of(const Algorithm& algorithm, int ranks, int root = 0) {
  Plans plans;
  for (int r = 0; r < ranks; ++r) plans.push_back(make_plan(algorithm, ranks, r, root));
  return plans;
}
Plans plans_of(Collective collective, const char* name, int ranks, int root = 0) {
  return plans_of(*find(collective, name), ranks, root);
}

// The first error under any buffering that the algorithm must stand, in place and not; "": none.
std::string fault(const Plans& plans) {
  for (const bool in_place : {false, true}) {
    for (const Buffering buffering : {Buffering::kOneSlot, Buffering::kUnbounded}) {
      const Result<Proof> proof =
          verify(plans, buffering, std::vector<bool>(plans.size(), in_place));
      if (!proof.ok()) return proof.status().message();
    }
  }
  return "";
}

void drop_dependency(Plan& plan, size_t step, uint32_t dependency) {
  plan.dependencies[dependency] = plan.dependencies[--plan.steps[step].dependencies_end];
}

// Removes a step; those that depended on it depend on what it depended on.
void drop_step(Plan& plan, uint32_t gone) {
  std::vector<Dependency> dependencies;
  const Step removed = plan.steps[gone];
  const std::vector<Dependency> before = plan.dependencies;
  for (uint32_t s = 0; s < plan.steps.size(); ++s) {
    Step& step = plan.steps[s];
    const uint32_t begin = static_cast<uint32_t>(dependencies.size());
    for (uint32_t d = step.dependencies_begin; d < step.dependencies_end; ++d) {
      if (before[d].step != gone) {
        dependencies.push_back(before[d]);
        continue;
      }
      for (uint32_t i = removed.dependencies_begin; i < removed.dependencies_end; ++i) {
        dependencies.push_back({before[i].step, true});
      }
    }
    step.dependencies_begin = begin;
    step.dependencies_end = static_cast<uint32_t>(dependencies.size());
  }
  for (Dependency& d : dependencies) {
    if (d.step > gone) --d.step;
  }
  if (gone + 1 < plan.steps.size()) plan.steps[gone + 1].fan_out = false;
  plan.steps.erase(plan.steps.begin() + gone);
  plan.dependencies = dependencies;
}

class EveryAlgorithm : public testing::TestWithParam<const Algorithm*> {
 protected:
  // Damages a copy of the plans at each step for which `damage` returns true.
  void expect_found(const std::function<bool(Plan&, size_t step)>& damage, int minimum = 1) {
    int done = 0;
    for (const int ranks : {2, 3, 5}) {
      const Plans sound = plans_of(*GetParam(), ranks, ranks - 1);
      ASSERT_EQ(fault(sound), "");
      for (int r = 0; r < ranks; ++r) {
        for (size_t s = 0; s < sound[r].steps.size(); ++s) {
          Plans plans = sound;
          if (!damage(plans[r], s)) continue;
          ++done;
          EXPECT_NE(fault(plans), "")
              << "not found: rank " << r << " of " << ranks << ", step " << s << "\nbefore:\n"
              << to_text(sound[r]) << "after:\n"
              << to_text(plans[r]);
        }
      }
    }
    EXPECT_GE(done, minimum);
  }
};
class EveryReduction : public EveryAlgorithm {};
class EveryAlgorithmOfSeveralBlocks : public EveryAlgorithm {};

TEST_P(EveryAlgorithm, MissingDependencyIsFound) {
  for (uint32_t which = 0; which < 4; ++which) {
    expect_found(
        [&](Plan& plan, size_t s) {
          const Step& step = plan.steps[s];
          if (step.dependencies_begin + which >= step.dependencies_end) return false;
          drop_dependency(plan, s, step.dependencies_begin + which);
          return true;
        },
        0);
  }
}

TEST_P(EveryAlgorithm, DependencyByChunksInsteadOfWholeIsFound) {
  for (uint32_t which = 0; which < 4; ++which) {
    expect_found(
        [&](Plan& plan, size_t s) {
          const uint32_t d = plan.steps[s].dependencies_begin + which;
          if (d >= plan.steps[s].dependencies_end || !plan.dependencies[d].whole) return false;
          plan.dependencies[d].whole = false;
          return true;
        },
        0);
  }
}

TEST_P(EveryAlgorithm, MissingStepIsFound) {
  expect_found([](Plan& plan, size_t s) {
    drop_step(plan, static_cast<uint32_t>(s));
    return true;
  });
}

TEST_P(EveryAlgorithm, OtherPeerIsFound) {
  expect_found(
      [](Plan& plan, size_t s) {
        Step& step = plan.steps[s];
        if (step.kind != StepKind::kSend || plan.ranks < 3) return false;
        do {
          step.peer = (step.peer + 1) % plan.ranks;
        } while (step.peer == plan.rank);
        return true;
      },
      1);
}

TEST_P(EveryAlgorithmOfSeveralBlocks, OtherBlockIsFound) {
  expect_found([](Plan& plan, size_t s) {
    Step& step = plan.steps[s];
    if (step.kind != StepKind::kSend) return false;
    step.blocks.first = (step.blocks.first + 1) % plan.blocks;
    return true;
  });
}

TEST_P(EveryAlgorithm, OtherWidthIsFound) {
  expect_found([](Plan& plan, size_t s) {
    const Step& step = plan.steps[s];
    for (uint32_t o = step.operands_begin; o < step.operands_end; ++o) {
      if (plan.operands[o].peer < 0) continue;
      plan.operands[o].wide = !plan.operands[o].wide;
      return true;
    }
    return false;
  });
}

TEST_P(EveryAlgorithm, OtherFinalizeIsFound) {
  expect_found([](Plan& plan, size_t s) {
    if (plan.steps[s].kind != StepKind::kCombine) return false;
    plan.steps[s].finalize = !plan.steps[s].finalize;
    return true;
  });
}

TEST_P(EveryReduction, ContributionCountedTwiceIsFound) {
  expect_found([](Plan& plan, size_t s) {
    Step& step = plan.steps[s];
    if (step.operands_end - step.operands_begin < 2) return false;
    // Its operands move to the end, to make room for one more.
    const std::vector<Operand> own(plan.operands.begin() + step.operands_begin,
                                   plan.operands.begin() + step.operands_end);
    step.operands_begin = static_cast<uint32_t>(plan.operands.size());
    plan.operands.insert(plan.operands.end(), own.begin(), own.end());
    for (const Operand& operand : own) {
      if (operand.peer < 0) plan.operands.push_back(operand);
    }
    if (plan.operands.size() - step.operands_begin == own.size()) plan.operands.push_back(own[0]);
    step.operands_end = static_cast<uint32_t>(plan.operands.size());
    return true;
  });
}

TEST_P(EveryReduction, MissingContributionIsFound) {
  expect_found([](Plan& plan, size_t s) {
    Step& step = plan.steps[s];
    if (step.operands_end - step.operands_begin < 2) return false;
    --step.operands_end;
    return true;
  });
}

TEST_P(EveryAlgorithm, WrittenInputIsFound) {
  expect_found([](Plan& plan, size_t s) {
    if (plan.steps[s].kind != StepKind::kCombine) return false;
    plan.steps[s].buffer = Buffer::kInput;
    return true;
  });
}

std::vector<const Algorithm*> rows(bool (*wanted)(const Algorithm&)) {
  std::vector<const Algorithm*> found;
  for (const Algorithm& a : algorithms()) {
    if (wanted(a)) found.push_back(&a);
  }
  return found;
}
bool any(const Algorithm&) { return true; }
bool reduces(const Algorithm& a) { return coll::reduces(a.collective); }
bool has_blocks(const Algorithm& a) { return a.blocks(5) > 1; }

std::string full_name(const testing::TestParamInfo<const Algorithm*>& info) {
  return std::string(name_of(info.param->collective)) + "_" + info.param->name;
}
INSTANTIATE_TEST_SUITE_P(Registry, EveryAlgorithm, testing::ValuesIn(rows(any)), full_name);
INSTANTIATE_TEST_SUITE_P(Registry, EveryReduction, testing::ValuesIn(rows(reduces)), full_name);
INSTANTIATE_TEST_SUITE_P(Registry, EveryAlgorithmOfSeveralBlocks,
                         testing::ValuesIn(rows(has_blocks)), full_name);

void swap_operands(Plan& plan, size_t step) {
  const uint32_t first = plan.steps[step].operands_begin;
  std::swap(plan.operands[first], plan.operands[first + 1]);
}

TEST(Verify, OtherOrderThanOnOtherRanksIsFound) {
  Plans plans = plans_of(Collective::kAllReduce, "one_shot", 3);
  swap_operands(plans[2], plans[2].steps.size() - 1);
  EXPECT_NE(fault(plans).find("reduced in another order than on other ranks"), std::string::npos);
  plans = plans_of(Collective::kAllReduce, "recursive_doubling", 4);
  swap_operands(plans[1], 1);
  EXPECT_NE(fault(plans), "");
}

TEST(Verify, RankOrderIsSeen) {
  Plans plans = plans_of(Collective::kReduceScatter, "direct", 3);
  const std::vector<bool> apart(3, false);
  Result<Proof> proof = verify(plans, Buffering::kNone, apart);
  ASSERT_TRUE(proof.ok());
  EXPECT_TRUE(proof->rank_order);
  swap_operands(plans[1], plans[1].steps.size() - 1);
  proof = verify(plans, Buffering::kNone, apart);
  ASSERT_TRUE(proof.ok());
  EXPECT_FALSE(proof->rank_order);
}

TEST(Verify, SwappedMessagesAreFound) {
  Plans plans = plans_of(Collective::kAllGather, "ring", 4);
  std::swap(plans[0].steps[0].blocks, plans[0].steps[2].blocks);
  std::swap(plans[0].steps[0].buffer, plans[0].steps[2].buffer);
  EXPECT_NE(fault(plans), "");
}

TEST(Verify, SendsThatWaitForEachOtherNeedBuffers) {
  Plans plans;
  for (int r = 0; r < 2; ++r) {
    Builder b(Collective::kAllReduce, 2, r, 0, 1);
    b.send(1 - r, Buffer::kInput, {0});
    const Operand mine = local(Buffer::kInput, 0), theirs = message(1 - r);
    if (r == 0) {
      b.combine(Buffer::kOutput, {0}, {mine, theirs}, true);
    } else {
      b.combine(Buffer::kOutput, {0}, {theirs, mine}, true);
    }
    plans.push_back(std::move(b).finish("exchange"));
  }
  EXPECT_EQ(fault(plans), "");
  const Result<Proof> proof = verify(plans, Buffering::kNone, {false, false});
  ASSERT_FALSE(proof.ok());
  EXPECT_NE(proof.status().message().find("deadlock"), std::string::npos);
}

// A receive that waits for all of a send which waits for its receiver: one slot holds a chunk, and
// that is not enough.
TEST(Verify, WholeDependencyAcrossAnExchangeNeedsMoreThanOneSlot) {
  Plans plans;
  for (int r = 0; r < 2; ++r) {
    Builder b(Collective::kAllToAll, 2, r, 0, 2);
    b.copy(Buffer::kTemp, {0, 2}, Buffer::kInput, 0);
    b.send(1 - r, Buffer::kTemp, {1 - r});
    b.copy(Buffer::kOutput, {r}, Buffer::kTemp, r);
    b.receive(1 - r, Buffer::kOutput, {1 - r});
    plans.push_back(std::move(b).finish("exchange"));
  }
  EXPECT_EQ(fault(plans), "");
  for (Plan& plan : plans) {  // the receive now waits for all of the send
    Step& receive = plan.steps[3];
    receive.dependencies_begin = static_cast<uint32_t>(plan.dependencies.size());
    plan.dependencies.push_back({0, true});
    plan.dependencies.push_back({1, true});
    receive.dependencies_end = static_cast<uint32_t>(plan.dependencies.size());
  }
  const std::vector<bool> apart(2, false);
  EXPECT_TRUE(verify(plans, Buffering::kUnbounded, apart).ok());
  EXPECT_FALSE(verify(plans, Buffering::kOneSlot, apart).ok());
}

TEST(Verify, OutputThatBelongsToOthersIsGuarded) {
  Builder scatter(Collective::kReduceScatter, 2, 0, 0, 2);
  scatter.combine(Buffer::kOutput, {1}, {message(1), local(Buffer::kInput, 1)}, true);
  EXPECT_NE(check_plan(std::move(scatter).finish("x")).message().find("belong to others"),
            std::string::npos);
  Builder reduce(Collective::kReduce, 2, 1, 0, 1);
  reduce.combine(Buffer::kOutput, {0}, {message(0), local(Buffer::kInput, 0)}, true);
  EXPECT_NE(check_plan(std::move(reduce).finish("x")).message().find("not the root"),
            std::string::npos);
  Builder broadcast(Collective::kBroadcast, 2, 1, 0, 1);
  broadcast.send(0, Buffer::kInput, {0});
  EXPECT_NE(check_plan(std::move(broadcast).finish("x")).message().find("not the root"),
            std::string::npos);
  Builder gather(Collective::kAllGather, 2, 1, 0, 2);
  gather.send(0, Buffer::kInput, {0});
  EXPECT_NE(check_plan(std::move(gather).finish("x")).message().find("does not hold"),
            std::string::npos);
}

TEST(Verify, IndicesOutsideThePlanAreFound) {
  const std::vector<std::function<void(Plan&)>> damages = {
      [](Plan& p) { p.steps[0].peer = 3; },
      [](Plan& p) { p.steps[0].peer = p.rank; },
      [](Plan& p) { p.steps[0].blocks.first = 3; },
      [](Plan& p) { p.steps[0].blocks.count = 4; },
      [](Plan& p) { p.steps[0].blocks.count = 0; },
      [](Plan& p) { p.operands[1].first = -1; },
      [](Plan& p) { p.operands[0].peer = 7; },
      [](Plan& p) { p.dependencies[0].step = 100; },
      [](Plan& p) { p.ranks = 4; },
      [](Plan& p) { p.rank = 2; },
      [](Plan& p) { p.blocks = 2; },
      [](Plan& p) { p.root = 1; },
  };
  for (const auto& damage : damages) {
    Plans plans = plans_of(Collective::kAllReduce, "ring", 3);
    damage(plans[0]);
    EXPECT_NE(fault(plans), "");
  }
}

TEST(Verify, ErrorsNameRankStepAndReason) {
  Plans plans = plans_of(Collective::kAllReduce, "ring", 3);
  drop_dependency(plans[1], 2, plans[1].steps[2].dependencies_begin);
  const std::string text = fault(plans);
  EXPECT_NE(text.find("allreduce ring"), std::string::npos) << text;
  EXPECT_NE(text.find("rank 1"), std::string::npos) << text;
  EXPECT_NE(text.find("step 2 send work[2] to 2"), std::string::npos) << text;
  EXPECT_NE(text.find("races with step 1"), std::string::npos) << text;
}

TEST(Verify, NeedsAllRanks) {
  Plans plans = plans_of(Collective::kAllReduce, "ring", 3);
  EXPECT_FALSE(verify(plans, Buffering::kNone, {false, false}).ok());
  plans.pop_back();
  EXPECT_FALSE(verify(plans, Buffering::kNone, {false, false}).ok());
  EXPECT_FALSE(verify({}, Buffering::kNone, {}).ok());
}

}  // namespace
}  // namespace hetccl::coll

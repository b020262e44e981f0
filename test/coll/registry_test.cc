// Every registered algorithm is verified here; a new one needs no line in this file.
#include "lib/coll/registry.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "lib/coll/verify.h"

namespace hetccl::coll {
namespace {

int ceil_log2(int n) {
  int log = 0;
  while ((1 << log) < n) ++log;
  return log;
}

std::vector<int> up_to(int n) {
  std::vector<int> counts;
  for (int i = 1; i <= n; ++i) counts.push_back(i);
  return counts;
}

class EveryAlgorithm : public testing::TestWithParam<const Algorithm*> {};

TEST_P(EveryAlgorithm, IsRight) {
  std::vector<int> counts = up_to(33);
  counts.insert(counts.end(), {48, 64, 100});
  Result<VerifySummary> summary = verify_algorithm(*GetParam(), counts);
  ASSERT_TRUE(summary.ok()) << summary.status().message();
  EXPECT_EQ(summary->ranks, 100);
  EXPECT_GT(summary->runs, 250u);
  EXPECT_GT(summary->proof.messages, 0u);
}

// A row that claims less than what holds would keep an algorithm from calls that it can serve.
TEST_P(EveryAlgorithm, ClaimsAllThatHolds) {
  const std::vector<int> counts = up_to(6);
  Algorithm bold = *GetParam();
  bold.unbuffered = true;
  EXPECT_EQ(verify_algorithm(bold, counts).ok(), GetParam()->unbuffered);
  bold = *GetParam();
  bold.rank_order = true;
  EXPECT_EQ(verify_algorithm(bold, counts).ok(), GetParam()->rank_order);
}

TEST_P(EveryAlgorithm, OneRankCopies) {
  const Plan plan = make_plan(*GetParam(), 1, 0, 0);
  if (GetParam()->collective == Collective::kBarrier ||
      GetParam()->collective == Collective::kExscan) {
    EXPECT_TRUE(plan.steps.empty());
  } else {
    EXPECT_EQ(to_text(plan), "0 combine output[0] <- input[0]\n");
  }
}

TEST_P(EveryAlgorithm, HasARow) {
  const Algorithm& a = *GetParam();
  EXPECT_EQ(find(a.collective, a.name), &a);
  EXPECT_GT(std::string(a.help).size(), 5u);
  const std::string name = a.name;
  EXPECT_EQ(name.find_first_not_of("abcdefghijklmnopqrstuvwxyz_"), std::string::npos);
  for (int n = 1; n < 40; ++n) {
    EXPECT_GE(a.blocks(n), 1);
    if (block_per_rank(a.collective)) {
      EXPECT_EQ(a.blocks(n), n);
    }
  }
}

// Everyone beginning with rank 0 would be a queue there.
TEST_P(EveryAlgorithm, FirstSendsGoToDifferentRanks) {
  constexpr int kRanks = 9;
  std::vector<int> met(kRanks);
  for (int r = 0; r < kRanks; ++r) {
    const Plan plan = make_plan(*GetParam(), kRanks, r, 0);
    const auto first = std::find_if(plan.steps.begin(), plan.steps.end(),
                                    [](const Step& step) { return step.kind == StepKind::kSend; });
    if (first != plan.steps.end()) ++met[first->peer];
  }
  const bool meet_at_root = GetParam()->collective == Collective::kReduce ||
                            GetParam()->collective == Collective::kGather;
  EXPECT_LE(*std::max_element(met.begin() + (meet_at_root ? 1 : 0), met.end()), 2);
}

TEST_P(EveryAlgorithm, PlansAreTheSameEachTime) {
  for (int r = 0; r < 7; ++r) {
    EXPECT_EQ(to_text(make_plan(*GetParam(), 7, r, 3)), to_text(make_plan(*GetParam(), 7, r, 3)));
  }
}

std::vector<const Algorithm*> all() {
  std::vector<const Algorithm*> rows;
  for (const Algorithm& a : algorithms()) rows.push_back(&a);
  return rows;
}

INSTANTIATE_TEST_SUITE_P(Registry, EveryAlgorithm, testing::ValuesIn(all()), [](const auto& info) {
  return std::string(name_of(info.param->collective)) + "_" + info.param->name;
});

TEST(Registry, NamesAreUniqueAndEveryCollectiveHasOne) {
  std::set<std::pair<Collective, std::string>> names;
  std::set<Collective> collectives;
  for (const Algorithm& a : algorithms()) {
    EXPECT_TRUE(names.insert({a.collective, a.name}).second) << a.name;
    collectives.insert(a.collective);
  }
  EXPECT_EQ(collectives.size(), static_cast<size_t>(kCollectives));
  EXPECT_EQ(find(Collective::kAllReduce, "no_such"), nullptr);
}

// A call in rank order must find an algorithm in every collective.
TEST(Registry, EveryCollectiveCanKeepRankOrder) {
  for (int c = 0; c < kCollectives; ++c) {
    const auto rows = algorithms();
    EXPECT_TRUE(std::any_of(rows.begin(), rows.end(), [&](const Algorithm& a) {
      return a.collective == static_cast<Collective>(c) && a.rank_order;
    })) << name_of(static_cast<Collective>(c));
  }
}

TEST(Registry, ParsesNamesOfCollectives) {
  for (int c = 0; c < kCollectives; ++c) {
    const Collective collective = static_cast<Collective>(c);
    EXPECT_EQ(parse_collective(name_of(collective)), collective);
  }
  EXPECT_EQ(parse_collective("all_reduce"), Collective::kAllReduce);
  EXPECT_EQ(parse_collective("ReduceScatter"), Collective::kReduceScatter);
  EXPECT_FALSE(parse_collective("all").has_value());
  EXPECT_FALSE(parse_collective("").has_value());
}

// Rounds (messages that wait for one another) and blocks sent by all, as the comments above the
// algorithms promise.
struct Promise {
  Collective collective;
  const char* name;
  int (*rounds)(int n);
  uint64_t (*blocks)(uint64_t n);  // null: not promised
};

TEST(Registry, RoundsAndBlocksAreAsPromised) {
  const auto once = [](int) { return 1; };
  const auto log = [](int n) { return ceil_log2(n); };
  const auto around = [](int n) { return n - 1; };
  const auto all_but_own = [](uint64_t n) { return n * (n - 1); };
  const Promise promises[] = {
      {Collective::kAllReduce, "one_shot", once, all_but_own},
      {Collective::kAllReduce, "direct", [](int) { return 2; },
       [](uint64_t n) { return 2 * n * (n - 1); }},
      {Collective::kAllReduce, "ring", [](int n) { return 2 * (n - 1); },
       [](uint64_t n) { return 2 * n * (n - 1); }},
      {Collective::kReduceScatter, "direct", once, all_but_own},
      {Collective::kReduceScatter, "ring", around, all_but_own},
      {Collective::kAllGather, "direct", once, all_but_own},
      {Collective::kAllGather, "ring", around, all_but_own},
      {Collective::kAllGather, "bruck", log, all_but_own},
      {Collective::kBroadcast, "direct", once, [](uint64_t n) { return n - 1; }},
      {Collective::kBroadcast, "binomial", log, [](uint64_t n) { return n - 1; }},
      {Collective::kBroadcast, "chain", around, [](uint64_t n) { return n - 1; }},
      {Collective::kReduce, "direct", once, [](uint64_t n) { return n - 1; }},
      {Collective::kReduce, "binomial", log, [](uint64_t n) { return n - 1; }},
      {Collective::kAllToAll, "direct", once, all_but_own},
      {Collective::kAllToAll, "bruck", log, nullptr},
      {Collective::kGather, "direct", once, [](uint64_t n) { return n - 1; }},
      {Collective::kGather, "binomial", log, nullptr},
      {Collective::kScatter, "direct", once, [](uint64_t n) { return n - 1; }},
      {Collective::kScatter, "binomial", log, nullptr},
      {Collective::kScan, "direct", once, [](uint64_t n) { return n * (n - 1) / 2; }},
      {Collective::kScan, "recursive_doubling", log, nullptr},
      {Collective::kScan, "chain", around, [](uint64_t n) { return n - 1; }},
      {Collective::kExscan, "direct", once, [](uint64_t n) { return n * (n - 1) / 2; }},
      {Collective::kExscan, "chain", around, [](uint64_t n) { return n - 1; }},
      {Collective::kBarrier, "dissemination", log, nullptr},
  };
  for (const Promise& promise : promises) {
    const Algorithm* algorithm = find(promise.collective, promise.name);
    ASSERT_NE(algorithm, nullptr) << promise.name;
    for (int n = 2; n <= 40; ++n) {
      Result<VerifySummary> summary = verify_algorithm(*algorithm, std::vector<int>{n});
      ASSERT_TRUE(summary.ok()) << summary.status().message();
      // A rank that a round does not concern can shorten the chain.
      EXPECT_LE(summary->proof.rounds, promise.rounds(n)) << promise.name << " " << n;
      if ((n & (n - 1)) == 0) {
        EXPECT_EQ(summary->proof.rounds, promise.rounds(n)) << promise.name << " " << n;
      }
      if (promise.blocks != nullptr) {
        EXPECT_EQ(summary->proof.blocks_sent, promise.blocks(n)) << promise.name << " " << n;
      }
    }
  }
}

// Halving and doubling add at most two rounds where n is not a power of two.
TEST(Registry, HalvingAndDoublingTakeLogarithmicRounds) {
  for (int n = 2; n <= 70; ++n) {
    const bool power = (n & (n - 1)) == 0;
    const int log = power ? ceil_log2(n) : ceil_log2(n) - 1;
    const int extra = power ? 0 : 2;
    const auto rounds = [&](Collective collective, const char* name) {
      Result<VerifySummary> summary =
          verify_algorithm(*find(collective, name), std::vector<int>{n});
      return summary.ok() ? summary->proof.rounds : -1;
    };
    const auto expect = [&](Collective collective, const char* name, int least) {
      const int taken = rounds(collective, name);
      EXPECT_GE(taken, least) << name << " " << n;
      EXPECT_LE(taken, least + extra) << name << " " << n;
    };
    expect(Collective::kAllReduce, "recursive_doubling", log);
    expect(Collective::kAllReduce, "halving_doubling", 2 * log);
    expect(Collective::kReduceScatter, "halving", log);
    expect(Collective::kAllGather, "recursive_doubling", log);
  }
}

TEST(Registry, VerifiesAllAndReportsEach) {
  std::vector<std::string> reported;
  const Status status = verify_registry(5, [&](const VerifySummary& summary) {
    EXPECT_EQ(summary.ranks, 5);
    EXPECT_GT(summary.runs, 0u);
    reported.push_back(summary.algorithm->name);
  });
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(reported.size(), algorithms().size());
}

}  // namespace
}  // namespace hetccl::coll

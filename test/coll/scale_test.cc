// What the plan of one rank grows to when ranks are many: algorithms that need not know everybody
// take steps, peers and dependencies in proportion to log n, so that what is kept for a call does
// too.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <map>
#include <set>
#include <string>

#include "lib/coll/registry.h"

namespace hetccl::coll {
namespace {

struct Size {
  size_t steps = 0, peers = 0, dependencies = 0;
};

Size size_of_plan(const Algorithm& algorithm, int ranks, int rank) {
  const Plan plan = make_plan(algorithm, ranks, rank, 0);
  std::set<int> peers;
  for (const Step& step : plan.steps) {
    if (step.kind == StepKind::kSend) peers.insert(step.peer);
  }
  for (const Operand& operand : plan.operands) {
    if (operand.peer >= 0) peers.insert(operand.peer);
  }
  return {plan.steps.size(), peers.size(), plan.dependencies.size()};
}

// Of some ranks that play different parts.
Size largest(const Algorithm& algorithm, int ranks) {
  Size most;
  for (int rank : {0, 1, ranks / 2, ranks / 2 + 1, ranks - 2, ranks - 1}) {
    const Size size = size_of_plan(algorithm, ranks, rank);
    most.steps = std::max(most.steps, size.steps);
    most.peers = std::max(most.peers, size.peers);
    most.dependencies = std::max(most.dependencies, size.dependencies);
  }
  return most;
}

size_t log2_of(int ranks) { return static_cast<size_t>(std::bit_width(unsigned(ranks - 1))); }

bool is_logarithmic(const Algorithm& algorithm) {
  for (int ranks : {64, 1000, 4096}) {
    const size_t log = log2_of(ranks);
    const Size size = largest(algorithm, ranks);
    if (size.peers > 2 * log + 2 || size.steps > 4 * log + 4 || size.dependencies > 12 * log + 8) {
      return false;
    }
  }
  return true;
}

TEST(Scale, AlgorithmsThatNeedNotKnowEverybodyGrowAsTheLogarithm) {
  for (const auto& [collective, names] : std::map<Collective, std::vector<const char*>>{
           {Collective::kAllReduce, {"recursive_doubling", "halving_doubling"}},
           {Collective::kReduce, {"binomial", "chain"}},
           {Collective::kReduceScatter, {"halving"}},
           {Collective::kBroadcast, {"binomial", "chain"}},
           {Collective::kAllGather, {"bruck", "recursive_doubling"}},
           {Collective::kGather, {"binomial"}},
           {Collective::kScatter, {"binomial"}},
           {Collective::kScan, {"recursive_doubling", "chain"}},
           {Collective::kExscan, {"recursive_doubling", "chain"}},
           {Collective::kBarrier, {"dissemination"}}}) {
    for (const char* name : names) {
      const Algorithm* algorithm = find(collective, name);
      ASSERT_NE(algorithm, nullptr) << name;
      EXPECT_TRUE(is_logarithmic(*algorithm))
          << name_of(collective) << " " << name << ": " << largest(*algorithm, 4096).steps
          << " steps, " << largest(*algorithm, 4096).peers << " peers, "
          << largest(*algorithm, 4096).dependencies << " dependencies at 4096 ranks";
    }
  }
}

TEST(Scale, EveryCollectiveButAllToAllHasSuchAnAlgorithm) {
  std::set<Collective> served;
  for (const Algorithm& algorithm : algorithms()) {
    if (is_logarithmic(algorithm)) served.insert(algorithm.collective);
  }
  EXPECT_EQ(served.size(), static_cast<size_t>(kCollectives) - 1);
  EXPECT_FALSE(served.contains(Collective::kAllToAll));
}

// It has a block for everybody, so its steps are as many as the ranks; its peers are few.
TEST(Scale, AllToAllCanDoWithFewPeers) {
  const Algorithm* bruck = find(Collective::kAllToAll, "bruck");
  ASSERT_NE(bruck, nullptr);
  EXPECT_LE(largest(*bruck, 1024).peers, 2 * log2_of(1024) + 2);
}

// All others are linear, or a logarithm worse.
TEST(Scale, NoPlanGrowsMuchFasterThanTheRanks) {
  constexpr int kFew = 128, kMany = 1024;
  const size_t most = kMany * log2_of(kMany) / (kFew * log2_of(kFew)) + 1;
  for (const Algorithm& algorithm : algorithms()) {
    const Size few = largest(algorithm, kFew), many = largest(algorithm, kMany);
    EXPECT_LE(many.steps, most * few.steps + 8) << algorithm.name;
    EXPECT_LE(many.dependencies, most * few.dependencies + 8) << algorithm.name;
  }
}

}  // namespace
}  // namespace hetccl::coll

#include "lib/coll/select.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "lib/coll/verify.h"

namespace hetccl::coll {
namespace {

CostModel one_node(int ranks) { return default_cost_model(std::vector<int>(ranks, 0), 64 * 1024); }
CostModel separate_nodes(int ranks) {
  std::vector<int> node_of;
  for (int r = 0; r < ranks; ++r) node_of.push_back(r);
  return default_cost_model(node_of, 64 * 1024);
}
Query query(Collective collective, int ranks, size_t bytes) {
  return {collective, ranks, 0, bytes, 4, 4, false};
}
double estimated(const Query& q, const char* name, const CostModel& model) {
  return estimate(*find(q.collective, name), q.ranks, q.root, q.bytes, q.accumulator_bytes,
                  q.element_bytes, model);
}
std::string chosen(const Query& q, const CostModel& model) {
  return choose(q, Forced(), model).algorithm->name;
}
Forced forced(std::string_view text) {
  Result<Forced> parsed = Forced::parse(text);
  EXPECT_TRUE(parsed.ok()) << parsed.status().message();
  return parsed.ok() ? *parsed : Forced();
}

TEST(Forced, ReadsListsStarsAndExclusions) {
  const Forced f = forced(" allreduce: ring , direct ;broadcast:^chain; *:binomial,^ring");
  const auto wanted = f.wanted(Collective::kAllReduce);
  ASSERT_EQ(wanted.size(), 2u);
  EXPECT_EQ(wanted[0], "ring");
  EXPECT_EQ(wanted[1], "direct");
  EXPECT_TRUE(f.excluded(Collective::kBroadcast, "chain"));
  EXPECT_FALSE(f.excluded(Collective::kReduce, "chain"));
  ASSERT_EQ(f.wanted(Collective::kReduce).size(), 1u);
  EXPECT_EQ(f.wanted(Collective::kReduce)[0], "binomial");
  EXPECT_TRUE(f.wanted(Collective::kAllGather).empty());
  EXPECT_TRUE(f.excluded(Collective::kAllGather, "ring"));
  EXPECT_TRUE(forced("").wanted(Collective::kAllReduce).empty());
  EXPECT_TRUE(forced(" ; ").wanted(Collective::kAllReduce).empty());
}

TEST(Forced, ErrorsListWhatIsKnown) {
  const auto error = [](std::string_view text) {
    const Result<Forced> parsed = Forced::parse(text);
    EXPECT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.status().code(), hetcclInvalidArgument);
    return parsed.status().message();
  };
  std::string text = error("allreduce:rng");
  EXPECT_NE(text.find("'rng'"), std::string::npos) << text;
  for (const Algorithm& a : algorithms()) {
    if (a.collective == Collective::kAllReduce) {
      EXPECT_NE(text.find(a.name), std::string::npos) << text;
    }
  }
  EXPECT_EQ(text.find("binomial"), std::string::npos) << "known for others only: " << text;
  text = error("allredux:ring");
  EXPECT_NE(text.find("'allredux'"), std::string::npos) << text;
  for (int c = 0; c < kCollectives; ++c) {
    EXPECT_NE(text.find(name_of(static_cast<Collective>(c))), std::string::npos) << text;
  }
  EXPECT_NE(error("*:nothing").find("binomial"), std::string::npos);
  EXPECT_NE(error("allreduce").find("ring"), std::string::npos);
  EXPECT_NE(error("allreduce:").find("ring"), std::string::npos);
  EXPECT_NE(error("ring").find("collective:algorithm"), std::string::npos);
  error("allreduce:^");
  error(":ring");
  error("allgather:halving_doubling");
}

TEST(Choose, TakesTheForcedOne) {
  for (const Algorithm& a : algorithms()) {
    const Forced f = forced(std::string(name_of(a.collective)) + ":" + a.name);
    const Choice choice = choose(query(a.collective, 4, 1000), f, one_node(4));
    EXPECT_EQ(choice.algorithm, &a);
    EXPECT_FALSE(choice.forced_ignored);
    EXPECT_NE(choice.reason.find("HETCCL_ALGO"), std::string::npos);
  }
}

// A rank must not keep half of a large vector that is none of its business, whatever time that
// saves.
TEST(Choose, StagesSmallVectorsOnly) {
  for (const Algorithm& a : algorithms()) {
    if (!a.stages) continue;
    const CostModel near = one_node(32), far = separate_nodes(32);
    EXPECT_NE(chosen(query(a.collective, 32, 64 << 20), near), a.name);
    EXPECT_NE(chosen(query(a.collective, 32, 64 << 20), far), a.name);
    Query small = query(a.collective, 32, 32 * 8);
    EXPECT_TRUE(chosen(small, near) == a.name || chosen(small, far) == a.name) << a.name;
  }
}

// Where no rank knows all counts, those that need them give way, with a reason.
TEST(Choose, GivesWayWhereCountsAreNotKnown) {
  for (const Algorithm& a : algorithms()) {
    Query q = query(a.collective, 4, 1000);
    q.own_counts = true;
    const bool possible = a.collective == Collective::kAllToAll ||
                          a.collective == Collective::kGather ||
                          a.collective == Collective::kScatter;
    if (!possible) continue;
    const Forced f = forced(std::string(name_of(a.collective)) + ":" + a.name);
    const Choice choice = choose(q, f, one_node(4));
    EXPECT_TRUE(choice.algorithm->own_counts);
    EXPECT_EQ(choice.forced_ignored, !a.own_counts);
    EXPECT_EQ(choice.reason.find("needs counts that are equal") != std::string::npos,
              !a.own_counts);
  }
}

TEST(Choose, GivesWayWhereRankOrderIsNeeded) {
  Query q = query(Collective::kAllReduce, 4, 1 << 20);
  q.needs_rank_order = true;
  Choice choice = choose(q, forced("allreduce:ring,direct"), one_node(4));
  EXPECT_STREQ(choice.algorithm->name, "direct");
  EXPECT_TRUE(choice.forced_ignored);
  EXPECT_NE(choice.reason.find("ring does not combine in rank order"), std::string::npos);
  choice = choose(q, forced("allreduce:ring"), one_node(4));
  EXPECT_TRUE(choice.algorithm->rank_order);
  EXPECT_TRUE(choice.forced_ignored);
  EXPECT_NE(choice.reason.find("ring"), std::string::npos);
}

TEST(Choose, KeepsRankOrderAtEverySize) {
  for (const Collective c :
       {Collective::kAllReduce, Collective::kReduce, Collective::kReduceScatter}) {
    for (const int ranks : {2, 3, 8, 20, 70}) {
      for (size_t bytes = 0; bytes < size_t{1} << 30; bytes = bytes * 8 + 1) {
        Query q = query(c, ranks, bytes);
        q.needs_rank_order = true;
        EXPECT_TRUE(choose(q, Forced(), separate_nodes(ranks)).algorithm->rank_order);
      }
    }
  }
}

TEST(Choose, HonoursExclusions) {
  const Query q = query(Collective::kAllReduce, 4, 1 << 20);
  const Choice free = choose(q, Forced(), one_node(4));
  EXPECT_FALSE(free.forced_ignored);
  EXPECT_NE(free.reason.find("next: "), std::string::npos) << free.reason;
  const Choice without =
      choose(q, forced(std::string("allreduce:^") + free.algorithm->name), one_node(4));
  EXPECT_NE(without.algorithm, free.algorithm);
  EXPECT_FALSE(without.forced_ignored);
  const Choice all =
      choose(query(Collective::kBarrier, 4, 0), forced("*:^dissemination"), one_node(4));
  EXPECT_STREQ(all.algorithm->name, "dissemination");
  EXPECT_TRUE(all.forced_ignored);
  EXPECT_TRUE(choose(q, forced("allreduce:ring,^ring"), one_node(4)).forced_ignored);
}

TEST(Choose, SuitsSizeAndLinks) {
  const Collective all_reduce = Collective::kAllReduce;
  for (const int n : {2, 3, 4, 8}) {
    EXPECT_EQ(chosen(query(all_reduce, n, 4), one_node(n)), "one_shot") << n;
    EXPECT_EQ(chosen(query(all_reduce, n, 1 << 18), one_node(n)), "direct") << n;
    EXPECT_EQ(chosen(query(all_reduce, n, 1 << 26), one_node(n)), "direct") << n;
  }
  for (const int n : {32, 64, 128, 500}) {
    EXPECT_EQ(chosen(query(all_reduce, n, 4), one_node(n)), "recursive_doubling") << n;
    EXPECT_EQ(chosen(query(all_reduce, n, 4), separate_nodes(n)), "recursive_doubling") << n;
    EXPECT_EQ(chosen(query(Collective::kBroadcast, n, 4), one_node(n)), "binomial") << n;
  }
  for (const int n : {3, 8, 16, 64}) {
    const std::string large = chosen(query(all_reduce, n, 1 << 26), separate_nodes(n));
    EXPECT_TRUE(large == "ring" || large == "direct") << n << " " << large;
  }
}

// Partial sums of 16-bit floats travel at twice their size; the direct algorithm sends none.
TEST(Choose, WideAccumulatorsCallForDirect) {
  for (const int n : {3, 8, 16, 32}) {
    for (const size_t bytes : {size_t{1} << 18, size_t{1} << 24, size_t{1} << 28}) {
      Query q = query(Collective::kAllReduce, n, bytes);
      q.element_bytes = 2;
      EXPECT_EQ(chosen(q, separate_nodes(n)), "direct") << n << " " << bytes;
      EXPECT_EQ(chosen(q, one_node(n)), "direct") << n << " " << bytes;
    }
  }
}

TEST(Choose, OneRankNeedsNoEstimate) {
  for (int c = 0; c < kCollectives; ++c) {
    const Choice choice =
        choose(query(static_cast<Collective>(c), 1, 1 << 20), Forced(), one_node(1));
    ASSERT_NE(choice.algorithm, nullptr);
    EXPECT_FALSE(choice.forced_ignored);
  }
}

TEST(Choose, NoCliffBetweenNeighbouringRankCounts) {
  for (const Collective c : {Collective::kAllReduce, Collective::kBroadcast, Collective::kReduce,
                             Collective::kAllGather, Collective::kReduceScatter}) {
    for (const bool network : {false, true}) {
      double before = 0;
      for (int n = 2; n <= 64; ++n) {
        const Query q = query(c, n, 4);
        const CostModel model = network ? separate_nodes(n) : one_node(n);
        const double time = estimated(q, choose(q, Forced(), model).algorithm->name, model);
        EXPECT_GT(time, 0);
        if (n > 2) {
          EXPECT_LT(time, 2 * before) << name_of(c) << " " << n;
          EXPECT_GT(2 * time, before) << name_of(c) << " " << n;
        }
        before = time;
      }
    }
  }
}

// What 4 bytes take: never more than two rounds a doubling of the ranks.
TEST(Choose, RoundsOfSmallCallsGrowLikeTheLogarithm) {
  for (const Collective c : {Collective::kAllReduce, Collective::kBroadcast}) {
    for (int n = 2; n <= 64; ++n) {
      const Choice choice = choose(query(c, n, 4), Forced(), one_node(n));
      Result<VerifySummary> summary = verify_algorithm(*choice.algorithm, std::vector<int>{n});
      ASSERT_TRUE(summary.ok()) << summary.status().message();
      EXPECT_LE(summary->proof.rounds, 1 + std::ceil(std::log2(n))) << name_of(c) << " " << n;
    }
  }
}

TEST(Estimate, GrowsWithBytes) {
  for (const Algorithm& a : algorithms()) {
    if (a.collective == Collective::kBarrier) continue;
    for (const int n : {2, 5, 16, 32, 40}) {
      const double tolerance = n > 32 ? 0.75 : 0.99;  // above 32 ranks it is extrapolated
      for (const bool network : {false, true}) {
        const CostModel model = network ? separate_nodes(n) : one_node(n);
        double before = 0;
        for (size_t bytes = 64; bytes <= size_t{1} << 28; bytes *= 16) {
          const double time = estimate(a, n, 0, bytes, 1, 1, model);
          EXPECT_GE(time, tolerance * before) << name_of(a.collective) << " " << a.name << " " << n;
          before = time;
        }
      }
    }
  }
}

// No all-reduce moves less than 2(n-1)/n of the vector over each link.
TEST(Estimate, IsNotBelowWhatTheLinksAllow) {
  for (const int n : {2, 3, 8, 32}) {
    const CostModel model = separate_nodes(n);
    const double bytes = 1 << 28;
    for (const Algorithm& a : algorithms()) {
      if (a.collective != Collective::kAllReduce) continue;
      const double time = estimate(a, n, 0, 1 << 28, 1, 1, model);
      EXPECT_GE(time, 2 * (n - 1) * bytes / n / model.between_nodes.bytes_per_s * 0.99) << a.name;
    }
    const double ring =
        estimated(query(Collective::kAllReduce, n, 1 << 28), "ring", separate_nodes(n));
    EXPECT_LE(ring, 2 * (n - 1) * bytes / n / model.between_nodes.bytes_per_s * 1.1) << n;
  }
}

TEST(Estimate, PipelinesGetTheirCredit) {
  const CostModel model = separate_nodes(8);
  const double once = (1 << 28) / model.between_nodes.bytes_per_s;
  const double chain = estimated(query(Collective::kBroadcast, 8, 1 << 28), "chain", model);
  EXPECT_GT(chain, once);
  EXPECT_LT(chain, 1.2 * once);
  EXPECT_GT(estimated(query(Collective::kBroadcast, 8, 1 << 28), "binomial", model), 2.5 * once);
}

TEST(Estimate, OneSlowLinkMatters) {
  CostModel model = separate_nodes(4);
  const Query q = query(Collective::kAllReduce, 4, 1 << 26);
  const double equal = estimated(q, "ring", model);
  model.rank_bytes_per_s.assign(4, model.between_nodes.bytes_per_s);
  EXPECT_DOUBLE_EQ(estimated(q, "ring", model), equal);
  model.rank_bytes_per_s[2] /= 4;
  EXPECT_GT(estimated(q, "ring", model), 3.5 * equal);
  EXPECT_GT(estimated(q, "direct", model), 3 * equal);
}

TEST(Estimate, WithinANodeIsFasterThanBetweenNodes) {
  CostModel far = separate_nodes(4);
  far.between_nodes.bytes_per_s /= 2;  // so that copies made meanwhile do not take longer
  for (const Algorithm& a : algorithms()) {
    for (const size_t bytes : {size_t{8}, size_t{1} << 20}) {
      EXPECT_LT(estimate(a, 4, 0, bytes, 1, 1, one_node(4)), estimate(a, 4, 0, bytes, 1, 1, far))
          << a.name;
    }
  }
}

TEST(Estimate, ManyRanksContinueTheLine) {
  for (const Algorithm& a : algorithms()) {
    const double t32 = estimate(a, 32, 0, 1 << 16, 1, 1, separate_nodes(32));
    const double t33 = estimate(a, 33, 0, 1 << 16, 1, 1, separate_nodes(33));
    const double t10000 = estimate(a, 10000, 9999, 1 << 16, 1, 1, separate_nodes(10000));
    EXPECT_LT(t33, 1.3 * t32) << name_of(a.collective) << " " << a.name;
    EXPECT_GT(t33, 0.7 * t32) << name_of(a.collective) << " " << a.name;
    EXPECT_GE(t10000, t32) << a.name;
  }
}

}  // namespace
}  // namespace hetccl::coll

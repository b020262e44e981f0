#include "lib/coll/verify.h"

#include <algorithm>
#include <string>

namespace hetccl::coll {
namespace {

constexpr Buffering kAllBuffering[] = {Buffering::kNone, Buffering::kOneSlot,
                                       Buffering::kUnbounded};

// Mixtures of in place and not. Few of them for many ranks: which steps run when does not depend on
// them, and what goes wrong in place on one rank does so whatever the others do.
std::vector<std::vector<bool>> mixtures(int ranks) {
  std::vector<std::vector<bool>> all;
  if (ranks <= 4) {
    for (int bits = 0; bits < 1 << ranks; ++bits) {
      std::vector<bool> mixture;
      for (int r = 0; r < ranks; ++r) mixture.push_back((bits >> r & 1) != 0);
      all.push_back(mixture);
    }
    return all;
  }
  all.emplace_back(ranks, false);
  all.emplace_back(ranks, true);
  uint32_t random = 12345u + static_cast<uint32_t>(ranks);
  for (int i = 0; i < 2 && ranks <= 33; ++i) {
    std::vector<bool> mixture;
    for (int r = 0; r < ranks; ++r) {
      random = random * 1664525u + 1013904223u;
      mixture.push_back(random >> 31 != 0);
    }
    all.push_back(mixture);
  }
  return all;
}

std::vector<int> roots(const Algorithm& algorithm, int ranks) {
  if (!rooted(algorithm.collective)) return {0};
  if (ranks > 8) return {0, 1, ranks - 1};
  std::vector<int> all;
  for (int r = 0; r < ranks; ++r) all.push_back(r);
  return all;
}

Status check_set(std::span<const Plan> plans, const std::vector<bool>& in_place) {
  if (plans.empty()) return internal_error("verify needs at least one plan");
  if (in_place.size() != plans.size()) {
    return internal_error("verify needs to know of each rank whether it is in place: " +
                          std::to_string(in_place.size()) + " given for " +
                          std::to_string(plans.size()));
  }
  for (size_t r = 0; r < plans.size(); ++r) {
    const Plan& plan = plans[r];
    if (plan.apart && in_place[r]) {
      return internal_error("plan " + std::to_string(r) + " cannot be in place");
    }
    if (plan.ranks != static_cast<int>(plans.size()) || plan.rank != static_cast<int>(r) ||
        plan.collective != plans[0].collective || plan.root != plans[0].root ||
        plan.blocks != plans[0].blocks || plan.blocks < 1) {
      return internal_error("plan " + std::to_string(r) +
                            " is of another rank, collective, root or number of blocks");
    }
  }
  return {};
}

// All buffering and mixtures, for one count and root.
Status verify_set(const Algorithm& algorithm, std::span<const Plan> plans, VerifySummary* summary) {
  for (const Plan& plan : plans) {
    if (Status s = check_plan(plan); !s.ok()) return s;
  }
  for (const Buffering buffering : kAllBuffering) {
    if (buffering == Buffering::kNone && !algorithm.unbuffered) continue;
    for (std::vector<bool> mixture : mixtures(static_cast<int>(plans.size()))) {
      for (const Plan& plan : plans) mixture[plan.rank] = mixture[plan.rank] && !plan.apart;
      Result<Proof> proof = run_plans(plans, buffering, mixture);
      if (!proof.ok()) return proof.status();
      ++summary->runs;
      if (algorithm.rank_order && !proof->rank_order) {
        return internal_error(std::string(name_of(algorithm.collective)) + " " + algorithm.name +
                              " claims rank order, but does not combine in it for " +
                              std::to_string(plans.size()) + " ranks");
      }
      if (plans[0].root == 0) summary->proof = *proof;
    }
  }
  return {};
}

}  // namespace

Result<Proof> verify(std::span<const Plan> plans, Buffering buffering,
                     const std::vector<bool>& in_place) {
  if (Status s = check_set(plans, in_place); !s.ok()) return s;
  for (const Plan& plan : plans) {
    if (Status s = check_plan(plan); !s.ok()) return s;
  }
  return run_plans(plans, buffering, in_place);
}

Result<VerifySummary> verify_algorithm(const Algorithm& algorithm, std::span<const int> counts) {
  VerifySummary summary;
  summary.algorithm = &algorithm;
  for (const int ranks : counts) {
    for (const int root : roots(algorithm, ranks)) {
      VerifySummary one;
      for (int apart = 0; apart < (algorithm.own_counts ? 3 : 1); ++apart) {
        std::vector<Plan> plans;
        for (int r = 0; r < ranks; ++r) {
          // Input and output apart: nowhere, on every other rank, everywhere.
          const bool is_apart = apart == 2 || (apart == 1 && r % 2 == 0);
          plans.push_back(make_plan(algorithm, ranks, r, root, is_apart));
        }
        if (Status s = verify_set(algorithm, plans, &one); !s.ok()) return s;
      }
      summary.runs += one.runs;
      if (root == 0 && ranks >= summary.ranks) {
        summary.ranks = ranks;
        summary.proof = one.proof;
      }
    }
  }
  return summary;
}

Status verify_registry(int up_to, const std::function<void(const VerifySummary&)>& report) {
  std::vector<int> counts;
  for (int n = 1; n <= up_to; ++n) counts.push_back(n);
  for (const Algorithm& algorithm : algorithms()) {
    Result<VerifySummary> summary = verify_algorithm(algorithm, counts);
    if (!summary.ok()) return summary.status();
    report(*summary);
  }
  return {};
}

}  // namespace hetccl::coll

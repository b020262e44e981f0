// Runs all ranks' plans of one collective symbolically, with no network, memory or device, and
// proves that they are right. Pure functions.
//
// A block's value is the tree of contributions that it was combined from. Steps run in any order
// that their dependencies allow: which one is of no matter once check_plan() has shown that steps
// which touch one place are ordered.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "lib/base/status.h"
#include "lib/coll/plan.h"
#include "lib/coll/registry.h"

namespace hetccl::coll {

enum class Buffering : uint8_t {
  kNone,     // a send completes when its receiver has consumed the message
  kOneSlot,  // one message a pair in flight
  kUnbounded,
};

// What a successful verification proved.
struct Proof {
  uint64_t messages = 0;  // sent by all ranks
  uint64_t blocks_sent = 0;
  int rounds = 0;           // longest chain of messages that wait for one another
  bool rank_order = false;  // every result combines rank 0, 1, 2, ... in this order
};

// `in_place[r]`: block b of input and of output (and of work) are one place on rank r.
// Proves: every message matched, with equal blocks and width; no deadlock under this buffering; no
// race between steps that the dependencies leave unordered; each contribution counted exactly once
// (barrier: everyone heard from everyone); results final exactly once, where the collective says,
// and by the same order of reduction on every rank; nothing written that is not the rank's own.
// An error names the rank, the step and why.
Result<Proof> verify(std::span<const Plan> plans, Buffering buffering,
                     const std::vector<bool>& in_place);

// The two halves of verify(): what can be seen in one plan alone (races, order of messages to and
// from a peer, what may be read and written, widths), and running all of them.
// REQUIRES for run_plans: each plan has passed check_plan, and there is one for each rank, in
// order.
Status check_plan(const Plan& plan);
Result<Proof> run_plans(std::span<const Plan> plans, Buffering buffering,
                        const std::vector<bool>& in_place);

struct VerifySummary {
  const Algorithm* algorithm = nullptr;
  int ranks = 0;      // the largest count that was verified
  uint64_t runs = 0;  // sets of plans x buffering x mixtures of in place and not
  Proof proof;        // at this largest count, with root 0
};

// Verifies the algorithm for these rank counts: all roots up to 8 ranks and {0, 1, n-1} above; all
// mixtures of in place and not up to 4 ranks and some above. Holds it to its registry row.
Result<VerifySummary> verify_algorithm(const Algorithm& algorithm, std::span<const int> counts);

// Every algorithm, for 1 to `up_to` ranks; `report` is called once for each that holds.
Status verify_registry(int up_to, const std::function<void(const VerifySummary&)>& report);

}  // namespace hetccl::coll

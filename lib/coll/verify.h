// Runs all ranks' plans of one collective symbolically, with no network, memory or device.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lib/base/status.h"
#include "lib/coll/plan.h"

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
Result<Proof> verify(std::span<const Plan> plans, Buffering buffering,
                     const std::vector<bool>& in_place);

}  // namespace hetccl::coll

// A program whose steps are a single contiguous message each, in a form that is run step by step:
// everything that the call does not change is worked out beforehand, so that a small message costs
// little more than its way from core to core. It is another form of the same plan, not another
// algorithm.
//
// Thread rule: immutable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lib/coll/plan.h"

namespace hetccl::run {

struct Straight {
  static constexpr size_t kMostSteps = 256;

  struct Operand {
    int32_t peer;  // -1: local
    bool wide;
    coll::Buffer buffer;  // local
    size_t offset;        // local; bytes
    size_t bytes;         // of the message
  };
  struct Step {
    int32_t peer;  // of a send; -1: combine
    bool wide;
    bool finalize;
    bool stable;  // send: see net::Lane::try_send. Other messages are copied at once
    bool copies;  // combine: one operand, as it is
    coll::Buffer buffer;
    size_t offset, bytes, count;  // in the buffer; count of elements
    uint64_t tag;                 // of its messages
    uint32_t operands_begin, operands_end;
    uint32_t waits_begin, waits_end;  // combine: stable sends whose pieces it overwrites
  };
  std::vector<Step> steps;
  std::vector<Operand> operands;
  std::vector<uint32_t> waits;
  std::vector<uint32_t> last_sends;  // the last stable one to each peer
};

}  // namespace hetccl::run

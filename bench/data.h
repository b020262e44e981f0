// Test data whose results are exact in every type, and their verification at the speed of memory.
//
// What rank r contributes at index i repeats every kPeriod indices, a prime, so that blocks, chunks
// and vectors never line up with it; within a period it depends on rank and index. Values are small
// integers, chosen so that each partial result in any order is an integer the type can hold: even
// an 8-bit float, and over any number of ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "bench/collective.h"

namespace hetccl::bench {

inline constexpr size_t kPeriod = 1021;

// One period of elements, as bytes.
class Pattern {
 public:
  Pattern() = default;
  Pattern(DataType type, std::vector<std::byte> period);

  // Elements first, first+1, ... of the endless repetition.
  void fill(void* destination, size_t count, uint64_t first) const;
  // Elements that differ. Padding within an element is not looked at.
  uint64_t count_wrong(const void* data, size_t count, uint64_t first) const;

 private:
  DataType type_ = hetcclByte;
  std::vector<std::byte> bytes_;
};

// What `rank` contributes to a reduction, and what comes out. REQUIRES: supports(type, op).
Pattern contribution(DataType type, RedOp op, int ranks, int rank);
Pattern reduced(DataType type, RedOp op, int ranks);
// What comes out of the first `some` of them.
Pattern reduced(DataType type, RedOp op, int ranks, int some);
// Arbitrary bits, for collectives that only move.
Pattern moved(DataType type, int rank);

}  // namespace hetccl::bench

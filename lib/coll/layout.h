// Binds the symbolic blocks of a plan to elements. Sizes of blocks are equal on all ranks;
// displacements are each rank's own affair.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lib/coll/plan.h"

namespace hetccl::coll {

class Layout {
 public:
  struct Extent {
    size_t offset;  // elements from the start of the buffer
    size_t count;   // elements
  };

  // `count` elements cut into `blocks` shares that follow `weights` (empty: equal). Shares of large
  // vectors begin at multiples of `granule` elements, so that no two ranks touch one cache line.
  static Layout split(size_t count, int blocks, size_t granule,
                      std::span<const double> weights = {});
  // One block a rank, of the given sizes, one after the other.
  static Layout from_counts(std::span<const size_t> counts);

  // AllGather: block `own` of the input lies at the start of the input buffer. ReduceScatter: that
  // block of the output lies at the start of the output buffer.
  void set_compact(Buffer buffer, int own);
  // AllGatherv: block b of the output lies at displacements[b].
  void set_displacements(Buffer buffer, std::span<const size_t> displacements);

  int blocks() const { return static_cast<int>(counts_.size()); }
  size_t count(int block) const { return counts_[block]; }
  Extent extent(Buffer buffer, int block) const;
  size_t total() const { return total_; }  // elements of all blocks

 private:
  std::vector<size_t> counts_;
  std::vector<size_t> offsets_;    // of input, work and temp: one block after the other
  std::vector<size_t> displaced_;  // empty, or of `displaced_buffer_`
  Buffer displaced_buffer_ = Buffer::kOutput;
  Buffer compact_buffer_ = Buffer::kInput;
  int compact_block_ = -1;
  size_t total_ = 0;
};

}  // namespace hetccl::coll

// Binds the symbolic blocks of a plan to elements. Sizes of blocks are equal on all ranks, or those
// that a rank uses are known to it alone and to the other side (0 stands for the rest);
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

  // AllGather, Gather: block `own` of the input lies at the start of the input buffer.
  // ReduceScatter, Scatter: that block of the output lies at the start of the output buffer.
  void set_compact(Buffer buffer, int own);
  // AllGatherv and others: block b of the input or output lies at displacements[b].
  void set_displacements(Buffer buffer, std::span<const size_t> displacements);
  // AllToAllv: blocks of the input have sizes of their own.
  void set_input_counts(std::span<const size_t> counts);

  int blocks() const { return static_cast<int>(counts_.size()); }
  // Of output, work and temp; and of the input, where it has no sizes of its own.
  size_t count(int block) const { return counts_[block]; }
  size_t count(Buffer buffer, int block) const {
    return has_input_counts(buffer) ? input_counts_[block] : counts_[block];
  }
  Extent extent(Buffer buffer, int block) const;
  size_t total() const { return total_; }  // elements of all blocks, as count(block) has them

 private:
  bool has_input_counts(Buffer buffer) const {
    return buffer == Buffer::kInput && !input_counts_.empty();
  }

  std::vector<size_t> counts_;
  std::vector<size_t> offsets_;       // one block after the other
  std::vector<size_t> input_counts_;  // or empty
  std::vector<size_t> displaced_[2];  // of input, of output; or empty
  Buffer compact_buffer_ = Buffer::kInput;
  int compact_block_ = -1;
  size_t total_ = 0;
};

}  // namespace hetccl::coll

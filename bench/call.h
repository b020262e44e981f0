// One collective call on this rank, bound to memory: what it reads, writes and should give.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "bench/collective.h"
#include "bench/data.h"

namespace hetccl::bench {

struct Place {
  int ranks, rank;
};

// How memory is reached that the processor cannot touch: copies between any two kinds.
using Mover = std::function<void(void* to, const void* from, size_t bytes)>;

class Call {
 public:
  // Out of place: `send` and `recv` hold up to shape.send_elements and shape.recv_elements. In
  // place: only `recv` is used, for the larger of the two. `mover`: of memory on a device, must
  // outlive the call; null: host memory.
  Call(Kind kind, DataType type, RedOp op, int root, Shape shape, bool in_place, Place place,
       std::byte* send, std::byte* recv, const Mover* mover = nullptr);

  Kind kind() const { return kind_; }
  DataType type() const { return type_; }
  RedOp op() const { return op_; }
  int root() const { return root_; }
  const Shape& shape() const { return shape_; }
  bool in_place() const { return in_place_; }
  // The arguments of the call, as the library takes them.
  const std::byte* send() const { return send_; }
  std::byte* recv() const { return recv_; }
  // In place: the whole buffer, which MPI takes with MPI_IN_PLACE.
  std::byte* base() const { return base_; }

  // Of a v-form, and of all collectives of blocks: those that this rank sends and receives, one a
  // rank, one after the other; with a single block that this rank alone sends or gets.
  struct Blocks {
    std::vector<size_t> counts, displacements;
    size_t total = 0;
  };
  const Blocks& sent() const { return sent_; }
  const Blocks& received() const { return received_; }
  bool at_root() const { return place_.rank == root_; }

  void write_input() const;
  // Makes sure that what is verified was written by the call.
  void spoil_output() const;
  // Elements of the output that differ from what is right, and of the input where it was changed.
  uint64_t count_wrong() const;
  // `recv_at`: where the result lies, for a peer that puts it elsewhere than the library.
  uint64_t count_wrong_at(const std::byte* recv_at) const;

 private:
  struct Segment {
    size_t offset;  // elements in recv
    const Pattern* pattern;
    uint64_t first;
    size_t count;
  };
  void lay_out();
  void place_in_one_buffer();
  bool knows_input_of(int rank) const;
  // `count` elements at `data` as the processor can read them; in `copy`, if need be.
  const std::byte* readable(const std::byte* data, size_t count,
                            std::vector<std::byte>* copy) const;
  bool has_input() const;
  bool has_output() const;
  std::vector<Segment> expected() const;

  Kind kind_;
  DataType type_;
  RedOp op_;
  int root_;
  Shape shape_;
  bool in_place_;
  Place place_;
  std::byte *send_, *recv_, *base_;
  const Mover* mover_;
  Blocks sent_, received_;
  std::vector<Pattern> inputs_;  // of the ranks whose data this rank writes or gets
  std::vector<Pattern> result_;  // of a reduction: one
};

}  // namespace hetccl::bench

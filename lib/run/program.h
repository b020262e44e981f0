// A program is a plan bound to a layout and to sizes: what one rank does for all calls of one
// shape. It is immutable and holds no pointer into the caller's buffers, so that it can be cached.
//
// Every block is cut into chunks alike on all ranks; chunks of all blocks, in order, have global
// numbers. A step covers consecutive numbers (modulo their total) and moves one message a chunk,
// unless all its blocks together fit one message: then it is packed and has a single one.
// Where the input's blocks have sizes of their own (AllToAllv), its chunks are numbered apart; no
// step then waits for one across the two.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "lib/coll/layout.h"
#include "lib/coll/plan.h"
#include "lib/device/device.h"
#include "lib/run/straight.h"

namespace hetccl::run {

// What a program is bound to besides plan and layout.
struct Shape {
  device::Reduction reduction{};  // of pure movement: type only
  bool reduces = false;
  size_t element_bytes = 1;
  size_t accumulator_bytes = 1;  // of pure movement: element_bytes
  // The operator tells partials from contributions even where both are elements.
  bool marks_partials = false;
  size_t max_message = 0;   // bytes of a chunk at most
  bool unbuffered = false;  // of the algorithm: see coll::Algorithm
  // Counts are known to the two sides of a message only, so each message names its sender's.
  bool own_counts = false;
  bool in_order = false;  // of the algorithm: see coll::runs_in_order()

  // Whether a value can be wide: a partial, which is told from an element.
  bool has_wide() const { return marks_partials || accumulator_bytes != element_bytes; }
};

class Program {
 public:
  struct Piece {
    size_t offset;  // elements from the start of the buffer
    size_t count;   // elements
  };
  struct BoundDependency {
    uint32_t step;
    bool whole;
    uint32_t shift;  // chunk c of the step stands at c + shift (modulo total) in the other
  };
  struct BoundStep {
    coll::Step step;
    bool packed = false;
    bool wide = false;    // the buffer holds accumulators
    bool stable = false;  // send: see net::Lane::try_send
    uint32_t chunks = 1;
    uint64_t tag = 0;          // of its messages, see Shape::own_counts: elements of the step
    uint32_t first_chunk = 0;  // global number
    int32_t previous = -1;     // send: the send before it to the same peer
    uint32_t dependencies_begin = 0, dependencies_end = 0;
    uint32_t pieces_begin = 0, pieces_end = 0;  // of the only chunk; empty where there are more
  };

  // The message operand before an operand that comes from the same peer: messages are announced and
  // taken in this order.
  struct Order {
    int32_t operand = -1;
    uint32_t step = 0;  // of that operand
  };

  Program(coll::Plan plan, const coll::Layout& layout, const Shape& shape);

  const coll::Plan& plan() const { return plan_; }
  const Shape& shape() const { return shape_; }
  const std::vector<BoundStep>& steps() const { return steps_; }
  const std::vector<BoundDependency>& dependencies() const { return dependencies_; }
  const std::vector<Order>& operand_order() const { return operand_order_; }
  uint32_t total_chunks() const { return std::max(prefix_.back(), input_prefix_.back()); }
  size_t width(bool wide) const { return wide ? shape_.accumulator_bytes : shape_.element_bytes; }

  // The elements of a chunk in the step's own buffer: one piece, or one a block where the step is
  // packed. Those of steps of a single chunk are known beforehand; `scratch` is for the others.
  std::span<const Piece> pieces(const BoundStep& step, uint32_t chunk,
                                std::vector<Piece>* scratch) const {
    if (step.pieces_end != step.pieces_begin) {
      return {fixed_pieces_.data() + step.pieces_begin, step.pieces_end - step.pieces_begin};
    }
    compute_pieces(step, chunk, step.step.buffer, step.step.blocks.first, scratch);
    return *scratch;
  }
  // The same elements in the buffer of a local operand.
  std::span<const Piece> pieces(const BoundStep& step, uint32_t chunk, const coll::Operand& operand,
                                std::vector<Piece>* scratch) const {
    compute_pieces(step, chunk, operand.buffer, operand.first, scratch);
    return *scratch;
  }

  // Null: some step has several messages or pieces, or waits must not follow the plan's order.
  const Straight* straight() const { return straight_ ? &*straight_ : nullptr; }

  // What a rank writes to its output in the end: pieces in ascending order that do not touch.
  std::vector<Piece> written_output() const;

  // Bytes of the scratch buffers. Work is 0 where it may lie in the output.
  size_t work_bytes() const { return work_in_output_ ? 0 : work_bytes_; }
  bool work_in_output() const { return work_in_output_; }
  size_t temp_bytes() const { return temp_bytes_; }

 private:
  size_t chunk_count(size_t elements) const;
  const std::vector<uint32_t>& prefix(coll::Buffer buffer) const {
    return buffer == coll::Buffer::kInput ? input_prefix_ : prefix_;
  }
  void compute_pieces(const BoundStep& step, uint32_t chunk, coll::Buffer buffer, int first,
                      std::vector<Piece>* out) const;
  bool is_result_of_one(const coll::Step& step) const;
  void bind(const coll::Step& step, std::vector<int32_t>* last_send,
            std::vector<Order>* last_taken);
  std::optional<Straight> straighten() const;
  std::optional<Piece> only_piece(const BoundStep& step, coll::Buffer buffer, int first) const;

  coll::Plan plan_;
  coll::Layout layout_;
  Shape shape_;
  size_t chunk_elements_ = 1;
  // Chunks before each block; one more for the total. Of the input, and of the other buffers.
  std::vector<uint32_t> input_prefix_, prefix_;
  std::vector<BoundStep> steps_;
  std::vector<BoundDependency> dependencies_;
  std::vector<Order> operand_order_;  // of each operand of the plan
  std::vector<Piece> fixed_pieces_;
  std::optional<Straight> straight_;
  bool work_in_output_ = false;
  size_t work_bytes_ = 0, temp_bytes_ = 0;
};

}  // namespace hetccl::run

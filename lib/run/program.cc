#include "lib/run/program.h"

#include <algorithm>
#include <cassert>

namespace hetccl::run {

using coll::Buffer;
using coll::Step;
using coll::StepKind;

namespace {

// Results that another rank has read stay in its cache, and are costly to write anew in the next
// call; so up to this size of the whole they are handed on as copies.
constexpr size_t kLeavesCaches = 256 << 10;

}  // namespace

Program::Program(coll::Plan plan, const coll::Layout& layout, const Shape& shape)
    : plan_(std::move(plan)), layout_(layout), shape_(shape) {
  assert(layout_.blocks() == plan_.blocks);
  const size_t widest = std::max(shape_.element_bytes, shape_.accumulator_bytes);
  chunk_elements_ = std::max<size_t>(1, shape_.max_message / widest);
  for (const Buffer buffer : {Buffer::kInput, Buffer::kOutput}) {
    std::vector<uint32_t>& prefix = buffer == Buffer::kInput ? input_prefix_ : prefix_;
    prefix.push_back(0);
    for (int b = 0; b < plan_.blocks; ++b) {
      const size_t chunks = chunk_count(layout_.count(buffer, b));
      prefix.push_back(prefix.back() + static_cast<uint32_t>(chunks));
    }
  }
  std::vector<int32_t> last_send(static_cast<size_t>(plan_.ranks), -1);
  std::vector<Order> last_taken(static_cast<size_t>(plan_.ranks));
  operand_order_.resize(plan_.operands.size());
  steps_.reserve(plan_.steps.size());
  for (const Step& step : plan_.steps) bind(step, &last_send, &last_taken);
  work_in_output_ = plan_.uses_work && shape_.accumulator_bytes == shape_.element_bytes &&
                    (plan_.collective == coll::Collective::kAllReduce ||
                     plan_.collective == coll::Collective::kScan);
  if (plan_.uses_work) work_bytes_ = layout_.total() * shape_.accumulator_bytes;
  if (plan_.uses_temp) temp_bytes_ = layout_.total() * shape_.element_bytes;
  if (shape_.in_order) straight_ = straighten();
}

// The elements of a step of one message in one of its buffers, if they are one piece there.
std::optional<Program::Piece> Program::only_piece(const BoundStep& step, Buffer buffer,
                                                  int first) const {
  std::vector<Piece> pieces;
  compute_pieces(step, 0, buffer, first, &pieces);
  Piece whole{0, 0};
  for (const Piece& piece : pieces) {
    if (whole.count == 0) whole.offset = piece.offset;
    if (piece.offset != whole.offset + whole.count) return {};
    whole.count += piece.count;
  }
  return whole;
}

std::optional<Straight> Program::straighten() const {
  Straight straight;
  const bool two_widths = shape_.has_wide();
  std::vector<int32_t> last(static_cast<size_t>(plan_.ranks), -1);
  if (steps_.size() > Straight::kMostSteps) return {};
  for (const BoundStep& bound : steps_) {
    if (bound.step.operands_end - bound.step.operands_begin > last.size() + 1) return {};
    const Step& step = bound.step;
    const auto piece = only_piece(bound, step.buffer, step.blocks.first);
    if (bound.chunks != 1 || !piece) return {};
    Straight::Step made{};
    made.peer = step.kind == StepKind::kSend ? step.peer : -1;
    made.wide = bound.wide;
    made.finalize = step.finalize;
    made.stable = bound.stable;
    made.buffer = step.buffer;
    made.offset = piece->offset * width(bound.wide);
    made.bytes = piece->count * width(bound.wide);
    made.count = piece->count;
    made.tag = bound.tag;
    made.operands_begin = static_cast<uint32_t>(straight.operands.size());
    made.waits_begin = static_cast<uint32_t>(straight.waits.size());
    for (uint32_t o = step.operands_begin; o < step.operands_end; ++o) {
      const coll::Operand& operand = plan_.operands[o];
      const auto from = only_piece(bound, operand.peer < 0 ? operand.buffer : step.buffer,
                                   operand.peer < 0 ? operand.first : step.blocks.first);
      if (!from) return {};
      const bool wide =
          two_widths && (operand.peer < 0 ? operand.buffer == Buffer::kWork : operand.wide);
      straight.operands.push_back({operand.peer, wide, operand.buffer, from->offset * width(wide),
                                   piece->count * width(wide)});
    }
    made.operands_end = static_cast<uint32_t>(straight.operands.size());
    made.copies = made.operands_end - made.operands_begin == 1 && !step.finalize &&
                  straight.operands.back().wide == bound.wide;
    for (uint32_t d = bound.dependencies_begin; d < bound.dependencies_end; ++d) {
      const uint32_t other = dependencies_[d].step;
      if (step.kind == StepKind::kCombine && steps_[other].stable) {
        straight.waits.push_back(other);
      }
    }
    made.waits_end = static_cast<uint32_t>(straight.waits.size());
    if (made.peer >= 0 && made.stable)
      last[made.peer] = static_cast<int32_t>(straight.steps.size());
    straight.steps.push_back(made);
  }
  for (const int32_t step : last) {
    if (step >= 0) straight.last_sends.push_back(static_cast<uint32_t>(step));
  }
  return straight;
}

size_t Program::chunk_count(size_t elements) const {
  return (elements + chunk_elements_ - 1) / chunk_elements_;
}

// Whether a step that only moves makes a result of one contribution, to which an operator made at
// run time may do something all the same. Results are never passed on in a prefix of the ranks.
bool Program::is_result_of_one(const Step& step) const {
  if (!shape_.marks_partials || step.kind != StepKind::kCombine || step.buffer != Buffer::kOutput ||
      step.operands_end - step.operands_begin != 1) {
    return false;
  }
  const coll::Operand& from = plan_.operands[step.operands_begin];
  if (from.peer < 0) return from.buffer == Buffer::kInput;
  return plan_.collective == coll::Collective::kScan ||
         plan_.collective == coll::Collective::kExscan;
}

void Program::bind(const Step& step, std::vector<int32_t>* last_send,
                   std::vector<Order>* last_taken) {
  const auto index = static_cast<int32_t>(steps_.size());
  BoundStep bound;
  bound.step = step;
  if (is_result_of_one(step)) bound.step.finalize = true;
  bound.wide = step.buffer == Buffer::kWork && shape_.has_wide();
  bound.stable = shape_.unbuffered && (step.buffer == Buffer::kInput || !shape_.in_order ||
                                       layout_.total() * shape_.element_bytes > kLeavesCaches);
  const std::vector<uint32_t>& before = prefix(step.buffer);
  size_t elements = 0;
  uint32_t chunks = 0;
  for (int k = 0; k < step.blocks.count; ++k) {
    const int b = (step.blocks.first + k) % plan_.blocks;
    elements += layout_.count(step.buffer, b);
    chunks += before[b + 1] - before[b];
  }
  bound.first_chunk = before[step.blocks.first];
  if (shape_.own_counts) bound.tag = elements;
  bound.packed = elements <= chunk_elements_;
  bound.chunks = bound.packed ? 1 : chunks;
  if (step.kind == StepKind::kSend) {
    bound.previous = (*last_send)[step.peer];
    (*last_send)[step.peer] = index;
  }
  for (uint32_t o = step.operands_begin; o < step.operands_end; ++o) {
    const int peer = plan_.operands[o].peer;
    if (peer < 0) continue;
    operand_order_[o] = (*last_taken)[peer];
    (*last_taken)[peer] = {static_cast<int32_t>(o), static_cast<uint32_t>(index)};
  }
  bound.dependencies_begin = static_cast<uint32_t>(dependencies_.size());
  for (uint32_t d = step.dependencies_begin; d < step.dependencies_end; ++d) {
    const coll::Dependency& dependency = plan_.dependencies[d];
    const BoundStep& other = steps_[dependency.step];
    // Sends to one peer only keep their order, which `previous` states.
    if (step.kind == StepKind::kSend && other.step.kind == StepKind::kSend) continue;
    const bool whole = dependency.whole || bound.packed || other.packed;
    const uint32_t total = total_chunks();
    const uint32_t shift = total == 0 ? 0 : (bound.first_chunk + total - other.first_chunk) % total;
    dependencies_.push_back({dependency.step, whole, shift});
  }
  bound.dependencies_end = static_cast<uint32_t>(dependencies_.size());
  if (bound.chunks == 1) {
    std::vector<Piece> only;
    compute_pieces(bound, 0, step.buffer, step.blocks.first, &only);
    bound.pieces_begin = static_cast<uint32_t>(fixed_pieces_.size());
    fixed_pieces_.insert(fixed_pieces_.end(), only.begin(), only.end());
    bound.pieces_end = static_cast<uint32_t>(fixed_pieces_.size());
  }
  steps_.push_back(bound);
}

std::vector<Program::Piece> Program::written_output() const {
  std::vector<Piece> written;
  for (const BoundStep& step : steps_) {
    if (step.step.kind != StepKind::kCombine || step.step.buffer != Buffer::kOutput) continue;
    for (int k = 0; k < step.step.blocks.count; ++k) {
      const auto e = layout_.extent(Buffer::kOutput, (step.step.blocks.first + k) % plan_.blocks);
      if (e.count != 0) written.push_back({e.offset, e.count});
    }
  }
  std::sort(written.begin(), written.end(),
            [](const Piece& a, const Piece& b) { return a.offset < b.offset; });
  std::vector<Piece> joined;
  for (const Piece& piece : written) {
    if (!joined.empty() && piece.offset <= joined.back().offset + joined.back().count) {
      const size_t end =
          std::max(joined.back().offset + joined.back().count, piece.offset + piece.count);
      joined.back().count = end - joined.back().offset;
    } else {
      joined.push_back(piece);
    }
  }
  return joined;
}

void Program::compute_pieces(const BoundStep& step, uint32_t chunk, Buffer buffer, int first,
                             std::vector<Piece>* out) const {
  out->clear();
  if (step.packed) {
    for (int k = 0; k < step.step.blocks.count; ++k) {
      const auto e = layout_.extent(buffer, (first + k) % plan_.blocks);
      if (e.count != 0) out->push_back({e.offset, e.count});
    }
    return;
  }
  // Which block holds the chunk: counted from the step's first, without wrapping.
  const std::vector<uint32_t>& before = prefix(step.step.buffer);
  uint32_t within = chunk;
  int k = 0;
  for (;; ++k) {
    const int b = (step.step.blocks.first + k) % plan_.blocks;
    const uint32_t here = before[b + 1] - before[b];
    if (within < here) break;
    within -= here;
  }
  const auto e = layout_.extent(buffer, (first + k) % plan_.blocks);
  const size_t skip = within * chunk_elements_;
  out->push_back({e.offset + skip, std::min(chunk_elements_, e.count - skip)});
}

}  // namespace hetccl::run

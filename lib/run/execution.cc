#include "lib/run/execution.h"

#include <algorithm>

namespace hetccl::run {

using coll::Buffer;
using coll::Operand;
using coll::StepKind;

namespace {

size_t elements_of(std::span<const Program::Piece> pieces) {
  size_t elements = 0;
  for (const auto& p : pieces) elements += p.count;
  return elements;
}

}  // namespace

Execution::Execution(net::Lane* lane, device::Device* device, int ranks, unsigned ahead)
    : lane_(lane), device_(device), ahead_(ahead), straight_run_(lane, device, ranks) {
  for (int peer = 0; lane != nullptr && peer < ranks; ++peer) {
    announces_.push_back(lane->wants_announcements(peer));
  }
}

void Execution::start(const Program& program, const Buffers& buffers, uint64_t signature) {
  program_ = &program;
  std::byte* const work = program.work_in_output() ? buffers.output : buffers.work;
  const Straight* const straight = program.straight();
  straight_ = straight != nullptr && straight_run_.possible();
  if (straight_) {
    straight_steps_ = static_cast<uint32_t>(straight->steps.size());
    return straight_run_.start(
        *straight, program.shape().reduction,
        {const_cast<std::byte*>(buffers.input), buffers.output, work, buffers.temp}, signature);
  }
  buffers_ = buffers;
  buffers_.work = work;
  signature_ = signature;
  first_ = 0;
  mismatched_ = false;
  states_.assign(program.steps().size(), State{});
  announced_.assign(program.plan().operands.size(), 0);
}

Execution::Outcome Execution::poll() {
  if (straight_) {
    const Outcome outcome = straight_run_.poll();
    if (outcome == Outcome::kDone) steps_run_ += straight_steps_;
    return outcome;
  }
  const auto& steps = program_->steps();
  const auto count = static_cast<uint32_t>(steps.size());
  bool moved = false;
  for (uint32_t i = first_; i < count && !mismatched_; ++i) {
    if (states_[i].done == steps[i].chunks) continue;
    moved |= steps[i].step.kind == StepKind::kSend ? advance_send(i) : advance_combine(i);
  }
  if (mismatched_) return Outcome::kMismatch;
  while (first_ < count && states_[first_].done == steps[first_].chunks) {
    ++first_;
    ++steps_run_;
  }
  if (first_ == count) return Outcome::kDone;
  return moved ? Outcome::kMoved : Outcome::kIdle;
}

bool Execution::ready(const Program::BoundStep& step, uint32_t chunk) const {
  const auto& dependencies = program_->dependencies();
  const auto& steps = program_->steps();
  for (uint32_t d = step.dependencies_begin; d < step.dependencies_end; ++d) {
    const auto& dependency = dependencies[d];
    const uint32_t done = states_[dependency.step].done;
    const uint32_t chunks = steps[dependency.step].chunks;
    if (done == chunks) continue;
    if (dependency.whole) return false;
    uint32_t at = chunk + dependency.shift;
    if (at >= program_->total_chunks()) at -= program_->total_chunks();
    if (at < chunks && done <= at) return false;
  }
  return true;
}

bool Execution::advance_send(uint32_t index) {
  const Program::BoundStep& step = program_->steps()[index];
  State& state = states_[index];
  const int peer = step.step.peer;
  if (state.issued == 0) {
    if (step.previous >= 0 &&
        states_[step.previous].issued < program_->steps()[step.previous].chunks) {
      return false;
    }
    state.base = lane_->sends_accepted(peer);
  }
  bool moved = false;
  const std::byte* source = source_of(step.step.buffer);
  const size_t width = program_->width(step.wide);
  while (state.issued < step.chunks && ready(step, state.issued)) {
    wire_.clear();
    for (const auto& p : program_->pieces(step, state.issued, &pieces_))
      wire_.push_back({source + p.offset * width, p.count * width});
    if (!lane_->try_send(peer, wire_, {signature_ ^ step.tag}, step.stable)) break;
    ++state.issued;
    moved = true;
  }
  if (state.issued > state.done) {
    const uint64_t finished = lane_->sends_done(peer);
    const uint64_t ours = finished > state.base ? finished - state.base : 0;
    const auto done = static_cast<uint32_t>(std::min<uint64_t>(ours, state.issued));
    moved |= done != state.done;
    state.done = done;
  }
  return moved;
}

bool Execution::advance_combine(uint32_t index) {
  const Program::BoundStep& step = program_->steps()[index];
  State& state = states_[index];
  announce(index);
  bool moved = false;
  while (state.done < step.chunks && ready(step, state.done)) {
    if (!combine_chunk(step, state.done)) break;
    ++state.done;
    moved = true;
    if (state.done < step.chunks) announce(index);
  }
  return moved;
}

// A plain receive lands where it belongs, once nothing else needs that place.
// Other messages, and those of plans that rely on buffering, land where the
// lane likes, and are announced whatever the step waits for: their senders must
// not wait for what this rank still has to send.
void Execution::announce(uint32_t index) {
  const Program::BoundStep& step = program_->steps()[index];
  const auto& operands = program_->plan().operands;
  const bool plain = step.step.operands_end - step.step.operands_begin == 1 &&
                     !step.step.finalize && program_->shape().unbuffered;
  for (uint32_t o = step.step.operands_begin; o < step.step.operands_end; ++o) {
    const Operand& operand = operands[o];
    if (operand.peer < 0 || !announces_[operand.peer]) continue;
    const bool wide = is_wide(operand);
    const Program::Order before = program_->operand_order()[o];
    if (before.operand >= 0 && announced_[before.operand] < program_->steps()[before.step].chunks) {
      continue;
    }
    while (announced_[o] < step.chunks && announced_[o] < states_[index].done + ahead_ &&
           (!plain || ready(step, announced_[o]))) {
      const auto pieces = program_->pieces(step, announced_[o], &pieces_);
      const size_t width = program_->width(wide);
      std::byte* place = nullptr;
      if (plain && wide == step.wide && pieces.size() == 1) {
        place = target_of(step.step.buffer) + pieces[0].offset * width;
      }
      if (!lane_->try_announce(operand.peer, place, elements_of(pieces) * width, false)) break;
      ++announced_[o];
    }
  }
}

bool Execution::combine_chunk(const Program::BoundStep& step, uint32_t chunk) {
  const auto pieces = program_->pieces(step, chunk, &pieces_);
  if (!take_messages(step, chunk, elements_of(pieces))) return false;
  reduce_pieces(step, chunk, pieces);
  for (uint32_t o = step.step.operands_begin; o < step.step.operands_end; ++o) {
    const int peer = program_->plan().operands[o].peer;
    if (peer >= 0) lane_->release(peer);
  }
  return true;
}

// The messages of all operands, or none while one is missing.
bool Execution::take_messages(const Program::BoundStep& step, uint32_t chunk, size_t elements) {
  const auto& operands = program_->plan().operands;
  messages_.clear();
  for (uint32_t o = step.step.operands_begin; o < step.step.operands_end; ++o) {
    messages_.push_back({});
    const Operand& operand = operands[o];
    if (operand.peer < 0) continue;
    net::Received& message = messages_.back();
    if (announces_[operand.peer] && announced_[o] <= chunk) return false;
    if (!lane_->try_receive(operand.peer, 0, &message)) return false;
    const size_t expected = elements * program_->width(is_wide(operand));
    const uint64_t difference = message.signature ^ signature_;
    if (difference != step.tag || message.bytes != expected) {
      mismatch_ = {operand.peer, expected, message.bytes, step.tag, difference};
      mismatched_ = true;
      return false;
    }
  }
  return true;
}

void Execution::reduce_pieces(const Program::BoundStep& step, uint32_t chunk,
                              std::span<const Program::Piece> pieces) {
  const Shape& shape = program_->shape();
  const auto& operands = program_->plan().operands;
  const size_t width = program_->width(step.wide);
  const bool two_widths = shape.has_wide();
  std::byte* const target = target_of(step.step.buffer);
  const uint32_t begin = step.step.operands_begin, end = step.step.operands_end;
  size_t before = 0;  // elements of the message before this piece
  for (size_t p = 0; p < pieces.size(); ++p) {
    const Program::Piece piece = pieces[p];
    sources_.clear();
    for (uint32_t o = begin; o < end; ++o) {
      const Operand& operand = operands[o];
      const bool wide =
          two_widths && (operand.peer < 0 ? operand.buffer == Buffer::kWork : operand.wide);
      const std::byte* data;
      if (operand.peer >= 0) {
        data = messages_[o - begin].data + before * program_->width(wide);
      } else {
        size_t offset = piece.offset;
        if (operand.first != step.step.blocks.first || operand.buffer != step.step.buffer) {
          offset = program_->pieces(step, chunk, operand, &operand_pieces_)[p].offset;
        }
        data = source_of(operand.buffer) + offset * program_->width(wide);
      }
      sources_.push_back({data, wide});
    }
    std::byte* const place = target + piece.offset * width;
    if (sources_.size() == 1 && !step.step.finalize && sources_[0].wide == step.wide) {
      if (sources_[0].data != place) device_->copy(place, sources_[0].data, piece.count * width);
    } else {
      device_->combine(shape.reduction,
                       {place, step.wide, step.step.finalize, sources_, piece.count});
    }
    before += piece.count;
  }
}

const std::byte* Execution::source_of(Buffer buffer) const {
  return buffer == Buffer::kInput ? buffers_.input : target_of(buffer);
}

std::byte* Execution::target_of(Buffer buffer) const {
  switch (buffer) {
    case Buffer::kOutput:
      return buffers_.output;
    case Buffer::kWork:
      return buffers_.work;
    default:
      return buffers_.temp;
  }
}

// A message that carries accumulators which are told from elements.
bool Execution::is_wide(const Operand& operand) const {
  return operand.wide && program_->shape().has_wide();
}

}  // namespace hetccl::run

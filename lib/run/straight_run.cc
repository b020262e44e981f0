#include "lib/run/straight_run.h"

namespace hetccl::run {

StraightRun::StraightRun(net::Lane* lane, device::Device* device, int ranks) : device_(device) {
  for (int peer = 0; lane != nullptr && peer < ranks; ++peer) {
    pairs_.push_back(lane->shared_pair(peer));
    possible_ &= pairs_.back() != nullptr;
  }
  sources_.resize(static_cast<size_t>(ranks) + 1);
}

void StraightRun::start(const Straight& program, const device::Reduction& reduction,
                        const Bases& bases, uint64_t signature) {
  program_ = &program;
  reduction_ = reduction;
  bases_ = bases;
  signature_ = signature;
  at_ = taken_ = 0;
  mismatched_ = false;
  if (numbers_.size() < program.steps.size()) numbers_.resize(program.steps.size());
  if (sources_.size() < program.operands.size()) sources_.resize(program.operands.size());
}

Outcome StraightRun::poll() {
  const uint32_t before = at_;
  const auto count = static_cast<uint32_t>(program_->steps.size());
  for (; at_ < count; ++at_) {
    const Straight::Step& step = program_->steps[at_];
    if (step.peer >= 0 ? send(step) : combine(step)) continue;
    if (mismatched_) return Outcome::kMismatch;
    return at_ != before ? Outcome::kMoved : Outcome::kIdle;
  }
  for (const uint32_t last : program_->last_sends) {
    if (!is_done(last)) return at_ != before ? Outcome::kMoved : Outcome::kIdle;
  }
  return Outcome::kDone;
}

inline bool StraightRun::send(const Straight::Step& step) {
  const std::byte* const data = bases_[static_cast<size_t>(step.buffer)] + step.offset;
  net::ShmPair* const pair = pairs_[step.peer];
  if (!pair->send(data, step.bytes, {signature_ ^ step.tag}, program_->stable)) return false;
  numbers_[at_] = pair->sends_accepted();
  return true;
}

inline bool StraightRun::combine(const Straight::Step& step) {
  if (!take(step)) return false;
  std::byte* const place = bases_[static_cast<size_t>(step.buffer)] + step.offset;
  if (step.copies) {
    if (sources_[0].data != place) device_->copy(place, sources_[0].data, step.bytes);
  } else {
    device_->combine(reduction_,
                     {place, step.wide, step.finalize, {sources_.data(), taken_}, step.count});
  }
  for (uint32_t o = step.operands_begin; o < step.operands_end; ++o) {
    const int peer = program_->operands[o].peer;
    if (peer >= 0) pairs_[peer]->release();
  }
  taken_ = 0;
  return true;
}

// Looks at the flag alone are seen sooner, and disturb the sender less, than whole polls.
inline bool StraightRun::await(net::ShmPair* pair, net::Received* message) const {
  for (unsigned look = 0; !pair->receive(message); ++look) {
    if (look >= patience_) return false;
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
  }
  return true;
}

// All operands, and the right to write; those that have come stay taken.
inline bool StraightRun::take(const Straight::Step& step) {
  for (uint32_t o = step.operands_begin + taken_; o < step.operands_end; ++o) {
    const Straight::Operand& operand = program_->operands[o];
    const std::byte* data;
    if (operand.peer < 0) {
      data = bases_[static_cast<size_t>(operand.buffer)] + operand.offset;
    } else {
      net::Received message;
      if (!await(pairs_[operand.peer], &message)) return false;
      const uint64_t difference = message.signature ^ signature_;
      if (difference != step.tag || message.bytes != operand.bytes) [[unlikely]] {
        mismatch_ = {operand.peer, operand.bytes, message.bytes, step.tag, difference};
        mismatched_ = true;
        return false;
      }
      data = message.data;
    }
    sources_[taken_++] = {data, operand.wide};
  }
  for (uint32_t w = step.waits_begin; w < step.waits_end; ++w) {
    if (!is_done(program_->waits[w])) return false;
  }
  return true;
}

}  // namespace hetccl::run

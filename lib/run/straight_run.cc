#include "lib/run/straight_run.h"

// These are one loop; as functions of their own they cost a small message a
// tenth of its time.
#define HETCCL_INLINE inline __attribute__((always_inline))

namespace hetccl::run {

StraightRun::StraightRun(net::Lane* lane, device::Device* device, int ranks) : device_(device) {
  for (int peer = 0; lane != nullptr && peer < ranks; ++peer) {
    pairs_.push_back(lane->shared_pair(peer));
    possible_ &= pairs_.back() != nullptr;
  }
  sources_.resize(static_cast<size_t>(ranks) + 1);
  numbers_.resize(Straight::kMostSteps);
}

HETCCL_INLINE bool StraightRun::send(const Straight::Step& step) {
  const std::byte* const data = bases_[static_cast<size_t>(step.buffer)] + step.offset;
  net::ShmPair* const pair = pairs_[step.peer];
  if (!pair->send(data, step.bytes, {signature_ ^ step.tag}, step.stable)) return false;
  if (step.stable) numbers_[&step - program_->steps.data()] = pair->sends_accepted();
  return true;
}

// Looks at the flag alone are seen sooner, and disturb the sender less, than
// whole polls.
HETCCL_INLINE bool StraightRun::await(net::ShmPair* pair, net::Received* message) const {
  for (unsigned look = 0; !pair->receive(message); ++look) {
    if (look >= patience_) return false;
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
  }
  return true;
}

// All operands, and the right to write; those that have come stay taken.
HETCCL_INLINE bool StraightRun::take(const Straight::Step& step) {
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

HETCCL_INLINE bool StraightRun::combine(const Straight::Step& step) {
  if (!take(step)) return false;
  std::byte* const place = bases_[static_cast<size_t>(step.buffer)] + step.offset;
  if (step.copies) {
    if (sources_[0].data != place) device_->copy(place, sources_[0].data, step.bytes);
  } else {
    device_->combine(*reduction_,
                     {place, step.wide, step.finalize, {sources_.data(), taken_}, step.count});
  }
  for (uint32_t o = step.operands_begin; o < step.operands_end; ++o) {
    const int peer = program_->operands[o].peer;
    if (peer >= 0) pairs_[peer]->release();
  }
  taken_ = 0;
  return true;
}

void StraightRun::start(const Straight& program, const device::Reduction& reduction,
                        const Bases& bases, uint64_t signature) {
  program_ = &program;
  reduction_ = &reduction;
  bases_ = bases;
  signature_ = signature;
  at_ = program.steps.data();
  end_ = at_ + program.steps.size();
  taken_ = 0;
  mismatched_ = false;
  while (at_ != end_ && at_->peer >= 0 && send(*at_)) ++at_;
}

Outcome StraightRun::poll() {
  const Straight::Step* const before = at_;
  for (; at_ != end_; ++at_) {
    if (at_->peer >= 0 ? send(*at_) : combine(*at_)) continue;
    if (mismatched_) return Outcome::kMismatch;
    return at_ != before ? Outcome::kMoved : Outcome::kIdle;
  }
  for (const uint32_t last : program_->last_sends) {
    if (!is_done(last)) return at_ != before ? Outcome::kMoved : Outcome::kIdle;
  }
  return Outcome::kDone;
}

}  // namespace hetccl::run

#include "lib/native_turn.h"

#include <atomic>

#include "lib/base/log.h"

namespace hetccl {

Result<NativeTurn> NativeTurn::take(device::Accelerator* accelerator, hetcclStream_t stream) {
  NativeTurn turn;
  turn.accelerator_ = accelerator;
  auto queue = accelerator->adopt(stream);
  if (!queue.ok()) return queue.status();
  turn.queue_ = std::move(*queue);
  auto event = accelerator->make_event();
  if (!event.ok()) return event.status();
  turn.event_ = std::move(*event);
  if (Status s = turn.queue_->record(turn.event_.get()); !s.ok()) return s;
  if (!accelerator->abilities().gate) {
    static std::atomic<bool> said{false};
    if (!said.exchange(true)) {
      log::warn(accelerator->description() +
                " cannot keep a stream waiting for the host; calls in its streams return when "
                "they are complete");
    }
    return turn;
  }
  auto gate = turn.queue_->hold();
  if (!gate.ok()) return gate.status();
  turn.gate_ = std::move(*gate);
  return turn;
}

Result<bool> NativeTurn::has_come() {
  if (event_ == nullptr) return true;
  return accelerator_->done(*event_);
}

void NativeTurn::end() {
  if (gate_ != nullptr) gate_->open();
  gate_.reset();
}

}  // namespace hetccl

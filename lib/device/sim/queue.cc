#include "lib/device/sim/queue.h"

#include <string>

namespace hetccl::device::sim {

Result<bool> SimEvent::done() const {
  if (moment_ == nullptr) return true;
  if (moment_->done.load(std::memory_order_acquire)) {
    if (!moment_->error.ok()) return moment_->error;
    return true;
  }
  if (device_.is_lost.load(std::memory_order_acquire)) return device_.lost;
  return false;
}

Status SimQueue::copy(void* destination, const void* source, size_t bytes) {
  if (bytes == 0) return scheduler_.error_of(*stream_);
  for (const void* end : {static_cast<const void*>(destination), source}) {
    if (end != nullptr && !MemorySpace::is_foreign(end, &memory_)) continue;
    return invalid_argument(
        stream_->device->name + ": copying " + std::to_string(bytes) +
        " bytes: " + (end == nullptr ? "a null pointer" : "memory of another vendor"));
  }
  const bool to_device = memory_.is_device(destination), from_device = memory_.is_device(source);
  Work work;
  work.what = Work::What::kCopy;
  work.stage = to_device && from_device ? SimOptions::kDeviceToDevice
               : from_device            ? SimOptions::kDeviceToHost
                                        : SimOptions::kHostToDevice;
  work.destination = destination;
  work.source = source;
  work.bytes = bytes;
  work.plain_host = (!to_device && !memory_.is_registered(destination, bytes)) ||
                    (!from_device && !memory_.is_registered(source, bytes));
  const bool waits = work.plain_host;
  Status s = scheduler_.submit(stream_, std::move(work));
  if (!s.ok() || !waits) return s;
  const auto end = std::make_shared<Moment>();
  s = mark(end);
  return s.ok() ? scheduler_.wait_for(end) : s;
}

Status SimQueue::combine(const Reduction& reduction, const Combine& what) {
  if (!is_valid(reduction.type) || !is_builtin(reduction.op) ||
      !supports(reduction.type, reduction.op) || what.sources.empty()) {
    return invalid_argument(stream_->device->name +
                            ": combining: no such operator for the type, or no source");
  }
  if (what.count == 0) return scheduler_.error_of(*stream_);
  Work work;
  work.what = Work::What::kCombine;
  work.stage = SimOptions::kCompute;
  work.reduction = reduction;
  work.combine = what;
  work.combine.sources = {};
  work.sources.assign(what.sources.begin(), what.sources.end());
  for (const Source& source : what.sources) {
    work.bytes += what.count * (source.wide ? accumulator_size(reduction.type, reduction.op)
                                            : size_of(reduction.type));
  }
  return scheduler_.submit(stream_, std::move(work));
}

Status SimQueue::mark(const MomentPointer& moment) {
  Work work;
  work.what = Work::What::kRecord;
  work.moment = moment;
  return scheduler_.submit(stream_, std::move(work));
}

Status SimQueue::record(Event* event) {
  const auto moment = std::make_shared<Moment>();
  auto* ours = static_cast<SimEvent*>(event);
  if (ours->scheduler() != &scheduler_) {
    return invalid_argument(stream_->device->name + ": recording an event of another vendor");
  }
  ours->set(moment);
  return mark(moment);
}

Status SimQueue::wait(const Event& event) {
  const auto& ours = static_cast<const SimEvent&>(event);
  if (ours.scheduler() != &scheduler_) {
    return invalid_argument(stream_->device->name + ": waiting for an event of another vendor");
  }
  if (ours.moment() == nullptr) return scheduler_.error_of(*stream_);
  Work work;
  work.what = Work::What::kWait;
  work.moment = ours.moment();
  return scheduler_.submit(stream_, std::move(work));
}

Result<std::unique_ptr<Gate>> SimQueue::hold() {
  if (!options().gate) {
    return invalid_usage(stream_->device->name +
                         ": streams of this device cannot be held (HETCCL_SIM=gate=off)");
  }
  Work work;
  work.what = Work::What::kWait;
  work.moment = std::make_shared<Moment>();
  auto gate = std::make_unique<SimGate>(&scheduler_, work.moment);
  if (Status s = scheduler_.submit(stream_, std::move(work)); !s.ok()) return s;
  return std::unique_ptr<Gate>(std::move(gate));
}

Result<bool> SimQueue::idle() {
  // Pending first: what has failed says so before it is no longer pending.
  const bool idle = stream_->pending.load(std::memory_order_acquire) == 0;
  if (Status s = scheduler_.error_of(*stream_); !s.ok()) return s;
  return idle;
}

Status SimQueue::synchronize() {
  const auto end = std::make_shared<Moment>();
  if (Status s = mark(end); !s.ok()) return s;
  if (Status s = scheduler_.wait_for(end); !s.ok()) return s;
  return scheduler_.error_of(*stream_);
}

}  // namespace hetccl::device::sim

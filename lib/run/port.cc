#include "lib/run/port.h"

#include <algorithm>

namespace hetccl::run {

Port::Port(device::Accelerator* accelerator, size_t slot_bytes)
    : accelerator_(accelerator),
      slot_bytes_(slot_bytes),
      description_(accelerator->description()) {}

Result<std::unique_ptr<Port>> Port::open(device::Accelerator* accelerator, size_t slot_bytes) {
  std::unique_ptr<Port> port(new Port(accelerator, slot_bytes));
  for (auto* queue : {&port->in_, &port->out_, &port->compute_}) {
    auto made = accelerator->make_queue();
    if (!made.ok()) return made.status();
    *queue = std::move(*made);
  }
  return port;
}

Port::~Port() {
  synchronize();
  in_.reset();
  out_.reset();
  compute_.reset();
  // A device that is lost cannot take its memory back either.
  for (void* memory : allocations_) (void)accelerator_->free(memory).ok();
}

bool Port::check(const Status& status) {
  if (status_.ok() && !status.ok()) status_ = status;
  return status_.ok();
}

void Port::copy(void* destination, const void* source, size_t bytes) {
  if (destination == source || bytes == 0 || !status_.ok()) return;
  given_ = true;
  check(compute_->copy(destination, source, bytes));
}

void Port::combine(const device::Reduction& reduction, const device::Combine& what) {
  if (what.count == 0 || !status_.ok()) return;
  given_ = true;
  check(compute_->combine(reduction, what));
}

Port::Mark Port::record(device::Queue* queue) {
  std::unique_ptr<device::Event> event;
  if (events_->free.empty()) {
    auto made = accelerator_->make_event();
    if (!made.ok()) {
      check(made.status());
      return nullptr;
    }
    event = std::move(*made);
  } else {
    event = std::move(events_->free.back());
    events_->free.pop_back();
  }
  check(queue->record(event.get()));
  return {event.release(), [events = events_](device::Event* e) { events->free.emplace_back(e); }};
}

Port::Mark Port::mark() {
  if (given_) {
    given_ = false;
    mark_ = record(compute_.get());
  }
  return mark_;
}

void Port::wait(const Mark& mark) {
  given_ = true;
  if (mark != nullptr && status_.ok()) check(compute_->wait(*mark));
}

bool Port::passed(const Mark& mark) {
  if (mark == nullptr) return true;
  Result<bool> done = accelerator_->done(*mark);
  if (!done.ok()) {
    check(done.status());
    return false;
  }
  return *done;
}

Port::Mark Port::copy_in(void* device, const void* host, size_t bytes, const Mark& after) {
  if (!status_.ok()) return nullptr;
  if (after != nullptr && !check(in_->wait(*after))) return nullptr;
  if (!check(in_->copy(device, host, bytes))) return nullptr;
  return record(in_.get());
}

Port::Mark Port::copy_out(void* host, const std::vector<Part>& parts, const Mark& after) {
  if (!status_.ok()) return nullptr;
  if (after != nullptr && !check(out_->wait(*after))) return nullptr;
  auto* to = static_cast<std::byte*>(host);
  for (const Part& part : parts) {
    if (!check(out_->copy(to, part.device, part.bytes))) return nullptr;
    to += part.bytes;
  }
  return record(out_.get());
}

std::byte* Port::allocate(size_t bytes) {
  if (!status_.ok()) return nullptr;
  Result<void*> memory = accelerator_->allocate(bytes);
  if (!memory.ok()) {
    check(memory.status());
    return nullptr;
  }
  allocations_.push_back(*memory);
  return static_cast<std::byte*>(*memory);
}

std::byte* Port::take_slot(bool grow, Mark* free_after) {
  // The one that waits longest has most likely been read.
  if (!slots_.empty()) {
    const Slot slot = slots_.front();
    slots_.erase(slots_.begin());
    *free_after = slot.free_after;
    return slot.memory;
  }
  *free_after = nullptr;
  return grow ? allocate(slot_bytes_) : nullptr;
}

void Port::give_slot(std::byte* slot) { slots_.push_back({slot, mark()}); }

std::byte* Port::reserve(Scratch* scratch, size_t bytes) {
  if (bytes > scratch->bytes) {
    if (scratch->memory != nullptr) {
      synchronize();
      allocations_.erase(std::find(allocations_.begin(), allocations_.end(), scratch->memory));
      check(accelerator_->free(scratch->memory));
    }
    scratch->memory = allocate(bytes);
    scratch->bytes = scratch->memory != nullptr ? bytes : 0;
  }
  return scratch->memory;
}

bool Port::idle() {
  for (device::Queue* queue : {in_.get(), out_.get(), compute_.get()}) {
    Result<bool> idle = queue->idle();
    if (!idle.ok()) {
      check(idle.status());
      return true;
    }
    if (!*idle) return false;
  }
  return true;
}

void Port::synchronize() {
  for (device::Queue* queue : {in_.get(), out_.get(), compute_.get()}) {
    if (queue != nullptr) check(queue->synchronize());
  }
}

}  // namespace hetccl::run

// What the library is given of streams and moments: queues, events and gates.
//
// Thread rule: as lib/device/accelerator.h.
#pragma once

#include <memory>

#include "lib/device/sim/engine.h"

namespace hetccl::device::sim {

class SimEvent final : public Event {
 public:
  SimEvent(Scheduler* scheduler, SimDevice* device) : scheduler_(*scheduler), device_(*device) {}
  const Scheduler* scheduler() const { return &scheduler_; }
  // Null: never recorded.
  const MomentPointer& moment() const { return moment_; }
  void set(MomentPointer moment) { moment_ = std::move(moment); }
  Result<bool> done() const;

 private:
  Scheduler& scheduler_;
  SimDevice& device_;
  MomentPointer moment_;
};

class SimGate final : public Gate {
 public:
  SimGate(Scheduler* scheduler, MomentPointer moment)
      : scheduler_(*scheduler), moment_(std::move(moment)) {}
  ~SimGate() override { open(); }
  void open() override { scheduler_.complete(moment_); }

 private:
  Scheduler& scheduler_;
  const MomentPointer moment_;
};

class SimQueue final : public Queue {
 public:
  SimQueue(Scheduler* scheduler, MemorySpace* memory, StreamPointer stream)
      : scheduler_(*scheduler), memory_(*memory), stream_(std::move(stream)) {}

  Status copy(void* destination, const void* source, size_t bytes) override;
  Status combine(const Reduction& reduction, const Combine& what) override;
  Status record(Event* event) override;
  Status wait(const Event& event) override;
  Result<std::unique_ptr<Gate>> hold() override;
  Result<bool> idle() override;
  Status synchronize() override;

 private:
  // Records a moment, which is done after all that was given so far.
  Status mark(const MomentPointer& moment);

  Scheduler& scheduler_;
  MemorySpace& memory_;
  const StreamPointer stream_;
};

}  // namespace hetccl::device::sim

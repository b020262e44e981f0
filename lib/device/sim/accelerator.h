// One simulated device, and the vendor's devices together.
//
// Thread rule: any thread.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "lib/device/sim/queue.h"
#include "lib/device/sim/shared_memory.h"

namespace hetccl::device::sim {

class SimBackend;

class SimAccelerator final : public Accelerator {
 public:
  SimAccelerator(SimBackend* backend, int ordinal);

  Kind kind() const override;
  int ordinal() const override { return device_.ordinal; }
  std::string description() const override { return device_.name + " simulated"; }
  Abilities abilities() const override;
  std::string identity() const override { return device_.name; }

  Result<void*> allocate(size_t bytes) override;
  Status free(void* memory) override;
  Result<void*> allocate_host(size_t bytes) override;
  Status free_host(void* memory) override;
  Status register_host(void* memory, size_t bytes) override;
  Status unregister_host(void* memory) override;

  Result<std::unique_ptr<Queue>> make_queue() override;
  Result<std::unique_ptr<Event>> make_event() override;
  Result<bool> done(const Event& event) override;

  Result<std::unique_ptr<Queue>> adopt(hetcclStream_t stream) override;
  Result<hetcclStream_t> make_stream() override;
  Status destroy_stream(hetcclStream_t stream) override;

  Result<std::string> export_memory(const void* memory) override;
  Result<void*> import_memory(const std::string& handle) override;
  Status close_memory(void* memory) override;

  void* network_address(void* memory) override;

 private:
  Status check_alive() const;
  std::unique_ptr<Queue> queue_of(StreamPointer stream);

  SimBackend& backend_;
  SimDevice device_;
  StreamPointer default_stream_;
};

class SimBackend final : public Backend {
 public:
  static Result<Backend*> make(Kind kind);

  Kind kind() const override { return kind_; }
  std::string description() const override;
  int devices() const override { return static_cast<int>(accelerators_.size()); }
  Result<Accelerator*> device(int ordinal) override;
  int current_device() override;
  Memory query(const void* pointer) override { return memory_.query(pointer); }

  MemorySpace& memory() { return memory_; }
  SharedMemory& shared() { return shared_; }
  Scheduler& scheduler() { return scheduler_; }
  // As a vendor's runtime once it has a context.
  void use() { in_use_.store(true, std::memory_order_relaxed); }

 private:
  SimBackend(Kind kind, MemorySpace* memory, int devices);

  const Kind kind_;
  MemorySpace& memory_;
  SharedMemory shared_;
  Scheduler scheduler_;
  std::vector<std::unique_ptr<SimAccelerator>> accelerators_;
  std::atomic<bool> in_use_ = false;
};

}  // namespace hetccl::device::sim

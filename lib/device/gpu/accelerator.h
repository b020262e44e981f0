// One GPU of a vendor's.
//
// Thread rule: as lib/device/accelerator.h.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "lib/device/gpu/queue.h"
#include "lib/device/gpu/registrations.h"
#include "lib/device/gpu/shared_memory.h"

namespace hetccl::device::gpu {

class GpuAccelerator final : public Accelerator {
 public:
  // `registrations` and `max_blocks` belong to the back end, which outlives its devices.
  static Result<std::unique_ptr<GpuAccelerator>> open(int ordinal, Registrations* registrations,
                                                      const std::atomic<int>* max_blocks);
  // Lets kernels of this device reach memory of the other, where the machine can.
  void enable_peer(const GpuAccelerator& other);

  Kind kind() const override { return vendor::kKind; }
  int ordinal() const override { return parts_.ordinal; }
  std::string description() const override { return description_; }
  Abilities abilities() const override { return {true, true, parts_.gates}; }
  std::string identity() const override;

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

  void* network_address(void* memory) override { return memory; }
  Status with_current(const std::function<Status()>& what) override;

 private:
  GpuAccelerator(int ordinal, Registrations* registrations, const std::atomic<int>* max_blocks);

  QueueParts parts_;
  Registrations& registrations_;
  SharedMemory shared_;
  std::string description_;
};

}  // namespace hetccl::device::gpu

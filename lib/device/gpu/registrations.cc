#include "lib/device/gpu/registrations.h"

namespace hetccl::device::gpu {
namespace {

bool is_registered(const void* memory) {
  return vendor::query(memory).place == Memory::Place::kRegisteredHost;
}

}  // namespace

Status Registrations::add(int ordinal, void* memory, size_t bytes) {
  if (memory == nullptr || bytes == 0) {
    return invalid_argument("host memory to register is empty: pass its address and size");
  }
  const std::lock_guard lock(mutex_);
  if (const auto known = entries_.find(memory); known != entries_.end()) {
    if (bytes <= known->second.bytes) {
      ++known->second.count;
      return {};
    }
    return invalid_argument("host memory is registered already, with fewer bytes (" +
                            std::to_string(known->second.bytes) + " of " + std::to_string(bytes) +
                            "); unregister it first");
  }
  const vendor::Error error =
      on(ordinal, [&] { return GPU(HostRegister)(memory, bytes, vendor::kRegisterFlags); });
  const bool there = error == GPU(ErrorHostMemoryAlreadyRegistered);
  if (error != GPU(Success)) {
    // The vendor says so too where only a part is registered.
    const Status s =
        failure(error, ordinal, "registering " + std::to_string(bytes) + " bytes of host memory");
    const char* last = static_cast<const char*>(memory) + bytes - 1;
    if (!there || !is_registered(memory) || !is_registered(last)) return s;
  }
  entries_.emplace(memory, Entry{bytes, 1, !there});
  return {};
}

Status Registrations::remove(int ordinal, void* memory) {
  const std::lock_guard lock(mutex_);
  const auto known = entries_.find(memory);
  if (known == entries_.end()) {
    return invalid_argument("host memory to unregister was not registered here");
  }
  if (--known->second.count > 0) return {};
  const bool own = known->second.own;
  entries_.erase(known);
  if (!own) return {};
  return check(on(ordinal, [&] { return GPU(HostUnregister)(memory); }), ordinal,
               "unregistering host memory");
}

}  // namespace hetccl::device::gpu

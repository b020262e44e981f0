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
  void* mapped = memory;
  const vendor::Error mapping =
      on(ordinal, [&] { return GPU(HostGetDevicePointer)(&mapped, memory, 0); });
  if (mapping != GPU(Success)) {
    const Status s = failure(mapping, ordinal, "mapping registered host memory");
    if (!there) (void)on(ordinal, [&] { return GPU(HostUnregister)(memory); });
    return s;
  }
  const ptrdiff_t elsewhere = static_cast<char*>(mapped) - static_cast<char*>(memory);
  if (elsewhere != 0) ++moved_;
  entries_.emplace(memory, Entry{bytes, 1, !there, elsewhere});
  return {};
}

const void* Registrations::device_address(const void* pointer) {
  if (moved_.load(std::memory_order_acquire) == 0) return pointer;
  const std::lock_guard lock(mutex_);
  auto entry = entries_.upper_bound(const_cast<void*>(pointer));
  if (entry == entries_.begin()) return pointer;
  --entry;
  const char* address = static_cast<const char*>(pointer);
  const bool inside = address < static_cast<char*>(entry->first) + entry->second.bytes;
  return inside ? address + entry->second.elsewhere : pointer;
}

Status Registrations::remove(int ordinal, void* memory) {
  const std::lock_guard lock(mutex_);
  const auto known = entries_.find(memory);
  if (known == entries_.end()) {
    return invalid_argument("host memory to unregister was not registered here");
  }
  if (--known->second.count > 0) return {};
  const bool own = known->second.own;
  if (known->second.elsewhere != 0) --moved_;
  entries_.erase(known);
  if (!own) return {};
  return check(on(ordinal, [&] { return GPU(HostUnregister)(memory); }), ordinal,
               "unregistering host memory");
}

}  // namespace hetccl::device::gpu

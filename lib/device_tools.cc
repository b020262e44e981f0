#include "lib/device_tools.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "lib/device/sim/sim.h"
#include "lib/introspect.h"
#include "lib/last_error.h"

using hetccl::guarded;
using hetccl::Status;

namespace hetccl {

Result<device::Accelerator*> device_of(hetcclMemoryKind_t kind, int ordinal) {
  auto found = device::backend(kind);
  if (!found.ok()) return found.status();
  if (ordinal < 0) ordinal = std::max(0, (*found)->current_device());
  return (*found)->device(ordinal);
}

Status allocate_on_device(hetcclMemoryKind_t kind, int ordinal, size_t bytes, void** memory) {
  auto device = device_of(kind, ordinal);
  if (!device.ok()) return device.status();
  auto made = (*device)->allocate(bytes);
  if (!made.ok()) return made.status();
  *memory = *made;
  return {};
}

namespace {

Status copy_by(device::Accelerator* device, void* to, const void* from, size_t bytes) {
  auto queue = device->make_queue();
  if (!queue.ok()) return queue.status();
  if (Status s = (*queue)->copy(to, from, bytes); !s.ok()) return s;
  return (*queue)->synchronize();
}

Result<std::unique_ptr<device::Queue>> queue_of(hetcclMemoryKind_t kind, int ordinal,
                                                hetcclStream_t stream) {
  auto device = device_of(kind, ordinal);
  if (!device.ok()) return device.status();
  return (*device)->adopt(stream);
}

Status check_output(const void* output) {
  return output != nullptr ? Status() : invalid_argument("the pointer to the result is NULL");
}

std::string describe_devices() {
  nlohmann::json kinds = nlohmann::json::array();
  for (auto kind : {hetcclMemoryCuda, hetcclMemoryHip, hetcclMemorySimCuda, hetcclMemorySimHip}) {
    nlohmann::json entry{{"kind", device::name_of(kind)}};
    auto found = device::backend(kind);
    if (!found.ok()) {
      entry["absent"] = found.status().message();
    } else {
      entry["back_end"] = (*found)->description();
      entry["devices"] = nlohmann::json::array();
      for (int k = 0; k < (*found)->devices(); ++k) {
        auto device = (*found)->device(k);
        entry["devices"].push_back(device.ok() ? (*device)->description()
                                               : device.status().message());
      }
    }
    kinds.push_back(entry);
  }
  return kinds.dump();
}

}  // namespace

Status copy_anywhere(void* to, const void* from, size_t bytes) {
  device::Memory unused;
  auto to_device = device::owner_of(to, &unused);
  if (!to_device.ok()) return to_device.status();
  auto from_device = device::owner_of(from, &unused);
  if (!from_device.ok()) return from_device.status();
  if (*to_device == nullptr && *from_device == nullptr) {
    std::memmove(to, from, bytes);
    return {};
  }
  if (*to_device == nullptr) return copy_by(*from_device, to, from, bytes);
  if (*from_device == nullptr || *from_device == *to_device) {
    return copy_by(*to_device, to, from, bytes);
  }
  std::vector<std::byte> between(bytes);
  if (Status s = copy_by(*from_device, between.data(), from, bytes); !s.ok()) return s;
  return copy_by(*to_device, to, between.data(), bytes);
}

}  // namespace hetccl

extern "C" {

const char* hetcclInternalDevices(void) { return hetccl::keep_text(hetccl::describe_devices); }

hetcclResult_t hetcclInternalMemAllocOn(hetcclMemoryKind_t kind, int device, size_t bytes,
                                        void** ptr) {
  return guarded([&]() -> Status {
    if (Status s = hetccl::check_output(ptr); !s.ok()) return s;
    return hetccl::allocate_on_device(kind, device, bytes, ptr);
  });
}

hetcclResult_t hetcclInternalCopy(void* to, const void* from, size_t bytes) {
  return guarded([&]() -> Status { return hetccl::copy_anywhere(to, from, bytes); });
}

hetcclResult_t hetcclInternalStreamCreate(hetcclMemoryKind_t kind, int device,
                                          hetcclStream_t* stream) {
  return guarded([&]() -> Status {
    if (Status s = hetccl::check_output(stream); !s.ok()) return s;
    auto found = hetccl::device_of(kind, device);
    if (!found.ok()) return found.status();
    auto made = (*found)->make_stream();
    if (!made.ok()) return made.status();
    *stream = *made;
    return {};
  });
}

hetcclResult_t hetcclInternalStreamDestroy(hetcclMemoryKind_t kind, int device,
                                           hetcclStream_t stream) {
  return guarded([&]() -> Status {
    auto found = hetccl::device_of(kind, device);
    return found.ok() ? (*found)->destroy_stream(stream) : found.status();
  });
}

hetcclResult_t hetcclInternalStreamSynchronize(hetcclMemoryKind_t kind, int device,
                                               hetcclStream_t stream) {
  return guarded([&]() -> Status {
    auto queue = hetccl::queue_of(kind, device, stream);
    return queue.ok() ? (*queue)->synchronize() : queue.status();
  });
}

hetcclResult_t hetcclInternalStreamCopy(hetcclMemoryKind_t kind, int device, hetcclStream_t stream,
                                        void* to, const void* from, size_t bytes) {
  return guarded([&]() -> Status {
    auto queue = hetccl::queue_of(kind, device, stream);
    return queue.ok() ? (*queue)->copy(to, from, bytes) : queue.status();
  });
}

hetcclResult_t hetcclInternalHostAlloc(hetcclMemoryKind_t kind, int device, size_t bytes,
                                       void** ptr) {
  return guarded([&]() -> Status {
    if (Status s = hetccl::check_output(ptr); !s.ok()) return s;
    auto found = hetccl::device_of(kind, device);
    if (!found.ok()) return found.status();
    auto made = (*found)->allocate_host(bytes);
    if (!made.ok()) return made.status();
    *ptr = *made;
    return {};
  });
}

hetcclResult_t hetcclInternalHostFree(hetcclMemoryKind_t kind, int device, void* ptr) {
  return guarded([&]() -> Status {
    auto found = hetccl::device_of(kind, device);
    return found.ok() ? (*found)->free_host(ptr) : found.status();
  });
}

hetcclResult_t hetcclInternalSimSetDevice(hetcclMemoryKind_t kind, int device) {
  return hetccl::report(hetccl::device::set_current_device(kind, device));
}

hetcclResult_t hetcclInternalSimCapture(hetcclStream_t stream, int capturing) {
  return hetccl::report(hetccl::device::set_capturing(stream, capturing != 0));
}

}  // extern "C"

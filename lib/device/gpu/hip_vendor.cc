// HIP: the program and this back end share one runtime, so its current device is saved and restored
// as any program would.
#include <link.h>

#include <cstring>
#include <set>

#include "lib/device/gpu/vendor.h"

namespace hetccl::device::vendor {
namespace {

// Two runtimes of different ROCm releases in one process know nothing of each other's memory.
int count_runtimes(dl_phdr_info* info, size_t, void* found) {
  const char* slash = std::strrchr(info->dlpi_name, '/');
  const char* name = slash != nullptr ? slash + 1 : info->dlpi_name;
  if (std::strncmp(name, "libamdhip64.so", 14) == 0) {
    static_cast<std::set<std::string>*>(found)->insert(info->dlpi_name);
  }
  return 0;
}

}  // namespace

bool start(int* devices, std::string* why) {
  std::set<std::string> runtimes;
  dl_iterate_phdr(count_runtimes, &runtimes);
  if (runtimes.size() > 1) {
    *why = "this process has several HIP runtimes:";
    for (const std::string& path : runtimes) *why += " " + path;
    *why += "; build hetccl with the ROCm release that the program uses";
    return false;
  }
  const Error error = hipGetDeviceCount(devices);
  if (error == hipSuccess && *devices > 0) return true;
  (void)hipGetLastError();
  if (error == hipSuccess || error == hipErrorNoDevice) {
    *why =
        "no AMD GPU is visible, or no driver (amdgpu, /dev/kfd); check rocminfo, "
        "HIP_VISIBLE_DEVICES and the permission to open /dev/kfd";
  } else if (error == hipErrorInsufficientDriver) {
    *why = "the AMD driver is older than the ROCm that is installed; update the driver";
  } else {
    *why = std::string("HIP does not start: ") + hipGetErrorName(error) + ": " +
           hipGetErrorString(error) + "; check rocminfo";
  }
  return false;
}

Error open_device(int) { return hipSuccess; }

Current::Current(int ordinal) {
  error_ = hipGetDevice(&previous_);
  if (error_ == hipSuccess && previous_ != ordinal) {
    error_ = hipSetDevice(ordinal);
    changed_ = error_ == hipSuccess;
  }
  if (error_ == hipSuccess) error_ = hipThreadExchangeStreamCaptureMode(&mode_);
}

Current::~Current() {
  if (error_ == hipSuccess) (void)hipThreadExchangeStreamCaptureMode(&mode_);
  if (changed_) (void)hipSetDevice(previous_);
}

int current_device() {
  int ordinal = -1;
  if (hipGetDevice(&ordinal) == hipSuccess) return ordinal;
  (void)hipGetLastError();
  return -1;
}

Memory query(const void* pointer) {
  Memory memory;
  hipPointerAttribute_t attributes = {};
  // The answer to plain host memory is an error up to HIP 5.
  if (hipPointerGetAttributes(&attributes, pointer) != hipSuccess) {
    (void)hipGetLastError();
    return memory;
  }
#if HIP_VERSION_MAJOR >= 6
  const auto type = attributes.type;
#else
  const auto type = attributes.memoryType;
#endif
  if (attributes.isManaged != 0) {
    memory.place = Memory::Place::kManaged;
    memory.ordinal = attributes.device;
  } else if (type == hipMemoryTypeHost) {
    memory.place = Memory::Place::kRegisteredHost;
  } else if (type == hipMemoryTypeDevice) {
    memory.place = Memory::Place::kDevice;
    memory.ordinal = attributes.device;
    auto* const address = const_cast<void*>(pointer);
    hipDeviceptr_t base = nullptr;
    if (hipMemGetAddressRange(&base, &memory.bytes, address) == hipSuccess) {
      memory.base = base;
    } else {
      (void)hipGetLastError();
      memory.bytes = 0;
    }
    unsigned id = 0;
    if (hipPointerGetAttribute(&id, HIP_POINTER_ATTRIBUTE_BUFFER_ID, address) == hipSuccess) {
      memory.id = id;
    } else {
      (void)hipGetLastError();
    }
  }
  return memory;
}

std::string device_name(int ordinal) {
  hipDeviceProp_t properties;
  if (hipGetDeviceProperties(&properties, ordinal) != hipSuccess) {
    (void)hipGetLastError();
    return "unknown device";
  }
  std::string arch = properties.gcnArchName;  // "gfx90a:sramecc+:xnack-"
  arch.resize(std::min(arch.size(), arch.find(':')));
  return std::string(properties.name) + " (" + arch + ")";
}

bool native_stream(hetcclStream_t stream, Stream* native) {
  *native = stream == reinterpret_cast<hetcclStream_t>(1) ? nullptr : static_cast<Stream>(stream);
  return *native != hipStreamPerThread;
}

Error stream_device(Stream stream, int* ordinal) {
#if HIP_VERSION_MAJOR >= 6
  hipDevice_t device = -1;
  const Error error = hipStreamGetDevice(stream, &device);
  *ordinal = device;
  return error;
#else
  *ordinal = -1;
  unsigned flags;
  return hipStreamGetFlags(stream, &flags);
#endif
}

Error make_flags(void** flags, size_t* count) {
  *count = 1;
  const Error error = hipExtMallocWithFlags(flags, kFlagStride, hipMallocSignalMemory);
  if (error == hipSuccess) *static_cast<uint64_t*>(*flags) = 0;
  return error;
}

Error wait_flag(Stream stream, void* flag, uint32_t value) {
  return hipStreamWaitValue32(stream, flag, value, hipStreamWaitValueGte, 0xFFFFFFFFu);
}

bool can_wait_flags(int ordinal) {
  int can = 0;
  const Error error = hipDeviceGetAttribute(&can, hipDeviceAttributeCanUseStreamWaitValue, ordinal);
  if (error != hipSuccess) (void)hipGetLastError();
  return error == hipSuccess && can != 0;
}

}  // namespace hetccl::device::vendor

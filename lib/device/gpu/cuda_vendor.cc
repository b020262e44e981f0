// CUDA: what the runtime cannot do, or only with side effects, is asked of the driver, which is
// looked up in the process and never linked.
//
// The program's own CUDA runtime and the one linked in here share contexts, streams and memory, but
// each remembers a current device of its own, and setting one makes a context on it. So contexts
// are pushed and popped with the driver: afterwards the thread is exactly as before.
#include <cuda.h>
#include <dlfcn.h>

#include <atomic>
#include <vector>

#include "lib/device/gpu/vendor.h"

namespace hetccl::device::vendor {
namespace {

struct Driver {
  decltype(&cuInit) init;
  decltype(&cuCtxGetCurrent) context;
  decltype(&cuCtxGetDevice) context_device;
  decltype(&cuCtxPushCurrent) push;
  decltype(&cuCtxPopCurrent) pop;
  decltype(&cuDeviceGet) device;
  decltype(&cuDevicePrimaryCtxRetain) retain_primary;
  decltype(&cuDevicePrimaryCtxGetState) primary_state;
  decltype(&cuPointerGetAttributes) pointer_attributes;
  decltype(&cuStreamGetCtx) stream_context;
  decltype(&cuStreamWaitValue32) wait_value;
};
Driver driver;

constexpr int kMostDevices = 256;
std::atomic<CUcontext> primaries[kMostDevices];  // of open devices

template <typename F>
bool find(void* library, const char* name, F* function) {
  *function = reinterpret_cast<F>(dlsym(library, name));
  return *function != nullptr;
}

// Below 1000 the runtime's and the driver's numbers mean the same, except a few of the runtime's
// own, which the driver never returns.
Error runtime_error(CUresult result) { return static_cast<Error>(result); }

bool find_driver(std::string* why) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    *why = "no NVIDIA driver on this machine (libcuda.so.1: not found); install the driver";
    return false;
  }
  // The names with _v2 are those that cuda.h gives to the plain ones.
  if (find(library, "cuInit", &driver.init) && find(library, "cuCtxGetCurrent", &driver.context) &&
      find(library, "cuCtxGetDevice", &driver.context_device) &&
      find(library, "cuCtxPushCurrent_v2", &driver.push) &&
      find(library, "cuCtxPopCurrent_v2", &driver.pop) &&
      find(library, "cuDeviceGet", &driver.device) &&
      find(library, "cuDevicePrimaryCtxRetain", &driver.retain_primary) &&
      find(library, "cuDevicePrimaryCtxGetState", &driver.primary_state) &&
      find(library, "cuPointerGetAttributes", &driver.pointer_attributes) &&
      find(library, "cuStreamGetCtx", &driver.stream_context) &&
      find(library, "cuStreamWaitValue32_v2", &driver.wait_value)) {
    return true;
  }
  const char* missing = dlerror();
  *why = "the NVIDIA driver is too old (" + std::string(missing != nullptr ? missing : "?") +
         "); update the driver";
  return false;
}

}  // namespace

bool start(int* devices, std::string* why) {
  if (!find_driver(why)) return false;
  const Error error = cudaGetDeviceCount(devices);
  if (error == cudaSuccess && *devices > kMostDevices) *devices = kMostDevices;
  if (error == cudaSuccess && *devices > 0) return true;
  (void)cudaGetLastError();
  if (error == cudaSuccess || error == cudaErrorNoDevice) {
    *why = "no NVIDIA GPU is visible; check nvidia-smi and CUDA_VISIBLE_DEVICES";
  } else if (error == cudaErrorInsufficientDriver) {
    *why = "the NVIDIA driver is older than CUDA " + std::to_string(CUDART_VERSION / 1000) + "." +
           std::to_string(CUDART_VERSION % 1000 / 10) +
           ", which this back end was built with; update the driver";
  } else {
    *why = std::string("CUDA does not start: ") + cudaGetErrorName(error) + ": " +
           cudaGetErrorString(error) + "; check nvidia-smi";
  }
  return false;
}

Error open_device(int ordinal) {
  CUdevice device;
  CUcontext context;
  CUresult result = driver.device(&device, ordinal);
  if (result == CUDA_SUCCESS) result = driver.retain_primary(&context, device);
  if (result == CUDA_SUCCESS) primaries[ordinal].store(context, std::memory_order_release);
  return runtime_error(result);
}

Current::Current(int ordinal) {
  const CUcontext context = primaries[ordinal].load(std::memory_order_acquire);
  error_ = runtime_error(driver.push(context));
  changed_ = error_ == cudaSuccess;
  if (changed_) error_ = cudaThreadExchangeStreamCaptureMode(&mode_);
}

Current::~Current() {
  if (!changed_) return;
  (void)cudaThreadExchangeStreamCaptureMode(&mode_);
  CUcontext ours;
  (void)driver.pop(&ours);
}

int current_device() {
  CUcontext context = nullptr;
  CUdevice device = -1;
  if (driver.context(&context) == CUDA_SUCCESS && context != nullptr) {
    return driver.context_device(&device) == CUDA_SUCCESS ? device : -1;
  }
  // A thread that has chosen nothing works with the first device, once anyone has used that.
  unsigned flags = 0;
  int active = 0;
  if (driver.device(&device, 0) == CUDA_SUCCESS &&
      driver.primary_state(device, &flags, &active) == CUDA_SUCCESS && active != 0) {
    return 0;
  }
  return -1;
}

// One call of the driver's that makes no context and knows memory of every kind: cudaMalloc's,
// mapped by cuMemMap, and of a pool. What it does not know it leaves 0.
Memory query(const void* pointer) {
  unsigned type = 0, managed = 0;
  int ordinal = -1;
  unsigned long long id = 0;
  CUdeviceptr base = 0;
  size_t bytes = 0;
  CUpointer_attribute names[] = {
      CU_POINTER_ATTRIBUTE_MEMORY_TYPE,      CU_POINTER_ATTRIBUTE_IS_MANAGED,
      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,   CU_POINTER_ATTRIBUTE_BUFFER_ID,
      CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
  };
  void* values[] = {&type, &managed, &ordinal, &id, &base, &bytes};
  Memory memory;
  if (driver.pointer_attributes(6, names, values, reinterpret_cast<CUdeviceptr>(pointer)) !=
      CUDA_SUCCESS) {
    return memory;
  }
  if (managed != 0) {
    memory.place = Memory::Place::kManaged;
    memory.ordinal = ordinal >= 0 ? ordinal : 0;
  } else if (type == CU_MEMORYTYPE_DEVICE) {
    memory = {Memory::Place::kDevice, ordinal, reinterpret_cast<const void*>(base), bytes, id};
  } else if (type == CU_MEMORYTYPE_HOST) {
    memory.place = Memory::Place::kRegisteredHost;
  }
  return memory;
}

std::string device_name(int ordinal) {
  cudaDeviceProp properties;
  if (cudaGetDeviceProperties(&properties, ordinal) != cudaSuccess) {
    (void)cudaGetLastError();
    return "unknown device";
  }
  return std::string(properties.name) + " (sm_" + std::to_string(properties.major) +
         std::to_string(properties.minor) + ")";
}

bool native_stream(hetcclStream_t stream, Stream* native) {
  *native = static_cast<Stream>(stream);
  return *native != cudaStreamPerThread;
}

Error stream_device(Stream stream, int* ordinal) {
  CUcontext context = nullptr, popped;
  CUresult result = driver.stream_context(stream, &context);
  if (result == CUDA_SUCCESS) result = driver.push(context);
  if (result != CUDA_SUCCESS) return runtime_error(result);
  CUdevice device = -1;
  result = driver.context_device(&device);
  (void)driver.pop(&popped);
  *ordinal = device;
  return runtime_error(result);
}

Error make_flags(void** flags, size_t* count) {
  constexpr size_t kCount = 256;
  const Error error = allocate_pinned(flags, kCount * kFlagStride);
  if (error != cudaSuccess) return error;
  for (size_t i = 0; i < kCount; ++i) {
    *reinterpret_cast<uint32_t*>(static_cast<char*>(*flags) + i * kFlagStride) = 0;
  }
  *count = kCount;
  return cudaSuccess;
}

Error wait_flag(Stream stream, void* flag, uint32_t value) {
  return runtime_error(driver.wait_value(stream, reinterpret_cast<CUdeviceptr>(flag), value,
                                         CU_STREAM_WAIT_VALUE_GEQ));
}

// Every device that CUDA 12 and newer run on has the second form of these operations.
bool can_wait_flags(int) { return true; }

}  // namespace hetccl::device::vendor

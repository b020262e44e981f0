// HIP's names.
#pragma once

#include <hip/hip_runtime_api.h>

#define GPU(name) hip##name

namespace hetccl::device::vendor {

constexpr Kind kKind = hetcclMemoryHip;
constexpr char kName[] = "hip";
constexpr char kTitle[] = "HIP";
constexpr size_t kFlagStride = 8;  // signal memory comes one by one

inline const hipStream_t kLegacyStream = nullptr;

// Coherent: kernels and processor see each other's writes to staging memory.
inline hipError_t allocate_pinned(void** memory, size_t bytes) {
  return hipHostMalloc(memory, bytes,
                       hipHostMallocPortable | hipHostMallocMapped | hipHostMallocCoherent);
}
inline hipError_t free_pinned(void* memory) { return hipHostFree(memory); }
constexpr unsigned kRegisterFlags = hipHostRegisterPortable | hipHostRegisterMapped;

}  // namespace hetccl::device::vendor

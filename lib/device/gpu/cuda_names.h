// CUDA's names. The runtime is linked in; the driver is not, see cuda_vendor.cc.
#pragma once

#include <cuda_runtime_api.h>

#define GPU(name) cuda##name

namespace hetccl::device::vendor {

constexpr Kind kKind = hetcclMemoryCuda;
constexpr char kName[] = "cuda";
constexpr char kTitle[] = "CUDA";
constexpr size_t kFlagStride = 64;  // a flag a cache line

inline const cudaStream_t kLegacyStream = cudaStreamLegacy;

inline cudaError_t allocate_pinned(void** memory, size_t bytes) {
  return cudaHostAlloc(memory, bytes, cudaHostAllocPortable | cudaHostAllocMapped);
}
inline cudaError_t free_pinned(void* memory) { return cudaFreeHost(memory); }
constexpr unsigned kRegisterFlags = cudaHostRegisterPortable | cudaHostRegisterMapped;

}  // namespace hetccl::device::vendor

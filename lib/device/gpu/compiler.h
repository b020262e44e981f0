// What the compilers of kernels spell differently: nvcc, hipcc or clang for HIP, and the host's
// compiler, for which shim.h plays the device. Include this before anything of lib/device.
#pragma once

#include <stddef.h>
#include <stdint.h>

#define HETCCL_KERNEL_NAMESPACE gpu_kernels

#if defined(__CUDACC__)

#include <cuda_runtime.h>

#define HETCCL_KERNEL_FUNCTION __device__ __attribute__((always_inline))
#define HETCCL_GPU_KERNEL(threads) __global__ void __launch_bounds__(threads, 1)
// Lets the kernel index its parameters where they lie, without a copy for each thread.
#define HETCCL_GPU_PARAMETER const __grid_constant__
#define HETCCL_UNROLL _Pragma("unroll")
#define HETCCL_KEEP_LOOP _Pragma("unroll 1")

namespace hetccl::device::HETCCL_KERNEL_NAMESPACE {

constexpr int kSuccess = cudaSuccess;
constexpr int kInvalidValue = cudaErrorInvalidValue;

HETCCL_KERNEL_FUNCTION inline void accesses(const void*, size_t) {}

inline unsigned block_threads(unsigned most) { return most; }

// An error is taken back from the thread, so that the program does not find it later.
template <class Parameters>
int start_kernel(void (*kernel)(Parameters), unsigned blocks, unsigned threads,
                 Parameters* parameters, void* stream) {
  void* all[] = {parameters};
  const cudaError_t error =
      cudaLaunchKernel(reinterpret_cast<const void*>(kernel), dim3(blocks), dim3(threads), all, 0,
                       static_cast<cudaStream_t>(stream));
  if (error != cudaSuccess) (void)cudaGetLastError();
  return error;
}

// Asking for what a kernel needs loads it.
template <class Parameters>
int load_kernel(void (*kernel)(Parameters)) {
  cudaFuncAttributes needs;
  const cudaError_t error = cudaFuncGetAttributes(&needs, reinterpret_cast<const void*>(kernel));
  if (error != cudaSuccess) (void)cudaGetLastError();
  return error;
}

}  // namespace hetccl::device::HETCCL_KERNEL_NAMESPACE

#elif defined(__HIP__) || defined(__HIPCC__)

#include <hip/hip_runtime.h>

#define HETCCL_KERNEL_FUNCTION __device__ __attribute__((always_inline))
#define HETCCL_GPU_KERNEL(threads) __global__ void __launch_bounds__(threads)
#define HETCCL_GPU_PARAMETER const
#define HETCCL_UNROLL _Pragma("unroll")
#define HETCCL_KEEP_LOOP _Pragma("nounroll")

namespace hetccl::device::HETCCL_KERNEL_NAMESPACE {

constexpr int kSuccess = hipSuccess;
constexpr int kInvalidValue = hipErrorInvalidValue;

HETCCL_KERNEL_FUNCTION inline void accesses(const void*, size_t) {}

inline unsigned block_threads(unsigned most) { return most; }

template <class Parameters>
int start_kernel(void (*kernel)(Parameters), unsigned blocks, unsigned threads,
                 Parameters* parameters, void* stream) {
  void* all[] = {parameters};
  const hipError_t error = hipLaunchKernel(reinterpret_cast<const void*>(kernel), dim3(blocks),
                                           dim3(threads), all, 0, static_cast<hipStream_t>(stream));
  if (error != hipSuccess) (void)hipGetLastError();
  return error;
}

// Asking for what a kernel needs loads it.
template <class Parameters>
int load_kernel(void (*kernel)(Parameters)) {
  hipFuncAttributes needs;
  const hipError_t error = hipFuncGetAttributes(&needs, reinterpret_cast<const void*>(kernel));
  if (error != hipSuccess) (void)hipGetLastError();
  return error;
}

}  // namespace hetccl::device::HETCCL_KERNEL_NAMESPACE

#else
#include "lib/device/gpu/shim.h"
#endif

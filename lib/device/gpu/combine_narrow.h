// Kernels of the 16- and 8-bit floats: the GPUs' kernels_narrow_floats.cc.
#pragma once

#include "lib/device/gpu/combine_kernel.h"

namespace hetccl::device::HETCCL_KERNEL_NAMESPACE {

// Every GPU converts float16, to nearest even and with subnormals: the results of elements.h,
// except the payload of a NaN on its way in. Other formats are software, since vendors' float8
// differ.
#if defined(__CUDA_ARCH__)
template <>
HETCCL_KERNEL_FUNCTION inline float decode<Half>(uint16_t x) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(x));
  return value;
}
template <>
HETCCL_KERNEL_FUNCTION inline uint16_t encode<Half>(float value) {
  uint16_t x;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(x) : "f"(value));
  return value != value ? Half::kNan : x;
}
#elif defined(__HIP_DEVICE_COMPILE__)
template <>
HETCCL_KERNEL_FUNCTION inline float decode<Half>(uint16_t x) {
  return static_cast<float>(bits_as<_Float16>(x));
}
template <>
HETCCL_KERNEL_FUNCTION inline uint16_t encode<Half>(float value) {
  return value != value ? Half::kNan : bits_as<uint16_t>(static_cast<_Float16>(value));
}
#endif

// The same result either way, and a division of float64 only where it must be: many GPUs are slow
// at those.
template <class Format, class Wide>
struct NarrowMean : NarrowAvg<Format, Wide> {
  HETCCL_KERNEL_FUNCTION static inline typename Format::Bits finish(Wide x, int ranks) {
    return (ranks & (ranks - 1)) == 0 ? NarrowAvgOfPowerOfTwo<Format, Wide>::finish(x, ranks)
                                      : NarrowAvg<Format, Wide>::finish(x, ranks);
  }
};

template <class Format, class OfAverage>
GpuKernel narrow_kernel(hetcclRedOp_t op) {
  switch (op) {
    case hetcclSum:
      return kernel<NarrowSum<Format>>();
    case hetcclProd:
      return kernel<NarrowProd<Format>>();
    case hetcclAvg:
      return kernel<NarrowMean<Format, OfAverage>>();
    case hetcclMin:
      return kernel<FloatMin<Format>>();
    case hetcclMax:
      return kernel<FloatMax<Format>>();
    default:
      return {};
  }
}

GpuKernel narrow_float_kernel(hetcclDataType_t type, hetcclRedOp_t op) {
  switch (type) {
    case hetcclFloat16:
      return narrow_kernel<Half, float>(op);
    case hetcclBfloat16:
      return narrow_kernel<Brain, double>(op);
    case hetcclFloat8e4m3:
      return narrow_kernel<E4m3, float>(op);
    case hetcclFloat8e5m2:
      return narrow_kernel<E5m2, float>(op);
    default:
      return {};
  }
}

}  // namespace hetccl::device::HETCCL_KERNEL_NAMESPACE

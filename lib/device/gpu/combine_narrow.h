// Kernels of the 16- and 8-bit floats: the GPUs' kernels_narrow_floats.cc.
#pragma once

#include "lib/device/gpu/combine_kernel.h"

namespace hetccl::device::HETCCL_KERNEL_NAMESPACE {

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

// Kernels of the 16- and 8-bit floats.
#include "lib/device/loops.h"

namespace hetccl::device::HETCCL_KERNEL_NAMESPACE {
namespace {

template <class Format, class OfAverage>
Kernel kernel_of(hetcclRedOp_t op) {
  switch (op) {
    case hetcclSum:
      return wide<NarrowSum<Format>>();
    case hetcclProd:
      return wide<NarrowProd<Format>>();
    case hetcclAvg:
      return {run_average<Format, OfAverage>, 1};
    case hetcclMin:
      return same<FloatMin<Format>>();
    case hetcclMax:
      return same<FloatMax<Format>>();
    default:
      return {};
  }
}

}  // namespace

Kernel narrow_float_kernel(hetcclDataType_t type, hetcclRedOp_t op) {
  switch (type) {
    case hetcclFloat16:
      return kernel_of<Half, float>(op);
    case hetcclBfloat16:
      return kernel_of<Brain, double>(op);
    case hetcclFloat8e4m3:
      return kernel_of<E4m3, float>(op);
    case hetcclFloat8e5m2:
      return kernel_of<E5m2, float>(op);
    default:
      return {};
  }
}

}  // namespace hetccl::device::HETCCL_KERNEL_NAMESPACE

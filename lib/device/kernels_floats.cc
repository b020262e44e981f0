// Kernels of float32 and float64, and of the complex numbers made of them.
#include "lib/device/loops.h"

namespace hetccl::device::HETCCL_KERNEL_NAMESPACE {
namespace {

template <class T, class Format>
Kernel real_kernel(hetcclRedOp_t op) {
  switch (op) {
    case hetcclSum:
      return same<FloatSum<T>>();
    case hetcclProd:
      return same<FloatProd<T>>();
    case hetcclAvg:
      return same<FloatAvg<T>>();
    case hetcclMin:
      return same<FloatMin<Format>>();
    case hetcclMax:
      return same<FloatMax<Format>>();
    default:
      return {};
  }
}

template <class T>
Kernel complex_kernel(hetcclRedOp_t op) {
  switch (op) {
    case hetcclSum:
      return same<FloatSum<T>>(2);
    case hetcclAvg:
      return same<FloatAvg<T>>(2);
    case hetcclProd:
      return same<ComplexProd<T>>();
    default:
      return {};
  }
}

}  // namespace

Kernel float_kernel(hetcclDataType_t type, hetcclRedOp_t op) {
  switch (type) {
    case hetcclFloat32:
      return real_kernel<float, Single>(op);
    case hetcclFloat64:
      return real_kernel<double, Double>(op);
    case hetcclComplex64:
      return complex_kernel<float>(op);
    case hetcclComplex128:
      return complex_kernel<double>(op);
    default:
      return {};
  }
}

}  // namespace hetccl::device::HETCCL_KERNEL_NAMESPACE

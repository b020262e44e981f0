// Kernels of float32 and float64, and of the complex numbers made of them: the GPUs'
// kernels_floats.cc.
#pragma once

#include "lib/device/gpu/combine_kernel.h"

namespace hetccl::device::HETCCL_KERNEL_NAMESPACE {

template <class T, class Format>
GpuKernel real_kernel(hetcclRedOp_t op) {
  switch (op) {
    case hetcclSum:
      return kernel<FloatSum<T>>();
    case hetcclProd:
      return kernel<FloatProd<T>>();
    case hetcclAvg:
      return kernel<FloatAvg<T>>();
    case hetcclMin:
      return kernel<FloatMin<Format>>();
    case hetcclMax:
      return kernel<FloatMax<Format>>();
    default:
      return {};
  }
}

template <class T>
GpuKernel complex_kernel(hetcclRedOp_t op) {
  switch (op) {
    case hetcclSum:
      return kernel<FloatSum<T>>(2);
    case hetcclAvg:
      return kernel<FloatAvg<T>>(2);
    case hetcclProd:
      return kernel<ComplexProd<T>>();
    default:
      return {};
  }
}

GpuKernel float_kernel(hetcclDataType_t type, hetcclRedOp_t op) {
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

// Kernels of bool, byte and the pairs of value and index: the GPUs' kernels_other.cc.
#pragma once

#include "lib/device/gpu/combine_kernel.h"

namespace hetccl::device::HETCCL_KERNEL_NAMESPACE {

// For truth values bitwise is logical, the lesser is the conjunction, the greater the disjunction.
// The kernels are those of integers.
inline hetcclRedOp_t logical(hetcclRedOp_t op) {
  switch (op) {
    case hetcclBAnd:
    case hetcclMin:
      return hetcclLAnd;
    case hetcclBOr:
    case hetcclMax:
      return hetcclLOr;
    case hetcclBXor:
      return hetcclLXor;
    default:
      return op;
  }
}

GpuKernel bool_kernel(hetcclRedOp_t op) {
  switch (logical(op)) {
    case hetcclLAnd:
    case hetcclLOr:
    case hetcclLXor:
      return integer_kernel(hetcclUint8, logical(op));
    default:
      return {};
  }
}

GpuKernel byte_kernel(hetcclRedOp_t op) {
  switch (op) {
    case hetcclBAnd:
    case hetcclBOr:
    case hetcclBXor:
      return integer_kernel(hetcclUint8, op);
    default:
      return {};
  }
}

template <class Pair, class Order>
GpuKernel pair_kernel(hetcclRedOp_t op) {
  switch (op) {
    case hetcclMinLoc:
      return kernel<Location<Pair, Order, true>>();
    case hetcclMaxLoc:
      return kernel<Location<Pair, Order, false>>();
    default:
      return {};
  }
}

GpuKernel other_kernel(hetcclDataType_t type, hetcclRedOp_t op) {
  switch (type) {
    case hetcclBool:
      return bool_kernel(op);
    case hetcclByte:
      return byte_kernel(op);
    case hetcclFloatInt:
      return pair_kernel<FloatIntPair, FloatOrder<Single>>(op);
    case hetcclDoubleInt:
      return pair_kernel<DoubleIntPair, FloatOrder<Double>>(op);
    case hetcclLongInt:
      return pair_kernel<LongIntPair, IntegerOrder<int64_t>>(op);
    case hetcclShortInt:
      return pair_kernel<ShortIntPair, IntegerOrder<int16_t>>(op);
    case hetcclTwoInt:
      return pair_kernel<TwoIntPair, IntegerOrder<int32_t>>(op);
    default:
      return {};
  }
}

}  // namespace hetccl::device::HETCCL_KERNEL_NAMESPACE

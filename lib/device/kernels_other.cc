// Kernels of bool, byte and the pairs of value and index.
#include "lib/device/loops.h"

namespace hetccl::device::HETCCL_KERNEL_NAMESPACE {
namespace {

// For truth values bitwise is logical, the lesser is the conjunction, the greater the disjunction.
Kernel bool_kernel(hetcclRedOp_t op) {
  switch (op) {
    case hetcclLAnd:
    case hetcclBAnd:
    case hetcclMin:
      return same<LogicalAnd<uint8_t>>();
    case hetcclLOr:
    case hetcclBOr:
    case hetcclMax:
      return same<LogicalOr<uint8_t>>();
    case hetcclLXor:
    case hetcclBXor:
      return same<LogicalXor<uint8_t>>();
    default:
      return {};
  }
}

Kernel byte_kernel(hetcclRedOp_t op) {
  switch (op) {
    case hetcclBAnd:
      return same<BitAnd>();
    case hetcclBOr:
      return same<BitOr>();
    case hetcclBXor:
      return same<BitXor>();
    default:
      return {};
  }
}

template <class Pair, class Order>
Kernel pair_kernel(hetcclRedOp_t op) {
  switch (op) {
    case hetcclMinLoc:
      return same<Location<Pair, Order, true>>();
    case hetcclMaxLoc:
      return same<Location<Pair, Order, false>>();
    default:
      return {};
  }
}

}  // namespace

Kernel other_kernel(hetcclDataType_t type, hetcclRedOp_t op) {
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

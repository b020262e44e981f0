// Kernels of the integers. What does not depend on the sign is compiled for unsigned types only,
// and bitwise operators for bytes only.
#include "lib/device/loops.h"

namespace hetccl::device::HETCCL_KERNEL_NAMESPACE {
namespace {

template <class U>
Kernel unsigned_kernel(hetcclRedOp_t op) {
  switch (op) {
    case hetcclSum:
      return same<IntegerSum<U>>();
    case hetcclProd:
      return same<IntegerProd<U>>();
    case hetcclLAnd:
      return same<LogicalAnd<U>>();
    case hetcclLOr:
      return same<LogicalOr<U>>();
    case hetcclLXor:
      return same<LogicalXor<U>>();
    case hetcclBAnd:
      return same<BitAnd>(sizeof(U));
    case hetcclBOr:
      return same<BitOr>(sizeof(U));
    case hetcclBXor:
      return same<BitXor>(sizeof(U));
    default:
      return {};
  }
}

template <class T, class U, class Wider>
Kernel kernel_of(hetcclRedOp_t op) {
  switch (op) {
    case hetcclMin:
      return same<IntegerMin<T>>();
    case hetcclMax:
      return same<IntegerMax<T>>();
    case hetcclAvg:
      return wide<IntegerAvg<T, Wider>>();
    default:
      return unsigned_kernel<U>(op);
  }
}

__extension__ typedef __int128 Int128;

}  // namespace

Kernel integer_kernel(hetcclDataType_t type, hetcclRedOp_t op) {
  switch (type) {
    case hetcclInt8:
      return kernel_of<int8_t, uint8_t, int64_t>(op);
    case hetcclUint8:
      return kernel_of<uint8_t, uint8_t, int64_t>(op);
    case hetcclInt16:
      return kernel_of<int16_t, uint16_t, int64_t>(op);
    case hetcclUint16:
      return kernel_of<uint16_t, uint16_t, int64_t>(op);
    case hetcclInt32:
      return kernel_of<int32_t, uint32_t, int64_t>(op);
    case hetcclUint32:
      return kernel_of<uint32_t, uint32_t, int64_t>(op);
    case hetcclInt64:
      return kernel_of<int64_t, uint64_t, Int128>(op);
    case hetcclUint64:
      return kernel_of<uint64_t, uint64_t, Int128>(op);
    default:
      return {};
  }
}

}  // namespace hetccl::device::HETCCL_KERNEL_NAMESPACE

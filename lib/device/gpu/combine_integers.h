// Kernels of the integers: the GPUs' kernels_integers.cc. What does not depend on the sign is
// compiled for unsigned types only, and bitwise operators for bytes only.
#pragma once

#include "lib/device/gpu/combine_kernel.h"

namespace hetccl::device::HETCCL_KERNEL_NAMESPACE {

__extension__ typedef __int128 Int128;
__extension__ typedef unsigned __int128 Uint128;

// Divides by 32 bits at a time, since not every GPU's compiler divides 128 bits.
template <class T>
struct LongAvg : IntegerAvg<T, Int128> {
  HETCCL_KERNEL_FUNCTION static inline T finish(Int128 x, int ranks) {
    const Uint128 magnitude = x < 0 ? -static_cast<Uint128>(x) : static_cast<Uint128>(x);
    const uint32_t divisor = static_cast<uint32_t>(ranks);
    uint64_t rest = 0;
    uint64_t quotient = 0;
    // A mean fits 64 bits: what shifts out of the quotient is 0.
    HETCCL_KEEP_LOOP
    for (int shift = 96; shift >= 0; shift -= 32) {
      rest = rest << 32 | static_cast<uint32_t>(magnitude >> shift);
      quotient = quotient << 32 | static_cast<uint32_t>(rest / divisor);
      rest %= divisor;
    }
    return static_cast<T>(x < 0 ? -quotient : quotient);
  }
};

template <class U>
GpuKernel unsigned_kernel(hetcclRedOp_t op) {
  switch (op) {
    case hetcclSum:
      return kernel<IntegerSum<U>>();
    case hetcclProd:
      return kernel<IntegerProd<U>>();
    case hetcclLAnd:
      return kernel<LogicalAnd<U>>();
    case hetcclLOr:
      return kernel<LogicalOr<U>>();
    case hetcclLXor:
      return kernel<LogicalXor<U>>();
    case hetcclBAnd:
      return kernel<BitAnd>(sizeof(U));
    case hetcclBOr:
      return kernel<BitOr>(sizeof(U));
    case hetcclBXor:
      return kernel<BitXor>(sizeof(U));
    default:
      return {};
  }
}

template <class T, class U, class Average>
GpuKernel kernel_of_integer(hetcclRedOp_t op) {
  switch (op) {
    case hetcclMin:
      return kernel<IntegerMin<T>>();
    case hetcclMax:
      return kernel<IntegerMax<T>>();
    case hetcclAvg:
      return kernel<Average>();
    default:
      return unsigned_kernel<U>(op);
  }
}

GpuKernel integer_kernel(hetcclDataType_t type, hetcclRedOp_t op) {
  switch (type) {
    case hetcclInt8:
      return kernel_of_integer<int8_t, uint8_t, IntegerAvg<int8_t, int64_t>>(op);
    case hetcclUint8:
      return kernel_of_integer<uint8_t, uint8_t, IntegerAvg<uint8_t, int64_t>>(op);
    case hetcclInt16:
      return kernel_of_integer<int16_t, uint16_t, IntegerAvg<int16_t, int64_t>>(op);
    case hetcclUint16:
      return kernel_of_integer<uint16_t, uint16_t, IntegerAvg<uint16_t, int64_t>>(op);
    case hetcclInt32:
      return kernel_of_integer<int32_t, uint32_t, IntegerAvg<int32_t, int64_t>>(op);
    case hetcclUint32:
      return kernel_of_integer<uint32_t, uint32_t, IntegerAvg<uint32_t, int64_t>>(op);
    case hetcclInt64:
      return kernel_of_integer<int64_t, uint64_t, LongAvg<int64_t>>(op);
    case hetcclUint64:
      return kernel_of_integer<uint64_t, uint64_t, LongAvg<uint64_t>>(op);
    default:
      return {};
  }
}

}  // namespace hetccl::device::HETCCL_KERNEL_NAMESPACE

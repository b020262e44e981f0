// The seam between the host device and its kernels: plain data, so that a kernel's translation unit
// sees no library template that the linker could take for another instruction set's copy.
//
// Every instruction set compiles the same four sources into its own namespace; each source serves
// one group of types and answers with an empty kernel for what it does not know.
#pragma once

#include <hetccl/hetccl.h>
#include <stddef.h>

namespace hetccl::device {

struct KernelSource {
  const void* data;
  bool wide;
};

// As Combine in device.h, with the divisor of an average.
struct KernelCall {
  void* destination;
  const KernelSource* sources;
  size_t source_count;
  size_t count;
  int ranks;
  bool wide;
  bool finalize;
};

struct Kernel {
  void (*run)(const KernelCall& call) = nullptr;
  // Kernel elements in one element of the type: a complex sum is a sum of twice as many reals.
  unsigned units = 1;
};

#define HETCCL_DECLARE_KERNELS(isa)                                    \
  namespace isa {                                                      \
  Kernel integer_kernel(hetcclDataType_t type, hetcclRedOp_t op);      \
  Kernel float_kernel(hetcclDataType_t type, hetcclRedOp_t op);        \
  Kernel narrow_float_kernel(hetcclDataType_t type, hetcclRedOp_t op); \
  Kernel other_kernel(hetcclDataType_t type, hetcclRedOp_t op);        \
  }
HETCCL_DECLARE_KERNELS(portable)
HETCCL_DECLARE_KERNELS(avx2)
HETCCL_DECLARE_KERNELS(avx512)
#undef HETCCL_DECLARE_KERNELS

}  // namespace hetccl::device

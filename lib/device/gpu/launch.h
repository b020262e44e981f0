// The seam between a vendor's runtime source and the kernels that its compiler makes: plain C++17
// data, so that neither side sees the other's headers.
#pragma once

#include <hetccl/hetccl.h>
#include <stddef.h>

#include "lib/device/kernels.h"

namespace hetccl::device {

// One combine, enqueued. All pointers but `sources` itself are reachable by the device; `sources`
// may be overwritten once launch() has returned.
struct Launch {
  KernelCall call;  // count in elements of the type
  hetcclDataType_t type;
  hetcclRedOp_t op;
  void* stream;  // cudaStream_t or hipStream_t; null is the vendor's default stream
  int max_blocks;
  // Device memory for calls of more sources than one launch takes; see scratch_bytes().
  void* scratch;
};

// Bytes of scratch that the launch needs; 0 for most.
size_t scratch_bytes(const Launch& launch);

// The vendor's error code, 0 for success.
int launch_combine(const Launch& launch);

// Loads all kernels to the calling thread's device. By default the runtimes load a kernel at its
// first launch, which waits for all that is enqueued: and that may be waiting for the launch.
int load_kernels();

}  // namespace hetccl::device

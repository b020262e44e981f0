// A device for tests, made of loops: blocks and threads run one after another on the calling
// thread.
//
// It serves kernels whose threads neither wait for each other nor share memory, which all of ours
// are. Threads run in ascending or descending order: a kernel in which one thread reads what
// another writes gives different results. Not for several threads at once.
#pragma once

#include <stddef.h>
#include <stdint.h>

#define HETCCL_KERNEL_FUNCTION
#define HETCCL_GPU_KERNEL(threads) void
#define HETCCL_GPU_PARAMETER const
#define HETCCL_UNROLL
#define HETCCL_KEEP_LOOP

namespace hetccl::device::shim {

struct Index {
  unsigned x = 0;
};
inline Index block_index, block_size, grid_size, thread_index;

// What tests set: threads of a block (0: as many as asked for), and their order.
inline unsigned lanes = 0;
inline bool backwards = false;
// What tests read: of the last launch, and how many there were.
inline unsigned blocks_used = 0;
inline unsigned launches = 0;
inline unsigned loaded = 0;      // kernels made ready ahead of their first launch
inline unsigned misaligned = 0;  // accesses, in all launches, at which a GPU would fault

}  // namespace hetccl::device::shim

#define blockIdx hetccl::device::shim::block_index
#define blockDim hetccl::device::shim::block_size
#define gridDim hetccl::device::shim::grid_size
#define threadIdx hetccl::device::shim::thread_index

namespace hetccl::device::HETCCL_KERNEL_NAMESPACE {

constexpr int kSuccess = 0;
constexpr int kInvalidValue = 1;

// Kernels announce what they access: the processor would not mind.
inline void accesses(const void* at, size_t bytes) {
  shim::misaligned += reinterpret_cast<uintptr_t>(at) % bytes != 0;
}

inline unsigned block_threads(unsigned most) { return shim::lanes != 0 ? shim::lanes : most; }

template <class Parameters>
int start_kernel(void (*kernel)(Parameters), unsigned blocks, unsigned threads,
                 Parameters* parameters, void* /*stream*/) {
  shim::block_size.x = threads;
  shim::grid_size.x = blocks;
  shim::blocks_used = blocks;
  ++shim::launches;
  for (unsigned i = 0; i < blocks * threads; ++i) {
    const unsigned turn = shim::backwards ? blocks * threads - 1 - i : i;
    shim::block_index.x = turn / threads;
    shim::thread_index.x = turn % threads;
    kernel(*parameters);
  }
  return kSuccess;
}

template <class Parameters>
int load_kernel(void (* /*kernel*/)(Parameters)) {
  ++shim::loaded;
  return kSuccess;
}

}  // namespace hetccl::device::HETCCL_KERNEL_NAMESPACE

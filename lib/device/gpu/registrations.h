// Host memory made reachable by the vendor's devices: who registered what, so that a range that the
// program registered itself stays registered when we are done with it.
//
// Thread rule: any thread.
#pragma once

#include <atomic>
#include <map>
#include <mutex>

#include "lib/device/gpu/failure.h"

namespace hetccl::device::gpu {

class Registrations {
 public:
  Status add(int ordinal, void* memory, size_t bytes);
  Status remove(int ordinal, void* memory);
  // What kernels call `pointer`, which differs where a vendor maps registered memory elsewhere.
  const void* device_address(const void* pointer);

 private:
  struct Entry {
    size_t bytes;
    int count;
    bool own;             // registered here, not by the program
    ptrdiff_t elsewhere;  // the device's address less the host's
  };
  std::atomic<int> moved_ = 0;  // entries that lie elsewhere
  std::mutex mutex_;
  std::map<void*, Entry> entries_;
};

}  // namespace hetccl::device::gpu

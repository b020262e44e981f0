// Host memory made reachable by the vendor's devices: who registered what, so that a range that the
// program registered itself stays registered when we are done with it.
//
// Thread rule: any thread.
#pragma once

#include <map>
#include <mutex>

#include "lib/device/gpu/failure.h"

namespace hetccl::device::gpu {

class Registrations {
 public:
  Status add(int ordinal, void* memory, size_t bytes);
  Status remove(int ordinal, void* memory);

 private:
  struct Entry {
    size_t bytes;
    int count;
    bool own;  // registered here, not by the program
  };
  std::mutex mutex_;
  std::map<void*, Entry> entries_;
};

}  // namespace hetccl::device::gpu

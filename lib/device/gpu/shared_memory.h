// Device memory of one process in another, by the vendor's IPC handles.
//
// An allocation is mapped once a device, however often it is imported, and its own process gets its
// own address back: vendors refuse both otherwise.
//
// Thread rule: any thread.
#pragma once

#include <list>
#include <mutex>
#include <string>

#include "lib/device/gpu/failure.h"

namespace hetccl::device::gpu {

class SharedMemory {
 public:
  explicit SharedMemory(int ordinal) : ordinal_(ordinal) {}
  Result<std::string> export_memory(const void* memory);
  Result<void*> import_memory(const std::string& handle);
  Status close_memory(void* memory);

 private:
  struct Mapping {
    std::string handle;  // without the offset
    char* base;
    size_t bytes;
    int count;
    bool own;  // this process's allocation, not mapped here
  };
  const int ordinal_;
  std::mutex mutex_;
  std::list<Mapping> mappings_;
};

}  // namespace hetccl::device::gpu

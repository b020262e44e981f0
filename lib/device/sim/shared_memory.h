// Memory of a simulated device in another process of the machine, by the file that backs it.
//
// Thread rule: any thread.
#pragma once

#include <map>
#include <mutex>
#include <string>

#include "lib/device/sim/memory.h"

namespace hetccl::device::sim {

class SharedMemory {
 public:
  explicit SharedMemory(MemorySpace* memory);

  Result<std::string> export_memory(int ordinal, const void* memory);
  // For the device `ordinal` of this process. What this process exported keeps its address.
  Result<void*> import_memory(int ordinal, const std::string& handle);
  Status close_memory(void* memory);

 private:
  struct Handle;
  struct Import {
    int times = 1;
    // Not where it is this process's own.
    uintptr_t begin = 0;  // of the pages, a device address
    size_t mapped = 0;    // bytes of them
    uintptr_t piece = 0;  // of the allocation
    void* table = nullptr;
  };

  Result<void*> import_own(const Handle& handle);
  Result<void*> map(int ordinal, const Handle& handle, int file);
  Status map_pages(const Handle& handle, int file, Import* import);
  void forget_pages(const Import& import);

  MemorySpace& memory_;
  const uintptr_t base_;  // device addresses for imports
  std::mutex mutex_;
  Places places_;
  std::map<uintptr_t, Import> imports_;  // by the address that was returned
};

}  // namespace hetccl::device::sim

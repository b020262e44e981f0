// Memory that the user has said will be used again, by communicator. A hint: it is checked and
// kept, and nothing else depends on it.
//
// Thread rule: any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <set>

#include "lib/base/status.h"

namespace hetccl {

class Registrations {
 public:
  // hetcclInvalidArgument: not all of the range is memory of this process, or of one device.
  Result<void*> add(const void* buffer, size_t bytes);
  Status remove(void* handle);

 private:
  std::mutex mutex_;
  std::set<uintptr_t> live_;
  uintptr_t next_ = 1;  // never given again
};

}  // namespace hetccl

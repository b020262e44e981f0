// Device memory of one process as another of the same node and vendor sees it: what is read where
// it lies is named in a message instead of being copied into one.
//
// A handle is kept as long as the allocation that it stands for: both sides know an allocation by a
// number that is never used again, so that freed and reused memory is never taken for the old one.
//
// Thread rule: one thread at a time, the one that holds the communicator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "lib/base/status.h"
#include "lib/device/accelerator.h"

namespace hetccl::run {

class PeerMemory {
 public:
  explicit PeerMemory(device::Accelerator* accelerator) : accelerator_(accelerator) {}
  ~PeerMemory();

  // To be called between calls: buffers may be freed there.
  void begin_call();

  // The message that names `bytes` at `memory`; empty: this memory cannot be shown to others.
  const std::string& describe(const void* memory, size_t bytes);
  // What a message names, as this process's device reaches it.
  struct Mapped {
    const std::byte* data;
    size_t bytes;
  };
  Result<Mapped> map(int peer, std::span<const std::byte> message);

 private:
  struct Range {
    const std::byte* base;
    size_t bytes;
    uint64_t id;
    std::string handle;  // empty: cannot be exported
  };
  struct Import {
    std::string key;
    void* base;
  };
  const Range& range_of(const void* memory);

  device::Accelerator* const accelerator_;
  std::vector<Range> ranges_;                // of this call's buffers
  std::map<uint64_t, std::string> exports_;  // by allocation
  std::string message_;
  std::list<Import> imports_;  // the last used first
};

}  // namespace hetccl::run

// Memory for the calls of one rank, of the kind that the user asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "bench/memory_kind.h"
#include "bench/world.h"

namespace hetccl::bench {

// One allocation; freed with it.
class Memory {
 public:
  Memory() = default;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory();

  // "" or the reason. `device`: the ordinal, for memory of a device.
  std::string allocate(size_t bytes, const MemoryKind& kind, int device);
  // Makes all pages of host memory present.
  void touch();
  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  MemoryKind kind_;
};

// Bytes that this node can still give, as far as the system tells.
uint64_t available_memory();

// Allocates `send_bytes` and `recv_bytes` on every rank, or on none: then rank 0 has said why, and
// all ranks get false.
bool allocate_all(const World& world, const MemoryKind& kind, int device, uint64_t send_bytes,
                  uint64_t recv_bytes, Memory* send, Memory* recv);

}  // namespace hetccl::bench

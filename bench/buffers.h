// Memory for the calls of one rank, of the kind that the user asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "bench/world.h"

namespace hetccl::bench {

// One allocation; freed with it.
class Memory {
 public:
  Memory() = default;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory();

  // "" or the reason. kind: "host", "host-lib".
  std::string allocate(size_t bytes, const std::string& kind);
  // Makes all pages present.
  void touch();
  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  bool of_library_ = false;
};

// Bytes that this node can still give, as far as the system tells.
uint64_t available_memory();

// Allocates `send_bytes` and `recv_bytes` on every rank, or on none: then rank 0 has said why, and
// all ranks get false.
bool allocate_all(const World& world, const std::string& kind, uint64_t send_bytes,
                  uint64_t recv_bytes, Memory* send, Memory* recv);

}  // namespace hetccl::bench

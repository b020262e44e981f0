// The file in memory that backs a simulated device, and the places in it.
//
// Thread rule: the caller's lock, but for liveness(), which any thread and any process may read.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "lib/base/status.h"

namespace hetccl::device::sim {

// Which parts of a range are taken. The lowest place that fits is taken first, so that freed
// addresses come back soon, as they do on a GPU.
class Places {
 public:
  Places() = default;
  explicit Places(size_t bytes) { free_[0] = bytes; }
  std::optional<size_t> take(size_t bytes);
  void give_back(size_t offset, size_t bytes);

 private:
  std::map<size_t, size_t> free_;  // offset and bytes; no two touch
};

// Behind the memory, the file has a table from which other processes see whether an allocation that
// was exported to them is still alive: its id, or something else.
class Region {
 public:
  static constexpr size_t kSlots = 4096;
  static constexpr size_t kTableBytes = kSlots * sizeof(uint64_t);

  // `span`: bytes of addresses at `alias`, where the file gets mapped; `capacity` of them may be in
  // use at a time.
  static Result<Region> make(const char* name, std::byte* alias, size_t span, size_t capacity);

  Result<size_t> allocate(size_t bytes);
  // Its contents are gone.
  void free(size_t offset, size_t bytes);

  // -1: none is left.
  int publish(uint64_t id);
  void withdraw(int slot);

  int file() const { return file_; }
  size_t span() const { return span_; }

 private:
  Region() = default;

  int file_ = -1;  // never closed
  std::byte* alias_ = nullptr;
  size_t span_ = 0, capacity_ = 0, used_ = 0;
  Places places_;
  std::atomic<uint64_t>* table_ = nullptr;
  std::vector<int> free_slots_;
};

size_t page_size();
inline size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }
// "sim:cuda:0: mapping memory: Cannot allocate memory", from errno.
std::string failed(const std::string& doing);

}  // namespace hetccl::device::sim

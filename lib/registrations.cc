#include "lib/registrations.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

#include "lib/device/accelerator.h"

namespace hetccl {
namespace {

constexpr size_t kMaxBytes = size_t{1} << 63;
constexpr size_t kPagesAtOnce = 1 << 14;

// mincore knows of every page whether it is mapped; whether it is in memory does not matter.
bool is_mapped(uintptr_t begin, size_t bytes) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  uintptr_t at = begin / page * page;
  const uintptr_t end = begin + bytes;
  std::vector<unsigned char> unused(std::min<size_t>(kPagesAtOnce, (end - at) / page + 1));
  while (at < end) {
    const size_t length = std::min<size_t>(end - at, unused.size() * page);
    if (mincore(reinterpret_cast<void*>(at), length, unused.data()) != 0 && errno == ENOMEM) {
      return false;
    }
    at += length;
  }
  return true;
}

Status check(const void* buffer, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(buffer);
  const std::string range = std::to_string(bytes) + " bytes";
  if (buffer == nullptr) return invalid_argument("register: the buffer is NULL");
  if (bytes == 0) return invalid_argument("register: the buffer has no bytes");
  if (bytes > kMaxBytes || begin + bytes < begin) {
    return invalid_argument("register: " + range + " go beyond the address space");
  }
  device::Memory memory;
  const auto owner = device::owner_of(buffer, &memory);
  if (!owner.ok()) return invalid_argument("register: " + owner.status().message());
  if (*owner == nullptr) {
    if (is_mapped(begin, bytes)) return {};
    return invalid_argument("register: not all of the " + range + " are mapped memory");
  }
  const size_t offset = begin - reinterpret_cast<uintptr_t>(memory.base);
  if (memory.bytes == 0 || (offset <= memory.bytes && bytes <= memory.bytes - offset)) return {};
  return invalid_argument("register: " + range + " leave an allocation of " +
                          std::to_string(memory.bytes) + " bytes on " + (*owner)->description());
}

}  // namespace

Result<void*> Registrations::add(const void* buffer, size_t bytes) {
  if (Status s = check(buffer, bytes); !s.ok()) return s;
  std::lock_guard lock(mutex_);
  live_.insert(next_);
  return reinterpret_cast<void*>(next_++);
}

Status Registrations::remove(void* handle) {
  std::lock_guard lock(mutex_);
  if (live_.erase(reinterpret_cast<uintptr_t>(handle)) != 0) return {};
  return invalid_argument(
      "the handle is no registration of this communicator, or one that has ended already");
}

}  // namespace hetccl

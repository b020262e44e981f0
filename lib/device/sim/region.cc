#include "lib/device/sim/region.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>

namespace hetccl::device::sim {
namespace {

constexpr size_t kAlignment = 256;
// What device memory holds that nobody has written: no number that a test would expect.
constexpr int kUnwritten = 0xc7;
constexpr int kFreed = 0xdf;
// Filling all of a large allocation would cost more than it finds.
constexpr size_t kFilled = size_t{64} << 10;

}  // namespace

size_t page_size() {
  static const auto size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

std::string failed(const std::string& doing) {
  return doing + ": " + std::generic_category().message(errno);
}

std::optional<size_t> Places::take(size_t bytes) {
  for (auto at = free_.begin(); at != free_.end(); ++at) {
    const auto [offset, there] = *at;
    if (there < bytes) continue;
    free_.erase(at);
    if (there > bytes) free_[offset + bytes] = there - bytes;
    return offset;
  }
  return std::nullopt;
}

void Places::give_back(size_t offset, size_t bytes) {
  auto next = free_.lower_bound(offset);
  if (next != free_.end() && offset + bytes == next->first) {
    bytes += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += bytes;
      return;
    }
  }
  free_[offset] = bytes;
}

Result<Region> Region::make(const char* name, std::byte* alias, size_t span, size_t capacity) {
  Region r;
  r.alias_ = alias;
  r.span_ = span;
  r.capacity_ = capacity;
  r.places_ = Places(span);
  r.file_ = memfd_create(name, MFD_CLOEXEC);
  if (r.file_ < 0) return system_error(failed("making a file in memory for a simulated device"));
  void *memory = MAP_FAILED, *table = MAP_FAILED;
  if (ftruncate(r.file_, static_cast<off_t>(span + kTableBytes)) == 0) {
    memory = mmap(alias, span, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE,
                  r.file_, 0);
    table = mmap(nullptr, kTableBytes, PROT_READ | PROT_WRITE, MAP_SHARED, r.file_,
                 static_cast<off_t>(span));
  }
  if (memory == MAP_FAILED || table == MAP_FAILED) {
    const std::string text = failed("mapping the memory of a simulated device");
    close(r.file_);
    return system_error(text);
  }
  (void)madvise(alias, span, MADV_DONTDUMP);
  r.table_ = static_cast<std::atomic<uint64_t>*>(table);
  for (int slot = kSlots - 1; slot >= 0; --slot) r.free_slots_.push_back(slot);
  return r;
}

Result<size_t> Region::allocate(size_t bytes) {
  const size_t rounded = round_up(std::max<size_t>(bytes, 1), kAlignment);
  const std::optional<size_t> offset = bytes > capacity_ - used_ || rounded > capacity_ - used_
                                           ? std::nullopt
                                           : places_.take(rounded);
  if (!offset.has_value()) {
    return Status(hetcclUnhandledDeviceError,
                  "out of memory: " + std::to_string(bytes) + " bytes asked for, " +
                      std::to_string(capacity_ - used_) + " of " + std::to_string(capacity_) +
                      " are free; HETCCL_SIM=memory=... sets how much there is");
  }
  used_ += rounded;
  std::memset(alias_ + *offset, kUnwritten, std::min(rounded, kFilled));
  return *offset;
}

void Region::free(size_t offset, size_t bytes) {
  const size_t end = offset + round_up(std::max<size_t>(bytes, 1), kAlignment);
  const size_t first_page = round_up(offset, page_size());
  const size_t last_page = end / page_size() * page_size();
  if (first_page < last_page) {
    std::memset(alias_ + offset, kFreed, first_page - offset);
    std::memset(alias_ + last_page, kFreed, end - last_page);
    (void)fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                    static_cast<off_t>(first_page), static_cast<off_t>(last_page - first_page));
  } else {
    std::memset(alias_ + offset, kFreed, end - offset);
  }
  places_.give_back(offset, end - offset);
  used_ -= end - offset;
}

int Region::publish(uint64_t id) {
  if (free_slots_.empty()) return -1;
  const int slot = free_slots_.back();
  free_slots_.pop_back();
  table_[slot].store(id, std::memory_order_release);
  return slot;
}

void Region::withdraw(int slot) {
  table_[slot].store(0, std::memory_order_release);
  free_slots_.push_back(slot);
}

}  // namespace hetccl::device::sim

#include "lib/run/staging_pool.h"

#include <algorithm>

namespace hetccl::run {

StagingPool::StagingPool(size_t bytes, Allocate allocate)
    : blocks_(std::max<size_t>(1, bytes / kBlock)),
      allocate_(std::move(allocate)),
      taken_(blocks_, false),
      free_(blocks_) {}

Status StagingPool::open(device::Accelerator* accelerator) {
  std::lock_guard lock(mutex_);
  if (memory_ == nullptr) {
    Result<void*> memory = allocate_(blocks_ * kBlock);
    if (!memory.ok()) return memory.status();
    memory_ = static_cast<std::byte*>(*memory);
  }
  if (std::find(known_.begin(), known_.end(), accelerator) != known_.end()) return {};
  if (Status s = accelerator->register_host(memory_, blocks_ * kBlock); !s.ok()) return s;
  known_.push_back(accelerator);
  return {};
}

std::byte* StagingPool::take(size_t bytes) {
  const size_t wanted = blocks_of(bytes);
  std::lock_guard lock(mutex_);
  size_t run = 0;
  for (size_t seen = 0; seen < blocks_ + wanted; ++seen) {
    const size_t at = (next_ + seen) % blocks_;
    if (at == 0) run = 0;  // blocks must be consecutive
    run = taken_[at] ? 0 : run + 1;
    if (run < wanted) continue;
    const size_t first = at + 1 - wanted;
    std::fill_n(taken_.begin() + static_cast<ptrdiff_t>(first), wanted, true);
    next_ = (at + 1) % blocks_;
    free_.fetch_sub(wanted, std::memory_order_relaxed);
    return memory_ + first * kBlock;
  }
  return nullptr;
}

void StagingPool::give_back(std::byte* memory, size_t bytes) {
  const size_t count = blocks_of(bytes);
  std::lock_guard lock(mutex_);
  const auto first = static_cast<size_t>(memory - memory_) / kBlock;
  std::fill_n(taken_.begin() + static_cast<ptrdiff_t>(first), count, false);
  free_.fetch_add(count, std::memory_order_relaxed);
}

void StagingPool::starve(bool starving) {
  starving_.fetch_add(starving ? 1 : -1, std::memory_order_relaxed);
}

}  // namespace hetccl::run

// Host memory through which the data of devices pass, one capped pool a process: blocks of a fixed
// size that network and shared memory can send from and devices can copy to and from in the
// background.
//
// Whoever holds a block gives it back without waiting for another rank, or on request: while
// somebody is without one (starving()), holders let go of blocks whose message has not been
// accepted yet. So communicators that share the pool never wait for each other.
//
// Thread rule: any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <mutex>
#include <vector>

#include "lib/base/status.h"
#include "lib/device/accelerator.h"

namespace hetccl::run {

class StagingPool {
 public:
  // `allocate` gives the pool its memory, once, at the first use.
  using Allocate = std::function<Result<void*>(size_t bytes)>;
  StagingPool(size_t bytes, Allocate allocate);

  // Makes the pool's memory known to a device. Allocates it if need be.
  Status open(device::Accelerator* accelerator);

  static constexpr size_t kBlock = 64 << 10;

  // Consecutive blocks of `bytes` in all, or null while there are none.
  std::byte* take(size_t bytes);
  void give_back(std::byte* memory, size_t bytes);

  // At least half of the pool is left if `bytes` are taken: what is held until another rank acts
  // must not take more.
  bool has_plenty(size_t bytes) const {
    return free_.load(std::memory_order_relaxed) >= blocks_of(bytes) + (blocks_ + 1) / 2;
  }

  // Counts those who were refused and have not got any since.
  void starve(bool starving);
  bool starving() const { return starving_.load(std::memory_order_relaxed) != 0; }

  size_t bytes() const { return blocks_ * kBlock; }

 private:
  static size_t blocks_of(size_t bytes) { return (bytes + kBlock - 1) / kBlock; }

  const size_t blocks_;
  const Allocate allocate_;
  std::mutex mutex_;
  std::byte* memory_ = nullptr;
  std::vector<bool> taken_;  // by block
  size_t next_ = 0;          // where to look first
  std::vector<device::Accelerator*> known_;
  std::atomic<size_t> free_;
  std::atomic<int> starving_{0};
};

}  // namespace hetccl::run

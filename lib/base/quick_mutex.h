// A mutex that costs two atomic operations where nobody waits: a call of a few dozen nanoseconds
// notices more. Waiters sleep; those with a deadline look again at short intervals.
//
// Thread rule: any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <thread>

namespace hetccl {

class QuickMutex {
 public:
  void lock() {
    if (!try_lock()) lock_slowly();
  }
  bool try_lock() {
    int expected = kFree;
    return state_.compare_exchange_strong(expected, kHeld, std::memory_order_acquire,
                                          std::memory_order_relaxed);
  }
  template <typename Clock, typename Duration>
  bool try_lock_until(const std::chrono::time_point<Clock, Duration>& end) {
    while (!try_lock()) {
      if (Clock::now() >= end) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    return true;
  }
  void unlock() {
    if (state_.exchange(kFree, std::memory_order_release) == kAwaited) state_.notify_one();
  }

 private:
  static constexpr int kFree = 0, kHeld = 1, kAwaited = 2;

  // Whoever had to wait leaves the mark for others who may still do.
  __attribute__((noinline)) void lock_slowly() {
    while (state_.exchange(kAwaited, std::memory_order_acquire) != kFree) {
      state_.wait(kAwaited, std::memory_order_relaxed);
    }
  }

  std::atomic<int> state_{kFree};
};

}  // namespace hetccl

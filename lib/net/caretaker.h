// Network work does not end with the call that began it: a small message may still wait for its
// connection, or for the kernel to take its last bytes, when the caller goes on to compute. UCX
// moves only when it is asked to, so a thread of the process asks on behalf of callers that have
// left.
//
// While calls follow each other the thread only looks at a counter, a thousand times a second; with
// no call at all it sleeps. Thread rule: any thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "lib/net/ucx_worker.h"

namespace hetccl::net {

class Caretaker {
 public:
  // `worker` lives as long as the process, as the thread does.
  explicit Caretaker(UcxWorker* worker);
  // A caller that used the network will not make progress for a while.
  void caller_left() {
    left_.fetch_add(1, std::memory_order_seq_cst);
    if (asleep_.load(std::memory_order_seq_cst)) left_.notify_one();
  }

 private:
  void run();
  void sleep_until_needed(uint32_t seen);
  void flush();

  UcxWorker* const worker_;
  std::atomic<uint32_t> left_{0};
  std::atomic<bool> asleep_{false};
};

}  // namespace hetccl::net

#include "lib/net/caretaker.h"

#include <sched.h>
#include <unistd.h>

#include <mutex>

#include "lib/base/thread.h"

namespace hetccl::net {
namespace {

constexpr useconds_t kTick_us = 1000;
constexpr int kIdleTicks = 100;    // before the thread sleeps
constexpr int kEagerRounds = 100;  // of a flush, before it takes its time

}  // namespace

Caretaker::Caretaker(UcxWorker* worker) : worker_(worker) {
  start_detached_thread("hetccl-network", [this] { run(); });
}

void Caretaker::run() {
  uint32_t flushed = 0;
  int idle = 0;
  for (;;) {
    const uint32_t seen = left_.load(std::memory_order_seq_cst);
    if (seen == flushed && ++idle > kIdleTicks) sleep_until_needed(seen);
    usleep(kTick_us);
    // Calls that came since have made progress for all, and the last of them counts anew.
    if (seen == flushed || left_.load(std::memory_order_seq_cst) != seen) continue;
    flush();
    flushed = seen;
    idle = 0;
  }
}

void Caretaker::sleep_until_needed(uint32_t seen) {
  asleep_.store(true, std::memory_order_seq_cst);
  left_.wait(seen, std::memory_order_seq_cst);  // returns at once if someone has left since
  asleep_.store(false, std::memory_order_seq_cst);
}

// Until all that was sent is on its way.
void Caretaker::flush() {
  ucs_status_ptr_t request;
  ucp_request_param_t params{};
  {
    std::lock_guard lock(worker_->mutex());
    request = ucp_worker_flush_nbx(worker_->handle(), &params);
  }
  if (!UCS_PTR_IS_PTR(request)) return;  // done, or a connection failed, which others report
  for (int round = 0; ucp_request_check_status(request) == UCS_INPROGRESS; ++round) {
    {
      std::unique_lock lock(worker_->mutex(), std::try_to_lock);
      if (lock.owns_lock()) ucp_worker_progress(worker_->handle());
    }
    if (round < kEagerRounds) {
      sched_yield();
    } else {
      usleep(kTick_us);
    }
  }
  std::lock_guard lock(worker_->mutex());
  ucp_request_free(request);
}

}  // namespace hetccl::net

#include "lib/run/progress_thread.h"

#include <sched.h>

#include <algorithm>

#include "lib/base/thread.h"

namespace hetccl::run {

ProgressThread::ProgressThread() {
  start_detached_thread("hetccl-progress", [this] { run(); });
}

void ProgressThread::submit(Task* task) {
  {
    std::lock_guard lock(mutex_);
    inbox_.push_back(task);
  }
  bell_.fetch_add(1, std::memory_order_seq_cst);
  if (asleep_.load(std::memory_order_seq_cst)) bell_.notify_one();
}

void ProgressThread::run() {
  for (;;) {
    if (active_.empty()) wait_for_work();
    {
      std::lock_guard lock(mutex_);
      active_.insert(active_.end(), inbox_.begin(), inbox_.end());
      inbox_.clear();
    }
    bool moved = false;
    auto finished = [&](Task* task) {
      const Task::Step step = task->poll();
      moved |= step != Task::Step::kIdle;
      return step == Task::Step::kDone;
    };
    active_.erase(std::remove_if(active_.begin(), active_.end(), finished), active_.end());
    if (!moved) sched_yield();
  }
}

void ProgressThread::wait_for_work() {
  const uint32_t seen = bell_.load(std::memory_order_seq_cst);
  {
    std::lock_guard lock(mutex_);
    if (!inbox_.empty()) return;
  }
  asleep_.store(true, std::memory_order_seq_cst);
  bell_.wait(seen, std::memory_order_seq_cst);  // returns at once if the bell has rung since
  asleep_.store(false, std::memory_order_seq_cst);
}

}  // namespace hetccl::run

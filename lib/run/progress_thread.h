// One thread a process that finishes calls given to streams. It sleeps on a futex while there is
// nothing to do; handing it a task rings the bell only if it sleeps.
#pragma once

#include <atomic>
#include <mutex>
#include <vector>

namespace hetccl::run {

class Task {
 public:
  enum class Step { kIdle, kMoved, kDone };
  virtual ~Task() = default;
  // Called on the progress thread until it says kDone; the thread does not touch the task after.
  virtual Step poll() = 0;
};

// Any thread. Never destroyed while the process lives: the thread is detached.
class ProgressThread {
 public:
  ProgressThread();
  // The task stays alive until its poll() has said kDone. Tasks are polled in the order given.
  void submit(Task* task);

 private:
  void run();
  void wait_for_work();

  std::mutex mutex_;
  std::vector<Task*> inbox_;
  std::vector<Task*> active_;  // the thread's own
  std::atomic<uint32_t> bell_{0};
  std::atomic<bool> asleep_{false};
};

}  // namespace hetccl::run

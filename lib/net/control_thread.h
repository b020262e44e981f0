// The one thread of a process that serves the sockets of the control plane. Started at first use,
// never joined, never destroyed: a process may exit at any moment without asking it. It blocks all
// signals, so that the program's handlers run on the program's own threads.
//
// A forked child has no such thread; what it inherited is inert there, and its first own use starts
// a new one.
//
// Thread rule: get, call and post from any thread; the rest on the control thread only.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "lib/base/status.h"
#include "lib/net/sockets.h"

namespace hetccl::net {

using Clock = std::chrono::steady_clock;

class ControlThread {
 public:
  static Result<ControlThread*> get();

  // Runs `task` on the control thread and returns when it has run; at once where the caller is that
  // thread. False: nothing was run, since this is a forked child of the thread's process.
  bool call(const std::function<void()>& task);
  bool post(std::function<void()> task);
  bool on_thread() const;

  // `events` as in epoll_ctl. The token stays valid until forget().
  uint64_t watch(int fd, uint32_t events, std::function<void(uint32_t)> on_event);
  void change(uint64_t token, int fd, uint32_t events);
  void forget(uint64_t token, int fd);

  uint64_t after(std::chrono::milliseconds delay, std::function<void()> task);
  void cancel(uint64_t timer);

 private:
  ControlThread() = default;
  Status start();
  void run();
  void run_tasks();
  void run_timers();
  int next_timeout() const;

  using Handler = std::shared_ptr<std::function<void(uint32_t)>>;
  using TimerKey = std::pair<Clock::time_point, uint64_t>;

  uint64_t generation_ = 0;
  pthread_t thread_{};
  Fd epoll_;
  Fd wake_;
  std::mutex mutex_;  // of tasks_
  std::vector<std::function<void()>> tasks_;
  uint64_t next_token_ = 1;
  std::unordered_map<uint64_t, Handler> handlers_;
  std::map<TimerKey, std::function<void()>> timers_;
  std::unordered_map<uint64_t, Clock::time_point> timer_times_;
};

}  // namespace hetccl::net

#include "lib/net/control_thread.h"

#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <exception>
#include <string>

#include "lib/base/log.h"

namespace hetccl::net {
namespace {

constexpr uint64_t kWakeToken = 0;

// One for each generation of forks, and leaked: a child that was forked while another thread held
// the mutex finds one of its own.
struct Instance {
  uint64_t generation;
  std::mutex mutex;
  ControlThread* thread = nullptr;
  explicit Instance(uint64_t g) : generation(g) {}
};

Instance& instance() {
  static std::atomic<Instance*> current{nullptr};
  const uint64_t generation = fork_generation();
  Instance* seen = current.load();
  while (seen == nullptr || seen->generation != generation) {
    auto made = std::make_unique<Instance>(generation);
    if (current.compare_exchange_strong(seen, made.get())) return *made.release();
  }
  return *seen;
}

// What fails inside one event must not end the process, nor the other sessions.
template <typename F>
void guarded(F&& f) {
  try {
    f();
  } catch (const std::exception& e) {
    log::warn(std::string("control thread: ") + e.what());
  }
}

struct Waiter {
  std::mutex mutex;
  std::condition_variable condition;
  bool done = false;
};

}  // namespace

Result<ControlThread*> ControlThread::get() {
  Instance& current = instance();
  std::lock_guard lock(current.mutex);
  if (current.thread == nullptr) {
    auto made = std::unique_ptr<ControlThread>(new ControlThread);
    Status status = made->start();
    if (!status.ok()) return status;
    current.thread = made.release();
  }
  return current.thread;
}

Status ControlThread::start() {
  epoll_ = Fd::open([] { return ::epoll_create1(EPOLL_CLOEXEC); });
  if (!epoll_.valid()) return system_error("epoll_create1 failed: " + error_text(errno));
  wake_ = Fd::open([] { return ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); });
  if (!wake_.valid()) return system_error("eventfd failed: " + error_text(errno));
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kWakeToken;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event) != 0) {
    return system_error("epoll_ctl failed: " + error_text(errno));
  }
  generation_ = fork_generation();
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int error = pthread_create(
      &thread_, nullptr,
      [](void* self) -> void* {
        pthread_setname_np(pthread_self(), "hetccl-control");
        static_cast<ControlThread*>(self)->run();
        return nullptr;
      },
      this);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error != 0) {
    return system_error("cannot start the control thread: " + error_text(error) +
                        " (limit of processes: ulimit -u)");
  }
  pthread_detach(thread_);
  return {};
}

bool ControlThread::on_thread() const {
  return generation_ == fork_generation() && pthread_equal(pthread_self(), thread_) != 0;
}

bool ControlThread::post(std::function<void()> task) {
  if (generation_ != fork_generation()) return false;
  {
    std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  const uint64_t one = 1;
  // Fails only when the counter is full, and then the thread is awake anyway.
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof(one));
  return true;
}

bool ControlThread::call(const std::function<void()>& task) {
  if (on_thread()) {
    task();
    return true;
  }
  auto waiter = std::make_shared<Waiter>();
  const bool posted = post([&task, waiter] {
    guarded(task);
    std::lock_guard lock(waiter->mutex);
    waiter->done = true;
    waiter->condition.notify_all();
  });
  if (!posted) return false;
  std::unique_lock lock(waiter->mutex);
  waiter->condition.wait(lock, [&] { return waiter->done; });
  return true;
}

uint64_t ControlThread::watch(int fd, uint32_t events, std::function<void(uint32_t)> on_event) {
  const uint64_t token = next_token_++;
  epoll_event event{};
  event.events = events;
  event.data.u64 = token;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    log::warn("control thread: cannot watch a descriptor: " + error_text(errno));
  }
  handlers_[token] = std::make_shared<std::function<void(uint32_t)>>(std::move(on_event));
  return token;
}

void ControlThread::change(uint64_t token, int fd, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = token;
  (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

void ControlThread::forget(uint64_t token, int fd) {
  (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  handlers_.erase(token);
}

uint64_t ControlThread::after(std::chrono::milliseconds delay, std::function<void()> task) {
  const uint64_t timer = next_token_++;
  const Clock::time_point when = Clock::now() + delay;
  timers_[{when, timer}] = std::move(task);
  timer_times_[timer] = when;
  return timer;
}

void ControlThread::cancel(uint64_t timer) {
  auto found = timer_times_.find(timer);
  if (found == timer_times_.end()) return;
  timers_.erase({found->second, timer});
  timer_times_.erase(found);
}

void ControlThread::run_tasks() {
  uint64_t count;
  [[maybe_unused]] const ssize_t got = ::read(wake_.get(), &count, sizeof(count));
  std::vector<std::function<void()>> tasks;
  {
    std::lock_guard lock(mutex_);
    tasks.swap(tasks_);
  }
  for (auto& task : tasks) guarded(task);
}

void ControlThread::run_timers() {
  while (!timers_.empty() && timers_.begin()->first.first <= Clock::now()) {
    auto first = timers_.begin();
    const std::function<void()> task = std::move(first->second);
    timer_times_.erase(first->first.second);
    timers_.erase(first);
    guarded(task);
  }
}

int ControlThread::next_timeout() const {
  if (timers_.empty()) return -1;
  const auto wait =
      std::chrono::ceil<std::chrono::milliseconds>(timers_.begin()->first.first - Clock::now());
  return static_cast<int>(std::clamp<int64_t>(wait.count(), 0, 60'000));
}

void ControlThread::run() {
  std::array<epoll_event, 64> events;
  for (;;) {
    const int count =
        ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), next_timeout());
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<size_t>(i)];
      if (event.data.u64 == kWakeToken) {
        run_tasks();
        continue;
      }
      auto found = handlers_.find(event.data.u64);
      if (found == handlers_.end()) continue;  // forgotten by an earlier event of this round
      const Handler handler = found->second;
      guarded([&] { (*handler)(event.events); });
    }
    run_timers();
  }
}

}  // namespace hetccl::net

// What runs the work of one simulated vendor: streams, which keep work in order, and the engines of
// each device, threads which do it one piece at a time.
//
// Simulated time. With a rate set, a piece of work takes as long as its bytes take at that rate.
// The thread does it at once and then sleeps until it is due. A stream and an engine each have a
// clock that advances by what work takes, not by when a thread woke up, so that late wake-ups do
// not add up, and work that many processes share few cores for catches up.
//
// Thread rule: any thread. Engines live as long as the process.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "lib/device/sim/memory.h"

namespace hetccl::device::sim {

using Clock = std::chrono::steady_clock;
using Time = Clock::time_point;

class Stream;
using StreamPointer = std::shared_ptr<Stream>;

// Something that happens once: an event is recorded, a gate opens.
struct Moment {
  std::atomic<bool> done = false;
  // The rest is guarded by the scheduler's lock; `error` stays as it is once done.
  Status error;  // of the work before it
  Time time{};
  std::vector<StreamPointer> waiting;
};
using MomentPointer = std::shared_ptr<Moment>;

struct Work {
  enum class What { kCopy, kCombine, kRecord, kWait } what = What::kCopy;
  SimOptions::Stage stage = SimOptions::kCompute;  // kCopy, kCombine
  Time given{};

  void* destination = nullptr;  // kCopy
  const void* source = nullptr;
  size_t bytes = 0;         // also kCombine: of all sources, for the time that it takes
  bool plain_host = false;  // the caller waits, so host memory need not be registered

  Reduction reduction{};  // kCombine
  std::vector<Source> sources;
  Combine combine{};

  MomentPointer moment;  // kRecord, kWait
};

// An engine of a device and those streams whose first work it is to do.
struct Engine {
  std::condition_variable wake;
  std::deque<StreamPointer> ready;
  Time clock{};
  bool running = false;  // its thread was started
};

struct SimDevice {
  int ordinal = 0;
  std::string name;  // "sim:cuda:0"
  Engine in, out, compute;
  std::atomic<bool> is_lost = false;
  Status lost;  // constant once is_lost
};

class Stream {
 public:
  explicit Stream(SimDevice* device) : device(device) {}
  SimDevice* const device;
  std::atomic<size_t> pending = 0;
  std::atomic<bool> failed = false;
  std::atomic<bool> capturing = false;

 private:
  friend class Scheduler;
  std::deque<Work> work_;
  Status error_;  // constant once `failed`
  Time clock_{};
};

class Scheduler {
 public:
  explicit Scheduler(MemorySpace* memory);

  // An error, and nothing is done, where the stream or its device has failed before; a record then
  // still completes, with that error.
  Status submit(const StreamPointer& stream, Work work);
  Status wait_for(const MomentPointer& moment);
  void complete(const MomentPointer& moment);  // a gate opens
  Status error_of(const Stream& stream);
  // The device is lost, for good.
  static void lose(SimDevice* device, const std::string& why);

 private:
  void advance();
  bool take_first(const StreamPointer& stream);
  void finish(Moment* moment, Time time, const Status& error);
  static void fail(Stream* stream, const Status& error);
  Engine& engine_of(SimDevice* device, SimOptions::Stage stage);
  void run(SimDevice* device, Engine* engine);
  Status perform(SimDevice* device, const Work& work);
  Status copy(const Work& work);
  Status combine(const Work& work);

  MemorySpace& memory_;
  Device& processor_;
  std::mutex mutex_;
  std::condition_variable moment_came_;
  int callers_waiting_ = 0;
  std::vector<StreamPointer> runnable_;  // whose first work is to be looked at
};

}  // namespace hetccl::device::sim

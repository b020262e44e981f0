#include "lib/device/sim/engine.h"

#include <sys/prctl.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "lib/base/thread.h"

namespace hetccl::device::sim {
namespace {

void sleep_until(Time due) {
  const auto ns =
      std::chrono::duration_cast<std::chrono::nanoseconds>(due.time_since_epoch()).count();
  const timespec at = {static_cast<time_t>(ns / 1'000'000'000),
                       static_cast<long>(ns % 1'000'000'000)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, nullptr) == EINTR) {
  }
}

// Memory that stays where it is until the end of the scope.
class Pins {
 public:
  explicit Pins(MemorySpace* memory) : memory_(*memory) {}
  Pins(const Pins&) = delete;
  Pins& operator=(const Pins&) = delete;
  ~Pins() {
    for (const void* p : pinned_) memory_.unpin(p);
  }
  Status add(const void* pointer, size_t bytes) {
    Status s = memory_.pin(pointer, bytes);
    if (s.ok()) pinned_.push_back(pointer);
    return s;
  }

 private:
  MemorySpace& memory_;
  std::vector<const void*> pinned_;
};

}  // namespace

Scheduler::Scheduler(MemorySpace* memory) : memory_(*memory), processor_(**host_device("auto")) {}

void Scheduler::lose(SimDevice* device, const std::string& why) {
  if (device->is_lost) return;
  device->lost = Status(hetcclUnhandledDeviceError, device->name + ": device lost: " + why);
  device->is_lost.store(true, std::memory_order_release);
}

void Scheduler::fail(Stream* stream, const Status& error) {
  if (stream->failed) return;
  stream->error_ = error;
  stream->failed.store(true, std::memory_order_release);
}

Status Scheduler::error_of(const Stream& stream) {
  if (stream.device->is_lost.load(std::memory_order_acquire)) return stream.device->lost;
  return stream.failed.load(std::memory_order_acquire) ? stream.error_ : Status();
}

Status Scheduler::submit(const StreamPointer& stream, Work work) {
  work.given = Clock::now();
  const std::lock_guard lock(mutex_);
  Status error = error_of(*stream);
  if (!error.ok()) {
    if (work.what == Work::What::kRecord) finish(work.moment.get(), work.given, error);
    advance();
    return error;
  }
  stream->pending.fetch_add(1, std::memory_order_relaxed);
  stream->work_.push_back(std::move(work));
  if (stream->work_.size() == 1) {
    runnable_.push_back(stream);
    advance();
  }
  return {};
}

Status Scheduler::wait_for(const MomentPointer& moment) {
  std::unique_lock lock(mutex_);
  ++callers_waiting_;
  moment_came_.wait(lock, [&] { return moment->done.load(std::memory_order_relaxed); });
  --callers_waiting_;
  return moment->error;
}

void Scheduler::complete(const MomentPointer& moment) {
  const std::lock_guard lock(mutex_);
  if (moment->done) return;
  finish(moment.get(), Clock::now(), {});
  advance();
}

void Scheduler::finish(Moment* moment, Time time, const Status& error) {
  moment->error = error;
  moment->time = time;
  moment->done.store(true, std::memory_order_release);
  for (StreamPointer& s : moment->waiting) runnable_.push_back(std::move(s));
  moment->waiting.clear();
  if (callers_waiting_ > 0) moment_came_.notify_all();
}

// Does what needs no engine, in all streams that may have come to it; hands the rest to engines.
void Scheduler::advance() {
  while (!runnable_.empty()) {
    const StreamPointer stream = std::move(runnable_.back());
    runnable_.pop_back();
    while (!stream->work_.empty() && take_first(stream)) {
      stream->work_.pop_front();
      stream->pending.fetch_sub(1, std::memory_order_release);
    }
  }
}

// False: it waits, or an engine has it.
bool Scheduler::take_first(const StreamPointer& stream) {
  Work& work = stream->work_.front();
  SimDevice* const device = stream->device;
  if (device->is_lost) fail(stream.get(), device->lost);
  stream->clock_ = std::max(stream->clock_, work.given);
  switch (work.what) {
    case Work::What::kRecord:
      finish(work.moment.get(), stream->clock_, stream->error_);
      return true;
    case Work::What::kWait:
      if (stream->failed) return true;
      if (!work.moment->done) {
        work.moment->waiting.push_back(stream);
        return false;
      }
      if (!work.moment->error.ok()) fail(stream.get(), work.moment->error);
      stream->clock_ = std::max(stream->clock_, work.moment->time);
      return true;
    case Work::What::kCopy:
    case Work::What::kCombine:
      break;
  }
  if (stream->failed) return true;
  Engine& engine = engine_of(device, work.stage);
  engine.ready.push_back(stream);
  engine.wake.notify_one();
  return false;
}

// Copies within and between devices share the engine of kernels.
Engine& Scheduler::engine_of(SimDevice* device, SimOptions::Stage stage) {
  Engine& engine = stage == SimOptions::kHostToDevice   ? device->in
                   : stage == SimOptions::kDeviceToHost ? device->out
                                                        : device->compute;
  if (!engine.running) {
    engine.running = true;
    const char* name = &engine == &device->in    ? "hetccl-sim-in"
                       : &engine == &device->out ? "hetccl-sim-out"
                                                 : "hetccl-sim-run";
    start_detached_thread(name, [this, device, &engine] { run(device, &engine); });
  }
  return engine;
}

void Scheduler::run(SimDevice* device, Engine* engine) {
  prctl(PR_SET_TIMERSLACK, 1000ul, 0ul, 0ul, 0ul);  // ns; the default adds 50 us to each sleep
  std::unique_lock lock(mutex_);
  for (;;) {
    engine->wake.wait(lock, [&] { return !engine->ready.empty(); });
    const StreamPointer stream = std::move(engine->ready.front());
    engine->ready.pop_front();
    // It stays the stream's first, and so where it is, until it is taken out below.
    const Work& work = stream->work_.front();
    const Time begin = std::max(engine->clock, stream->clock_);
    lock.unlock();
    const Status error = perform(device, work);
    const SimOptions& o = options();
    const double rate = o.rates[work.stage];
    Time end = Clock::now();
    if (rate > 0 || o.latency.count() > 0) {
      const double seconds = rate > 0 ? static_cast<double>(work.bytes) / rate : 0;
      const Time due =
          begin + o.latency + std::chrono::nanoseconds(static_cast<int64_t>(seconds * 1e9));
      if (due > end) sleep_until(due);
      end = rate > 0 ? due : std::max(due, end);
    }
    lock.lock();
    engine->clock = end;
    stream->clock_ = end;
    if (!error.ok()) fail(stream.get(), error);
    stream->work_.pop_front();
    stream->pending.fetch_sub(1, std::memory_order_release);
    runnable_.push_back(stream);
    advance();
  }
}

Status Scheduler::perform(SimDevice* device, const Work& work) {
  if (device->is_lost.load(std::memory_order_acquire)) return device->lost;
  const bool is_copy = work.what == Work::What::kCopy;
  if (fails_now(is_copy)) {
    const std::lock_guard lock(mutex_);
    lose(device, is_copy ? "HETCCL_SIM=fail_copy=... asked for it"
                         : "HETCCL_SIM=fail_combine=... asked for it");
    return device->lost;
  }
  const Status s = is_copy ? copy(work) : combine(work);
  if (s.ok()) return s;
  return {s.code(), device->name + ": " + (is_copy ? "copying: " : "combining: ") + s.message()};
}

Status Scheduler::copy(const Work& work) {
  Pins pins(&memory_);
  for (const void* end : {static_cast<const void*>(work.destination), work.source}) {
    if (work.plain_host && !memory_.is_device(end)) continue;
    if (Status s = pins.add(end, work.bytes); !s.ok()) return s;
  }
  std::memmove(memory_.alias(work.destination), memory_.alias(work.source), work.bytes);
  return {};
}

Status Scheduler::combine(const Work& work) {
  const auto width = [&](bool wide) {
    return wide ? accumulator_size(work.reduction.type, work.reduction.op)
                : size_of(work.reduction.type);
  };
  Pins pins(&memory_);
  Combine what = work.combine;
  Status s = pins.add(what.destination, what.count * width(what.wide));
  std::vector<Source> sources;
  for (const Source& source : work.sources) {
    if (s.ok()) s = pins.add(source.data, what.count * width(source.wide));
    sources.push_back({memory_.alias(source.data), source.wide});
  }
  if (!s.ok()) return s;
  what.destination = memory_.alias(what.destination);
  what.sources = sources;
  processor_.combine(work.reduction, what);
  return {};
}

}  // namespace hetccl::device::sim

#include "lib/device/gpu/queue.h"

#include <algorithm>

#include "lib/device/gpu/launch.h"

namespace hetccl::device::gpu {
namespace {

class GpuGate final : public Gate {
 public:
  GpuGate(Flags* flags, Flags::Flag flag) : flags_(*flags), flag_(flag) {}
  // A gate that is forgotten would stop the user's stream for ever.
  ~GpuGate() override { open(); }
  void open() override {
    if (opened_) return;
    opened_ = true;
    std::atomic_ref(*flag_.word).store(flag_.value, std::memory_order_release);
    flags_.give_back(flag_);
  }

 private:
  Flags& flags_;
  const Flags::Flag flag_;
  bool opened_ = false;
};

const GpuEvent& ours(const Event& event) { return static_cast<const GpuEvent&>(event); }

}  // namespace

vendor::Error Flags::grow() {
  void* words = nullptr;
  size_t count = 0;
  const vendor::Error error = vendor::make_flags(&words, &count);
  if (error != GPU(Success)) return error;
  for (size_t i = 0; i < count; ++i) {
    char* word = static_cast<char*>(words) + i * vendor::kFlagStride;
    free_.push_back({reinterpret_cast<uint32_t*>(word), 0});
  }
  return GPU(Success);
}

vendor::Error Flags::prepare() {
  const std::lock_guard lock(mutex_);
  return free_.empty() ? grow() : GPU(Success);
}

vendor::Error Flags::take(Flag* flag) {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) {
    if (const vendor::Error error = grow(); error != GPU(Success)) return error;
  }
  *flag = free_.back();
  free_.pop_back();
  ++flag->value;
  return GPU(Success);
}

void Flags::give_back(Flag flag) {
  const std::lock_guard lock(mutex_);
  free_.push_back(flag);
}

vendor::Error Scratch::find(size_t bytes, Piece** piece) {
  for (Piece& p : pieces_) {
    if (p.bytes < bytes) continue;
    const vendor::Error error = GPU(EventQuery)(p.last_use);
    if (error == GPU(Success)) {
      *piece = &p;
      return error;
    }
    (void)GPU(GetLastError)();
    if (error != GPU(ErrorNotReady)) return error;
  }
  Piece made = {nullptr, std::max<size_t>(bytes, 64 << 10), nullptr};
  vendor::Error error = GPU(EventCreateWithFlags)(&made.last_use, GPU(EventDisableTiming));
  if (error != GPU(Success)) return error;
  error = GPU(Malloc)(&made.memory, made.bytes);
  if (error != GPU(Success)) {
    (void)GPU(EventDestroy)(made.last_use);
    return error;
  }
  pieces_.push_back(made);
  *piece = &pieces_.back();
  return GPU(Success);
}

Result<std::unique_ptr<Event>> GpuEvent::make(int ordinal) {
  vendor::RawEvent event = nullptr;
  const Status s =
      check(on(ordinal, [&] { return GPU(EventCreateWithFlags)(&event, GPU(EventDisableTiming)); }),
            ordinal, "making an event");
  if (!s.ok()) return s;
  return std::unique_ptr<Event>(new GpuEvent(ordinal, event));
}

GpuEvent::~GpuEvent() {
  if (on(ordinal_, [&] { return GPU(EventDestroy)(event_); }) != GPU(Success)) {
    (void)GPU(GetLastError)();
  }
}

// Of the highest priority, so that the few blocks of a collective do not queue behind the program's
// kernels. It also keeps these streams off the hardware queues of streams of the usual priority:
// those have few, and a stream that waits at a gate may stop all that share its queue, ours too if
// they were there; then nothing would open the gate.
Result<std::unique_ptr<Queue>> GpuQueue::make(QueueParts* parts) {
  vendor::Stream stream = nullptr;
  const vendor::Error error = on(parts->ordinal, [&] {
    int least = 0, greatest = 0;
    const vendor::Error e = GPU(DeviceGetStreamPriorityRange)(&least, &greatest);
    if (e != GPU(Success)) return e;
    return GPU(StreamCreateWithPriority)(&stream, GPU(StreamNonBlocking), greatest);
  });
  if (error != GPU(Success)) return failure(error, parts->ordinal, "making a stream");
  return std::unique_ptr<Queue>(new GpuQueue(parts, stream, true));
}

GpuQueue::~GpuQueue() {
  if (!own_) return;
  if (on(parts_.ordinal, [&] { return GPU(StreamDestroy)(stream_); }) != GPU(Success)) {
    (void)GPU(GetLastError)();
  }
}

Status GpuQueue::copy(void* destination, const void* source, size_t bytes) {
  if (bytes == 0 || destination == source) return {};
  const vendor::Error error = on(parts_.ordinal, [&] {
    return GPU(MemcpyAsync)(destination, source, bytes, GPU(MemcpyDefault), stream_);
  });
  if (error == GPU(Success)) return {};
  return failure(error, parts_.ordinal, "copying " + std::to_string(bytes) + " bytes");
}

Status GpuQueue::combine(const Reduction& reduction, const Combine& what) {
  if (what.count == 0) return {};
  constexpr size_t kFew = 16;
  KernelSource few[kFew];
  std::vector<KernelSource> many;
  KernelSource* sources = few;
  if (what.sources.size() > kFew) {
    many.resize(what.sources.size());
    sources = many.data();
  }
  for (size_t i = 0; i < what.sources.size(); ++i) {
    sources[i] = {parts_.registrations->device_address(what.sources[i].data), what.sources[i].wide};
  }
  void* destination = const_cast<void*>(parts_.registrations->device_address(what.destination));
  Launch launch = {{destination, sources, what.sources.size(), what.count, reduction.ranks,
                    what.wide, what.finalize},
                   reduction.type,
                   reduction.op,
                   stream_,
                   parts_.max_blocks->load(std::memory_order_relaxed),
                   nullptr};
  const size_t bytes = scratch_bytes(launch);
  const auto run = [&](void* scratch) {
    launch.scratch = scratch;
    return static_cast<vendor::Error>(launch_combine(launch));
  };
  const vendor::Error error = on(parts_.ordinal, [&] {
    return bytes == 0 ? run(nullptr) : parts_.scratch.with(bytes, stream_, run);
  });
  if (error == GPU(Success)) return {};
  return failure(error, parts_.ordinal,
                 "combining " + std::to_string(what.sources.size()) + " arrays of " +
                     std::to_string(what.count) + " " +
                     std::string(hetccl::name_of(reduction.type)));
}

Status GpuQueue::record(Event* event) {
  return check(on(parts_.ordinal, [&] { return GPU(EventRecord)(ours(*event).raw(), stream_); }),
               parts_.ordinal, "recording an event");
}

Status GpuQueue::wait(const Event& event) {
  return check(
      on(parts_.ordinal, [&] { return GPU(StreamWaitEvent)(stream_, ours(event).raw(), 0); }),
      parts_.ordinal, "waiting for an event in a stream");
}

Result<std::unique_ptr<Gate>> GpuQueue::hold() {
  if (!parts_.gates) {
    return invalid_usage(std::string(vendor::kName) + ":" + std::to_string(parts_.ordinal) +
                         " cannot keep a stream waiting for memory to change; wait for it on the "
                         "host");
  }
  Flags::Flag flag;
  const vendor::Error error = on(parts_.ordinal, [&] {
    const vendor::Error e = parts_.flags.take(&flag);
    if (e != GPU(Success)) return e;
    const vendor::Error waiting = vendor::wait_flag(stream_, flag.word, flag.value);
    if (waiting != GPU(Success)) parts_.flags.give_back(flag);
    return waiting;
  });
  if (error != GPU(Success)) return failure(error, parts_.ordinal, "keeping a stream waiting");
  return std::unique_ptr<Gate>(new GpuGate(&parts_.flags, flag));
}

Result<bool> GpuQueue::idle() {
  const vendor::Error error = on(parts_.ordinal, [&] { return GPU(StreamQuery)(stream_); });
  if (error == GPU(Success)) return true;
  if (error != GPU(ErrorNotReady)) return failure(error, parts_.ordinal, "work in a stream");
  (void)GPU(GetLastError)();
  return false;
}

Status GpuQueue::synchronize() {
  return check(on(parts_.ordinal, [&] { return GPU(StreamSynchronize)(stream_); }), parts_.ordinal,
               "work in a stream");
}

}  // namespace hetccl::device::gpu

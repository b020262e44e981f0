#include "lib/device/sim/accelerator.h"

#include <map>
#include <mutex>
#include <optional>

namespace hetccl::device {
namespace sim {
namespace {

// The native streams of both vendors. Handles are numbers that are no addresses of a process, and
// are never used again.
struct Streams {
  std::mutex mutex;
  std::map<uintptr_t, StreamPointer> alive;
  uintptr_t last = uintptr_t{1} << 63;
};

Streams& streams() {
  static Streams& s = *new Streams;
  return s;
}

StreamPointer find_stream(hetcclStream_t handle) {
  Streams& s = streams();
  const std::lock_guard lock(s.mutex);
  const auto at = s.alive.find(reinterpret_cast<uintptr_t>(handle));
  return at == s.alive.end() ? nullptr : at->second;
}

constexpr Kind kKinds[] = {hetcclMemorySimCuda, hetcclMemorySimHip};

int index_of(Kind kind) { return kind == hetcclMemorySimCuda ? 0 : 1; }

thread_local int current_ordinals[std::size(kKinds)] = {0, 0};

}  // namespace

SimAccelerator::SimAccelerator(SimBackend* backend, int ordinal) : backend_(*backend) {
  device_.ordinal = ordinal;
  device_.name = std::string(name_of(backend->kind())) + ":" + std::to_string(ordinal);
  default_stream_ = std::make_shared<Stream>(&device_);
}

Kind SimAccelerator::kind() const { return backend_.kind(); }

Abilities SimAccelerator::abilities() const {
  const SimOptions& o = options();
  return {o.ipc != SimOptions::Ability::kOff, o.direct != SimOptions::Ability::kOff, o.gate};
}

Status SimAccelerator::check_alive() const {
  return device_.is_lost.load(std::memory_order_acquire) ? device_.lost : Status();
}

Result<void*> SimAccelerator::allocate(size_t bytes) {
  backend_.use();
  if (Status s = check_alive(); !s.ok()) return s;
  return backend_.memory().allocate(device_.ordinal, bytes);
}

Status SimAccelerator::free(void* memory) {
  return backend_.memory().free(device_.ordinal, memory);
}

Result<void*> SimAccelerator::allocate_host(size_t bytes) {
  backend_.use();
  if (Status s = check_alive(); !s.ok()) return s;
  return backend_.memory().allocate_host(bytes);
}

Status SimAccelerator::free_host(void* memory) { return backend_.memory().free_host(memory); }

Status SimAccelerator::register_host(void* memory, size_t bytes) {
  if (Status s = check_alive(); !s.ok()) return s;
  return backend_.memory().register_host(memory, bytes);
}

Status SimAccelerator::unregister_host(void* memory) {
  return backend_.memory().unregister_host(memory);
}

std::unique_ptr<Queue> SimAccelerator::queue_of(StreamPointer stream) {
  return std::make_unique<SimQueue>(&backend_.scheduler(), &backend_.memory(), std::move(stream));
}

Result<std::unique_ptr<Queue>> SimAccelerator::make_queue() {
  backend_.use();
  if (Status s = check_alive(); !s.ok()) return s;
  return queue_of(std::make_shared<Stream>(&device_));
}

Result<std::unique_ptr<Event>> SimAccelerator::make_event() {
  if (Status s = check_alive(); !s.ok()) return s;
  return std::unique_ptr<Event>(new SimEvent(&backend_.scheduler(), &device_));
}

Result<bool> SimAccelerator::done(const Event& event) {
  return static_cast<const SimEvent&>(event).done();
}

Result<std::unique_ptr<Queue>> SimAccelerator::adopt(hetcclStream_t handle) {
  if (Status s = check_alive(); !s.ok()) return s;
  if (handle == HETCCL_STREAM_LEGACY) return queue_of(default_stream_);
  StreamPointer stream = find_stream(handle);
  if (stream == nullptr) {
    return invalid_argument("the stream is none of " + device_.name +
                            ": unknown, or destroyed; pass a live stream of this device");
  }
  if (stream->device != &device_) {
    return invalid_argument("the stream belongs to " + stream->device->name +
                            ", the communicator to " + device_.name +
                            "; pass a stream of that device");
  }
  if (stream->capturing) {
    return invalid_usage(
        "the stream is being captured into a graph, which collectives do not "
        "support; call outside of the capture");
  }
  return queue_of(std::move(stream));
}

Result<hetcclStream_t> SimAccelerator::make_stream() {
  backend_.use();
  if (Status s = check_alive(); !s.ok()) return s;
  Streams& all = streams();
  const std::lock_guard lock(all.mutex);
  all.last += 16;
  all.alive[all.last] = std::make_shared<Stream>(&device_);
  return reinterpret_cast<hetcclStream_t>(all.last);
}

Status SimAccelerator::destroy_stream(hetcclStream_t handle) {
  const StreamPointer stream = find_stream(handle);
  if (stream == nullptr || stream->device != &device_) {
    return invalid_argument("destroying a stream that is none of " + device_.name);
  }
  Streams& all = streams();
  const std::lock_guard lock(all.mutex);
  all.alive.erase(reinterpret_cast<uintptr_t>(handle));
  return {};
}

Result<std::string> SimAccelerator::export_memory(const void* memory) {
  if (Status s = check_alive(); !s.ok()) return s;
  return backend_.shared().export_memory(device_.ordinal, memory);
}

Result<void*> SimAccelerator::import_memory(const std::string& handle) {
  if (Status s = check_alive(); !s.ok()) return s;
  return backend_.shared().import_memory(device_.ordinal, handle);
}

Status SimAccelerator::close_memory(void* memory) { return backend_.shared().close_memory(memory); }

void* SimAccelerator::network_address(void* memory) {
  return backend_.memory().network_address(memory);
}

SimBackend::SimBackend(Kind kind, MemorySpace* memory, int devices)
    : kind_(kind), memory_(*memory), shared_(memory), scheduler_(memory) {
  for (int d = 0; d < devices; ++d) {
    accelerators_.push_back(std::make_unique<SimAccelerator>(this, d));
  }
}

Result<Backend*> SimBackend::make(Kind kind) {
  const Result<SimOptions> options = options_in_use();
  if (!options.ok()) return options.status();
  const Result<MemorySpace*> memory = MemorySpace::make(kind, *options);
  if (!memory.ok()) return memory.status();
  return new SimBackend(kind, *memory, options->devices);
}

std::string SimBackend::description() const {
  return std::string(name_of(kind_)) + ": simulated, " + std::to_string(devices()) +
         (devices() == 1 ? " device" : " devices");
}

Result<Accelerator*> SimBackend::device(int ordinal) {
  if (ordinal >= 0 && ordinal < devices()) {
    return static_cast<Accelerator*>(accelerators_[static_cast<size_t>(ordinal)].get());
  }
  return invalid_argument(std::string(name_of(kind_)) + ":" + std::to_string(ordinal) +
                          " does not exist; there are 0 to " + std::to_string(devices() - 1) +
                          " (HETCCL_SIM=devices=... sets how many)");
}

int SimBackend::current_device() {
  return in_use_.load(std::memory_order_relaxed) ? current_ordinals[index_of(kind_)] : -1;
}

}  // namespace sim

Result<Backend*> sim_backend(Kind kind) {
  if (kind != hetcclMemorySimCuda && kind != hetcclMemorySimHip) {
    return invalid_argument("memory kind " + std::to_string(kind) + " is not simulated");
  }
  static std::mutex mutex;
  static Backend* made[std::size(sim::kKinds)] = {};
  const std::lock_guard lock(mutex);
  Backend*& mine = made[sim::index_of(kind)];
  if (mine != nullptr) return mine;
  Result<Backend*> backend = sim::SimBackend::make(kind);
  if (backend.ok()) mine = *backend;
  return backend;
}

Status set_current_device(Kind kind, int ordinal) {
  const Result<Backend*> backend = sim_backend(kind);
  if (!backend.ok()) return backend.status();
  if (const auto device = (*backend)->device(ordinal); !device.ok()) return device.status();
  static_cast<sim::SimBackend*>(*backend)->use();
  sim::current_ordinals[sim::index_of(kind)] = ordinal;
  return {};
}

Status set_capturing(hetcclStream_t stream, bool capturing) {
  const sim::StreamPointer found = sim::find_stream(stream);
  if (found == nullptr) return invalid_argument("not a live stream of a simulated device");
  found->capturing = capturing;
  return {};
}

}  // namespace hetccl::device

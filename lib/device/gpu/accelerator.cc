#include "lib/device/gpu/accelerator.h"

#include <algorithm>

#include "lib/device/gpu/launch.h"

namespace hetccl::device::gpu {

GpuAccelerator::GpuAccelerator(int ordinal, Registrations* registrations,
                               const std::atomic<int>* max_blocks)
    : parts_{ordinal, vendor::can_wait_flags(ordinal), max_blocks, registrations, {}, {}},
      registrations_(*registrations),
      shared_(ordinal),
      description_(std::string(vendor::kName) + ":" + std::to_string(ordinal) + " " +
                   vendor::device_name(ordinal)) {}

Result<std::unique_ptr<GpuAccelerator>> GpuAccelerator::open(int ordinal,
                                                             Registrations* registrations,
                                                             const std::atomic<int>* max_blocks) {
  Status s = check(vendor::open_device(ordinal), ordinal, "opening the device");
  if (!s.ok()) return s;
  s = check(on(ordinal, [] { return static_cast<vendor::Error>(load_kernels()); }), ordinal,
            "loading the kernels");
  if (!s.ok()) return s;
  std::unique_ptr<GpuAccelerator> made(new GpuAccelerator(ordinal, registrations, max_blocks));
  QueueParts& parts = made->parts_;
  if (parts.gates && on(ordinal, [&] { return parts.flags.prepare(); }) != GPU(Success)) {
    (void)GPU(GetLastError)();
    parts.gates = false;
  }
  return made;
}

void GpuAccelerator::enable_peer(const GpuAccelerator& other) {
  const vendor::Error error = on(parts_.ordinal, [&] {
    int can = 0;
    const vendor::Error e = GPU(DeviceCanAccessPeer)(&can, parts_.ordinal, other.parts_.ordinal);
    if (e != GPU(Success) || can == 0) return e;
    return GPU(DeviceEnablePeerAccess)(other.parts_.ordinal, 0);
  });
  // The program may have enabled it; where it cannot be, copies go another way by themselves.
  if (error != GPU(Success)) (void)GPU(GetLastError)();
}

// May wait for the device, as freeing does: callers allocate rarely.
Result<void*> GpuAccelerator::allocate(size_t bytes) {
  void* memory = nullptr;
  const vendor::Error error =
      on(parts_.ordinal, [&] { return GPU(Malloc)(&memory, std::max<size_t>(bytes, 1)); });
  if (error == GPU(Success)) return memory;
  return failure(error, parts_.ordinal, "allocating " + std::to_string(bytes) + " bytes");
}

Status GpuAccelerator::free(void* memory) {
  return check(on(parts_.ordinal, [&] { return GPU(Free)(memory); }), parts_.ordinal,
               "freeing memory");
}

Result<void*> GpuAccelerator::allocate_host(size_t bytes) {
  void* memory = nullptr;
  const vendor::Error error = on(
      parts_.ordinal, [&] { return vendor::allocate_pinned(&memory, std::max<size_t>(bytes, 1)); });
  if (error == GPU(Success)) return memory;
  return failure(error, parts_.ordinal,
                 "allocating " + std::to_string(bytes) + " bytes of pinned host memory");
}

Status GpuAccelerator::free_host(void* memory) {
  return check(on(parts_.ordinal, [&] { return vendor::free_pinned(memory); }), parts_.ordinal,
               "freeing pinned host memory");
}

Status GpuAccelerator::register_host(void* memory, size_t bytes) {
  return registrations_.add(parts_.ordinal, memory, bytes);
}

Status GpuAccelerator::unregister_host(void* memory) {
  return registrations_.remove(parts_.ordinal, memory);
}

Result<std::unique_ptr<Queue>> GpuAccelerator::make_queue() { return GpuQueue::make(&parts_); }

Result<std::unique_ptr<Event>> GpuAccelerator::make_event() {
  return GpuEvent::make(parts_.ordinal);
}

Result<bool> GpuAccelerator::done(const Event& event) {
  const auto& ours = static_cast<const GpuEvent&>(event);
  const vendor::Error error = on(ours.ordinal(), [&] { return GPU(EventQuery)(ours.raw()); });
  if (error == GPU(Success)) return true;
  if (error != GPU(ErrorNotReady)) return failure(error, ours.ordinal(), "work before an event");
  (void)GPU(GetLastError)();
  return false;
}

Result<std::unique_ptr<Queue>> GpuAccelerator::adopt(hetcclStream_t stream) {
  const int mine = parts_.ordinal;
  vendor::Stream native = nullptr;
  if (stream == nullptr || !vendor::native_stream(stream, &native)) {
    return invalid_argument(std::string("a per-thread default stream of ") + vendor::kTitle +
                            " is another one in each thread; pass a stream that was created, or "
                            "HETCCL_STREAM_LEGACY");
  }
  int ordinal = mine;
  GPU(StreamCaptureStatus) capture = GPU(StreamCaptureStatusNone);
  const vendor::Error error = on(mine, [&] {
    vendor::Error e = GPU(Success);
    if (native != vendor::kLegacyStream) e = vendor::stream_device(native, &ordinal);
    return e == GPU(Success) ? GPU(StreamIsCapturing)(native, &capture) : e;
  });
  // The default stream answers so while a stream that it would wait for is being captured.
  const bool implicitly = error == GPU(ErrorStreamCaptureImplicit);
  if (error != GPU(Success)) {
    const Status s = failure(error, mine, "looking at a stream");
    if (!implicitly) {
      return invalid_argument(s.message() + "; pass a live stream of this device");
    }
  }
  if (implicitly || capture != GPU(StreamCaptureStatusNone)) {
    return invalid_usage(
        "the stream is being captured into a graph, which collectives do not "
        "support; call outside of the capture");
  }
  if (ordinal >= 0 && ordinal != mine) {
    return invalid_argument("the stream belongs to " + std::string(vendor::kName) + ":" +
                            std::to_string(ordinal) + ", the communicator to " + vendor::kName +
                            ":" + std::to_string(mine) + "; pass a stream of that device");
  }
  return std::unique_ptr<Queue>(new GpuQueue(&parts_, native, false));
}

Result<hetcclStream_t> GpuAccelerator::make_stream() {
  vendor::Stream stream = nullptr;
  const Status s =
      check(on(parts_.ordinal,
               [&] { return GPU(StreamCreateWithFlags)(&stream, GPU(StreamNonBlocking)); }),
            parts_.ordinal, "making a stream");
  if (!s.ok()) return s;
  return static_cast<hetcclStream_t>(stream);
}

Status GpuAccelerator::destroy_stream(hetcclStream_t stream) {
  return check(
      on(parts_.ordinal, [&] { return GPU(StreamDestroy)(static_cast<vendor::Stream>(stream)); }),
      parts_.ordinal, "destroying a stream");
}

Result<std::string> GpuAccelerator::export_memory(const void* memory) {
  return shared_.export_memory(memory);
}

Result<void*> GpuAccelerator::import_memory(const std::string& handle) {
  return shared_.import_memory(handle);
}

Status GpuAccelerator::close_memory(void* memory) { return shared_.close_memory(memory); }

std::string GpuAccelerator::identity() const {
  char id[32] = "";
  const vendor::Error error =
      on(parts_.ordinal, [&] { return GPU(DeviceGetPCIBusId)(id, sizeof id, parts_.ordinal); });
  if (error == GPU(Success)) return id;
  (void)GPU(GetLastError)();
  return {};
}

Status GpuAccelerator::with_current(const std::function<Status()>& what) {
  const vendor::Current current(parts_.ordinal);
  Status s = check(current.error(), parts_.ordinal, "choosing the device");
  return s.ok() ? what() : s;
}

}  // namespace hetccl::device::gpu

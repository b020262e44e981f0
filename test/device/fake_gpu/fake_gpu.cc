// The runtime of the vendor that does not exist: see fake_names.h. Two devices.
#include <cstdio>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "lib/device/device.h"
#include "lib/device/gpu/launch.h"
#include "lib/device/gpu/vendor.h"

using hetccl::device::Memory;

struct FakeEvent {
  std::shared_ptr<bool> done = std::make_shared<bool>(true);
};

struct FakeStream {
  int device = 0;
  bool capturing = false;
  std::deque<std::function<bool()>> work;  // each returns whether it has run
};

namespace {

constexpr int kDevices = 2;

struct Piece {
  size_t bytes;
  int device;  // -1: host
  uint64_t id;
  ptrdiff_t elsewhere = 0;
};

struct World {
  std::map<std::string, int> counts;
  std::map<std::string, fakeError_t> failures;
  std::map<char*, Piece> memory;
  std::vector<FakeStream*> streams;
  FakeStream legacy;
  uint64_t next_id = 1;
  bool waits = true;
  int last_priority = 0;
  int last_blocks = 0;
  ptrdiff_t elsewhere = 0;
};

World& world() {
  static World& w = *new World;
  return w;
}

fakeError_t fail(fakeError_t error) {
  fake_state().last_error = error;
  return error;
}

// Every function begins with its name: it fails if the test said so, else it counts.
fakeError_t enter(const std::string& name) {
  if (const auto f = world().failures.find(name); f != world().failures.end()) {
    const fakeError_t error = f->second;
    world().failures.erase(f);
    return fail(error);
  }
  ++world().counts[name];
  return fakeSuccess;
}

#define FAKE_ENTER(name) \
  if (const fakeError_t e = enter(name); e != fakeSuccess) return e

FakeStream* real(FakeStream* stream) { return stream != nullptr ? stream : &world().legacy; }

void run_all() {
  bool progress = true;
  while (progress) {
    progress = false;
    std::vector<FakeStream*> all = world().streams;
    all.push_back(&world().legacy);
    for (FakeStream* s : all) {
      while (!s->work.empty() && s->work.front()()) {
        s->work.pop_front();
        progress = true;
      }
    }
  }
}

std::map<char*, Piece>::iterator piece_of(const void* pointer) {
  auto* address = static_cast<char*>(const_cast<void*>(pointer));
  auto after = world().memory.upper_bound(address);
  if (after == world().memory.begin()) return world().memory.end();
  --after;
  return address < after->first + after->second.bytes ? after : world().memory.end();
}

fakeError_t add(void** memory, size_t bytes, int device) {
  auto* made = new char[bytes];
  world().memory[made] = {bytes, device, world().next_id++};
  *memory = made;
  return fakeSuccess;
}

// What a kernel finds at an address; null: a fault.
void* as_kernel(const void* pointer) {
  auto* address = static_cast<char*>(const_cast<void*>(pointer));
  for (auto& [base, piece] : world().memory) {
    if (piece.elsewhere == 0) continue;
    if (address >= base && address < base + piece.bytes) return nullptr;
    const ptrdiff_t offset = address - piece.elsewhere - base;
    if (offset >= 0 && offset < static_cast<ptrdiff_t>(piece.bytes)) return base + offset;
  }
  return address;
}

fakeError_t remove(void* memory) {
  auto* address = static_cast<char*>(memory);
  if (world().memory.erase(address) == 0) return fail(fakeErrorInvalidValue);
  delete[] address;
  return fakeSuccess;
}

}  // namespace

FakeState& fake_state() {
  thread_local FakeState state;
  return state;
}
int fake_count(const std::string& what) { return world().counts[what]; }
void fake_fail_next(const std::string& what, fakeError_t error) { world().failures[what] = error; }
void fake_set_capturing(fakeStream_t stream, bool capturing) { stream->capturing = capturing; }
void fake_set_elsewhere(ptrdiff_t bytes) { world().elsewhere = bytes; }
void fake_set_waits(bool can) { world().waits = can; }
int fake_last_blocks() { return world().last_blocks; }
int fake_last_priority() { return world().last_priority; }

fakeError_t fakeGetLastError() { return std::exchange(fake_state().last_error, fakeSuccess); }
const char* fakeGetErrorName(fakeError_t error) {
  return error == fakeErrorMemoryAllocation ? "fakeErrorMemoryAllocation" : "fakeErrorSomething";
}
const char* fakeGetErrorString(fakeError_t) { return "as the test said"; }
fakeError_t fakeRuntimeGetVersion(int* version) { return *version = 13010, fakeSuccess; }
fakeError_t fakeDriverGetVersion(int* version) { return *version = 50221153, fakeSuccess; }
fakeError_t fakeDeviceCanAccessPeer(int* can, int, int) { return *can = 1, fakeSuccess; }
fakeError_t fakeDeviceEnablePeerAccess(int, unsigned) {
  FAKE_ENTER("DeviceEnablePeerAccess");
  return fakeSuccess;
}
fakeError_t fakeDeviceGetPCIBusId(char* id, int length, int device) {
  FAKE_ENTER("DeviceGetPCIBusId");
  std::snprintf(id, static_cast<size_t>(length), "0000:%02x:00.0", device);
  return fakeSuccess;
}
fakeError_t fakeDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return fakeSuccess;
}

fakeError_t fakeMalloc(void** memory, size_t bytes) {
  FAKE_ENTER("Malloc");
  return add(memory, bytes, fake_state().current);
}
fakeError_t fakeFree(void* memory) {
  FAKE_ENTER("Free");
  return remove(memory);
}
fakeError_t fakeHostRegister(void* memory, size_t bytes, unsigned) {
  FAKE_ENTER("HostRegister");
  auto* address = static_cast<char*>(memory);
  if (piece_of(address) != world().memory.end() ||
      piece_of(address + bytes - 1) != world().memory.end()) {
    --world().counts["HostRegister"];
    return fail(fakeErrorHostMemoryAlreadyRegistered);
  }
  world().memory[address] = {bytes, -1, 0, world().elsewhere};
  return fakeSuccess;
}
fakeError_t fakeHostGetDevicePointer(void** mapped, void* memory, unsigned) {
  FAKE_ENTER("HostGetDevicePointer");
  const auto piece = piece_of(memory);
  if (piece == world().memory.end()) return fail(fakeErrorInvalidValue);
  *mapped = static_cast<char*>(memory) + piece->second.elsewhere;
  return fakeSuccess;
}
fakeError_t fakeHostUnregister(void* memory) {
  FAKE_ENTER("HostUnregister");
  return world().memory.erase(static_cast<char*>(memory)) != 0 ? fakeSuccess
                                                               : fail(fakeErrorInvalidValue);
}

// Handles are addresses. Opening one gives fresh memory, as another process's would be.
fakeError_t fakeIpcGetMemHandle(fakeIpcMemHandle_t* handle, void* memory) {
  FAKE_ENTER("IpcGetMemHandle");
  if (world().memory.count(static_cast<char*>(memory)) == 0) return fail(fakeErrorInvalidValue);
  std::memcpy(handle->bytes, &memory, sizeof memory);
  return fakeSuccess;
}
fakeError_t fakeIpcOpenMemHandle(void** memory, fakeIpcMemHandle_t, unsigned) {
  FAKE_ENTER("IpcOpenMemHandle");
  return add(memory, 4096, fake_state().current);
}
fakeError_t fakeIpcCloseMemHandle(void* memory) {
  FAKE_ENTER("IpcCloseMemHandle");
  return remove(memory);
}

fakeError_t fakeStreamCreateWithPriority(fakeStream_t* stream, unsigned, int priority) {
  FAKE_ENTER("StreamCreate");
  *stream = new FakeStream{fake_state().current, false, {}};
  world().last_priority = priority;
  world().streams.push_back(*stream);
  return fakeSuccess;
}
fakeError_t fakeStreamCreateWithFlags(fakeStream_t* stream, unsigned flags) {
  return fakeStreamCreateWithPriority(stream, flags, 0);
}
fakeError_t fakeStreamDestroy(fakeStream_t stream) {
  FAKE_ENTER("StreamDestroy");
  if (std::erase(world().streams, stream) == 0) return fail(fakeErrorInvalidHandle);
  delete stream;
  return fakeSuccess;
}
fakeError_t fakeStreamQuery(fakeStream_t stream) {
  FAKE_ENTER("StreamQuery");
  run_all();
  return real(stream)->work.empty() ? fakeSuccess : fail(fakeErrorNotReady);
}
fakeError_t fakeStreamSynchronize(fakeStream_t stream) {
  FAKE_ENTER("StreamSynchronize");
  run_all();
  return real(stream)->work.empty() ? fakeSuccess : fail(fakeErrorIllegalAddress);
}
fakeError_t fakeStreamIsCapturing(fakeStream_t stream, fakeStreamCaptureStatus* status) {
  FAKE_ENTER("StreamIsCapturing");
  *status = real(stream)->capturing ? fakeStreamCaptureStatusActive : fakeStreamCaptureStatusNone;
  return fakeSuccess;
}
fakeError_t fakeStreamWaitEvent(fakeStream_t stream, fakeEvent_t event, unsigned) {
  FAKE_ENTER("StreamWaitEvent");
  real(stream)->work.emplace_back([done = event->done] { return *done; });
  return fakeSuccess;
}
fakeError_t fakeMemcpyAsync(void* destination, const void* source, size_t bytes, int,
                            fakeStream_t stream) {
  FAKE_ENTER("MemcpyAsync");
  real(stream)->work.emplace_back([=] {
    std::memcpy(destination, source, bytes);
    return true;
  });
  return fakeSuccess;
}

fakeError_t fakeEventCreateWithFlags(fakeEvent_t* event, unsigned) {
  FAKE_ENTER("EventCreate");
  *event = new FakeEvent;
  return fakeSuccess;
}
fakeError_t fakeEventDestroy(fakeEvent_t event) {
  FAKE_ENTER("EventDestroy");
  delete event;
  return fakeSuccess;
}
fakeError_t fakeEventRecord(fakeEvent_t event, fakeStream_t stream) {
  FAKE_ENTER("EventRecord");
  event->done = std::make_shared<bool>(false);
  real(stream)->work.emplace_back([done = event->done] { return *done = true; });
  return fakeSuccess;
}
fakeError_t fakeEventQuery(fakeEvent_t event) {
  FAKE_ENTER("EventQuery");
  run_all();
  return *event->done ? fakeSuccess : fail(fakeErrorNotReady);
}

namespace hetccl::device {
namespace vendor {

fakeError_t allocate_pinned(void** memory, size_t bytes) {
  FAKE_ENTER("HostAlloc");
  return add(memory, bytes, -1);
}
fakeError_t free_pinned(void* memory) { return remove(memory); }

bool start(int* devices, std::string*) {
  *devices = kDevices;
  return true;
}
Error open_device(int) { return enter("open_device"); }

Current::Current(int ordinal) : error_(enter("Current")) {
  if (error_ != fakeSuccess) return;
  previous_ = std::exchange(fake_state().current, ordinal);
  mode_ = std::exchange(fake_state().relaxed, true) ? fakeStreamCaptureModeRelaxed
                                                    : fakeStreamCaptureModeGlobal;
  changed_ = true;
}
Current::~Current() {
  if (!changed_) return;
  fake_state().current = previous_;
  fake_state().relaxed = mode_ == fakeStreamCaptureModeRelaxed;
}
int current_device() { return fake_state().current; }

Memory query(const void* pointer) {
  const auto p = piece_of(pointer);
  if (p == world().memory.end()) return {};
  Memory memory;
  memory.place = Memory::Place::kRegisteredHost;
  if (p->second.device >= 0) {
    memory = {Memory::Place::kDevice, p->second.device, p->first, p->second.bytes, p->second.id};
  }
  return memory;
}

std::string device_name(int) { return "Nothing (sm_0)"; }

bool native_stream(hetcclStream_t stream, Stream* native) {
  const auto number = reinterpret_cast<uintptr_t>(stream);
  *native = number == 1 ? kLegacyStream : static_cast<Stream>(stream);
  return number != 2;
}
Error stream_device(Stream stream, int* ordinal) {
  FAKE_ENTER("stream_device");
  *ordinal = stream->device;
  return fakeSuccess;
}

Error make_flags(void** flags, size_t* count) {
  FAKE_ENTER("make_flags");
  *count = 2;
  const Error error = add(flags, *count * kFlagStride, -1);
  std::memset(*flags, 0, *count * kFlagStride);
  return error;
}
Error wait_flag(Stream stream, void* flag, uint32_t value) {
  FAKE_ENTER("wait_flag");
  real(stream)->work.emplace_back([=] { return *static_cast<uint32_t*>(flag) >= value; });
  return fakeSuccess;
}
bool can_wait_flags(int) { return world().waits; }

}  // namespace vendor

// More than eight sources take scratch, which shows what was in it: nothing but this launch's.
size_t scratch_bytes(const Launch& launch) { return launch.call.source_count > 8 ? 256 : 0; }

int load_kernels() {
  FAKE_ENTER("load_kernels");
  return fakeSuccess;
}

int launch_combine(const Launch& launch) {
  FAKE_ENTER("launch_combine");
  struct Copy {
    std::vector<Source> sources;
    Combine what;
    Reduction reduction;
  };
  auto copy = std::make_shared<Copy>();
  for (size_t i = 0; i < launch.call.source_count; ++i) {
    const void* data = as_kernel(launch.call.sources[i].data);
    if (data == nullptr) return fail(fakeErrorIllegalAddress);
    copy->sources.push_back({data, launch.call.sources[i].wide});
  }
  copy->what = {as_kernel(launch.call.destination), launch.call.wide, launch.call.finalize,
                copy->sources, launch.call.count};
  copy->reduction = {launch.type, launch.op, launch.call.ranks};
  auto* scratch = static_cast<char*>(launch.scratch);
  const auto stamp = static_cast<char>(world().counts["launch_combine"]);
  if (scratch != nullptr) std::memset(scratch, stamp, 256);
  real(static_cast<FakeStream*>(launch.stream))->work.emplace_back([=] {
    if (scratch != nullptr && (scratch[0] != stamp || scratch[255] != stamp)) return true;
    (*host_device("auto"))->combine(copy->reduction, copy->what);
    return true;
  });
  world().last_blocks = launch.max_blocks;
  return fakeSuccess;
}

}  // namespace hetccl::device

// The names of a vendor that does not exist, for testing lib/device/gpu without a GPU: its device
// memory is the process's own, its streams run what they hold when they are asked how far they are.
//
// Thread rule: one thread at a time, but for the current device, of which each thread has its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#define GPU(name) fake##name

enum fakeError_t {
  fakeSuccess = 0,
  fakeErrorInvalidValue = 1,
  fakeErrorMemoryAllocation = 2,
  fakeErrorInvalidHandle = 400,
  fakeErrorNotReady = 600,
  fakeErrorIllegalAddress = 700,
  fakeErrorPeerAccessAlreadyEnabled = 704,
  fakeErrorHostMemoryAlreadyRegistered = 712,
  fakeErrorStreamCaptureImplicit = 906,
};

struct FakeStream;
struct FakeEvent;
using fakeStream_t = FakeStream*;
using fakeEvent_t = FakeEvent*;
enum fakeStreamCaptureMode { fakeStreamCaptureModeGlobal, fakeStreamCaptureModeRelaxed };
enum fakeStreamCaptureStatus { fakeStreamCaptureStatusNone, fakeStreamCaptureStatusActive };
struct fakeIpcMemHandle_t {
  char bytes[64];
};

constexpr unsigned fakeEventDisableTiming = 2;
constexpr unsigned fakeStreamNonBlocking = 1;
constexpr unsigned fakeIpcMemLazyEnablePeerAccess = 1;
constexpr int fakeMemcpyDefault = 4;

fakeError_t fakeGetLastError();
const char* fakeGetErrorName(fakeError_t error);
const char* fakeGetErrorString(fakeError_t error);
fakeError_t fakeRuntimeGetVersion(int* version);
fakeError_t fakeDriverGetVersion(int* version);
fakeError_t fakeDeviceCanAccessPeer(int* can, int device, int peer);
fakeError_t fakeDeviceEnablePeerAccess(int peer, unsigned flags);
fakeError_t fakeDeviceGetPCIBusId(char* id, int length, int device);
fakeError_t fakeDeviceGetStreamPriorityRange(int* least, int* greatest);
fakeError_t fakeMalloc(void** memory, size_t bytes);
fakeError_t fakeFree(void* memory);
fakeError_t fakeHostRegister(void* memory, size_t bytes, unsigned flags);
fakeError_t fakeHostUnregister(void* memory);
fakeError_t fakeHostGetDevicePointer(void** mapped, void* memory, unsigned flags);
fakeError_t fakeIpcGetMemHandle(fakeIpcMemHandle_t* handle, void* memory);
fakeError_t fakeIpcOpenMemHandle(void** memory, fakeIpcMemHandle_t handle, unsigned flags);
fakeError_t fakeIpcCloseMemHandle(void* memory);
fakeError_t fakeStreamCreateWithPriority(fakeStream_t* stream, unsigned flags, int priority);
fakeError_t fakeStreamCreateWithFlags(fakeStream_t* stream, unsigned flags);
fakeError_t fakeStreamDestroy(fakeStream_t stream);
fakeError_t fakeStreamQuery(fakeStream_t stream);
fakeError_t fakeStreamSynchronize(fakeStream_t stream);
fakeError_t fakeStreamIsCapturing(fakeStream_t stream, fakeStreamCaptureStatus* status);
fakeError_t fakeStreamWaitEvent(fakeStream_t stream, fakeEvent_t event, unsigned flags);
fakeError_t fakeMemcpyAsync(void* destination, const void* source, size_t bytes, int kind,
                            fakeStream_t stream);
fakeError_t fakeEventCreateWithFlags(fakeEvent_t* event, unsigned flags);
fakeError_t fakeEventDestroy(fakeEvent_t event);
fakeError_t fakeEventRecord(fakeEvent_t event, fakeStream_t stream);
fakeError_t fakeEventQuery(fakeEvent_t event);

// For tests: what happened, and what shall happen.
struct FakeState {
  int current = 0;  // the calling thread's device
  bool relaxed = false;
  fakeError_t last_error = fakeSuccess;
};
FakeState& fake_state();
int fake_count(const std::string& what);  // calls of fakeWHAT that succeeded
void fake_fail_next(const std::string& what, fakeError_t error);
void fake_set_capturing(fakeStream_t stream, bool capturing);
// Kernels reach memory registered from now on so many bytes above, and nowhere else.
void fake_set_elsewhere(ptrdiff_t bytes);
void fake_set_waits(bool can);  // of devices opened later
int fake_last_blocks();         // allowed to the last kernel
int fake_last_priority();       // of the last stream made

namespace hetccl::device::vendor {

constexpr Kind kKind = hetcclMemoryCuda;
constexpr char kName[] = "fake";
constexpr char kTitle[] = "FAKE";
constexpr size_t kFlagStride = 64;
constexpr unsigned kRegisterFlags = 3;
inline const fakeStream_t kLegacyStream = nullptr;

fakeError_t allocate_pinned(void** memory, size_t bytes);
fakeError_t free_pinned(void* memory);

}  // namespace hetccl::device::vendor

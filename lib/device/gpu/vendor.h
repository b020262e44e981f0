// What the two vendors' runtimes spell or do differently. The rest of this folder is compiled once
// for each vendor and written in the runtimes' common words: GPU(Malloc) is cudaMalloc or
// hipMalloc.
//
// Thread rule: any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "lib/device/accelerator.h"

// The vendor's names: the build says which.
#include HETCCL_GPU_NAMES

namespace hetccl::device::vendor {

using Error = GPU(Error_t);
using Stream = GPU(Stream_t);
using RawEvent = GPU(Event_t);

// Makes the driver ready. False: `why` has cause and remedy. Called once, before all else here.
bool start(int* devices, std::string* why);
// Makes a device usable by Current. Called once a device, before its first use.
Error open_device(int ordinal);

// The calling thread works with a device until the end of the scope, and is not stopped by graphs
// that other threads capture: they would fail at our allocations and queries.
class Current {
 public:
  explicit Current(int ordinal);
  ~Current();
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
  Error error() const { return error_; }

 private:
  Error error_;
  int previous_ = -1;
  bool changed_ = false;
  GPU(StreamCaptureMode) mode_ = GPU(StreamCaptureModeRelaxed);
};

int current_device();  // -1: none yet

Memory query(const void* pointer);

std::string device_name(int ordinal);  // "NVIDIA H200 (sm_90)"

// The vendor's handle for what the API calls `stream`. False: it has none that is the same in all
// threads.
bool native_stream(hetcclStream_t stream, Stream* native);
// The device of a stream, which is not of kLegacyStream. -1: the vendor does not tell.
Error stream_device(Stream stream, int* ordinal);

// Words that a stream can wait on: `count` of them, kFlagStride bytes apart, all 0.
Error make_flags(void** flags, size_t* count);
// Work given to `stream` later waits until the word is `value` or more.
Error wait_flag(Stream stream, void* flag, uint32_t value);
bool can_wait_flags(int ordinal);

}  // namespace hetccl::device::vendor

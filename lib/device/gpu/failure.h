// Calls of a vendor's runtime: on a device, and their errors as a Status.
#pragma once

#include <string>

#include "lib/device/gpu/vendor.h"

namespace hetccl::device::gpu {

// "cuda:0: copying: cudaErrorIllegalAddress (700): an illegal memory access was encountered".
// Takes the error back from the runtime, which would else report it again to somebody else.
Status failure(vendor::Error error, int ordinal, const std::string& doing);

inline Status check(vendor::Error error, int ordinal, const char* doing) {
  return error == GPU(Success) ? Status() : failure(error, ordinal, doing);
}

// What `call`, which returns an error of the vendor's, returns with the device as the current one.
template <typename F>
vendor::Error on(int ordinal, F call) {
  const vendor::Current current(ordinal);
  return current.error() == GPU(Success) ? call() : current.error();
}

}  // namespace hetccl::device::gpu

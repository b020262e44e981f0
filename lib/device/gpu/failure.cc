#include "lib/device/gpu/failure.h"

namespace hetccl::device::gpu {

Status failure(vendor::Error error, int ordinal, const std::string& doing) {
  (void)GPU(GetLastError)();
  std::string text = std::string(vendor::kName) + ":" + std::to_string(ordinal) + ": " + doing +
                     ": " + GPU(GetErrorName)(error) + " (" +
                     std::to_string(static_cast<int>(error)) + "): " + GPU(GetErrorString)(error);
  if (error == GPU(ErrorMemoryAllocation)) text += "; free memory on the device, or use less";
  return {hetcclUnhandledDeviceError, std::move(text)};
}

}  // namespace hetccl::device::gpu

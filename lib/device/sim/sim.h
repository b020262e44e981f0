// The simulated device: a test double for a GPU in two vendors, sim:cuda and sim:hip, built in
// always and chosen only by name. Its memory faults when the processor touches it, its copies and
// kernels run in the background, its speed and its faults can be set.
//
// Thread rule: any thread.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lib/device/accelerator.h"

namespace hetccl::device {

// What HETCCL_SIM says. The same for both vendors.
struct SimOptions {
  enum class Ability { kOff, kOn, kBroken };  // kBroken: claimed, and does not work
  // Copies from the host, to the host, within the device and between devices; kernels.
  enum Stage { kHostToDevice, kDeviceToHost, kDeviceToDevice, kCompute, kStages };

  int devices = 2;
  size_t memory = size_t{4} << 30;  // of each device
  // Bytes a second, 0: as fast as it goes. A kernel's bytes are those of all its sources.
  std::array<double, kStages> rates = {};
  std::chrono::nanoseconds latency{0};  // of each copy and kernel
  Ability ipc = Ability::kOn;
  Ability direct = Ability::kOn;
  bool gate = true;
  // The device is lost in the k-th copy, or kernel, of the process; 0: never.
  uint64_t fail_copy = 0;
  uint64_t fail_combine = 0;
};

// "devices=2,h2d=1G": the options that are not named keep their defaults.
Result<SimOptions> parse_sim_options(std::string_view text);

// The simulated back end of a kind, made at its first use from HETCCL_SIM. An error names what is
// wrong with the setting.
Result<Backend*> sim_backend(Kind kind);

// ---- For tests: what a vendor's own runtime or the hardware would do. ----

// From now on instead of HETCCL_SIM; failures are counted from here. hetcclInvalidUsage: the number
// of devices or their memory differ from those of a back end that is in use.
Status configure_sim(const SimOptions& options);

// The calling thread's device of this vendor.
Status set_current_device(Kind kind, int ordinal);

// Begins or ends the capture of a stream into a graph. hetcclInvalidArgument: no such stream.
Status set_capturing(hetcclStream_t stream, bool capturing);

}  // namespace hetccl::device

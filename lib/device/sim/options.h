// The options in force. Any thread.
#pragma once

#include "lib/device/sim/sim.h"

namespace hetccl::device::sim {

inline constexpr int kMostDevices = 8;
inline constexpr double kMostMemory = 256.0 * (1 << 30);

// For a back end that is being made: from configure_sim(), or else from HETCCL_SIM. From then on
// the number of devices and their memory are fixed.
Result<SimOptions> options_in_use();

// Once a back end has been made. They may change between two calls.
const SimOptions& options();

// Counts a copy or a kernel; true where it is the one that fails.
bool fails_now(bool is_copy);

}  // namespace hetccl::device::sim

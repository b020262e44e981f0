// How data in device memory travel between each pair of ranks, found by trying when a communicator
// is made: drivers claim what does not work, so a pattern is written and read back, in bounded
// time, and what works but is slower than staging is left alone.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lib/base/status.h"
#include "lib/device/accelerator.h"
#include "lib/net/fabric.h"
#include "lib/run/staging_lane.h"

namespace hetccl {

struct FoundPath {
  run::DevicePath path;
  std::string reason;  // why so, for people
};

struct PathSearch {
  int rank;
  std::vector<int> kinds;            // of all ranks' devices
  std::vector<int> node_of;          // of all ranks
  device::Accelerator* accelerator;  // of this rank; null: none
  net::Fabric* fabric;               // null: one rank
  std::string setting;               // HETCCL_PATH, equal on all ranks
  // Collects a text of every rank, in rank order.
  std::function<Status(std::string mine, std::vector<std::string>* all)> allgather;
};

// Collective; does nothing where no rank has a device. With HETCCL_PATH=direct a pair of devices
// that must be staged is hetcclInvalidUsage on all ranks.
Result<std::vector<FoundPath>> find_paths(const PathSearch& search);

}  // namespace hetccl

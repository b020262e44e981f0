// The process's access to the network and to shared memory: one UCX context and worker, one arena
// of memory that the other processes of the node can map. Made once, passed down, never destroyed.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "lib/base/status.h"
#include "lib/net/lane.h"

namespace hetccl::net {

struct FabricOptions {
  std::string interfaces;         // HETCCL_SOCKET_IFNAME
  size_t segment_bytes;           // HETCCL_TCP_SEGMENT: UCX's TX/RX segment for TCP
  std::string put;                // HETCCL_NET_PUT: auto, yes, no: put into announced buffers
  bool keep_ucx_signals = false;  // HETCCL_UCX_SIGNALS: leave UCX's signal handlers in place
};

struct LaneOptions {
  size_t chunk_bytes;  // largest message; equal on all ranks
  unsigned depth;      // messages in flight a pair; equal on all ranks
};

// A lane being made: its card goes to all ranks, theirs come back.
class LaneSetup {
 public:
  virtual ~LaneSetup() = default;
  virtual const std::string& card() const = 0;
  // `cards` of all ranks in order; `shares_memory[r]`: decided alike by both ends.
  virtual Result<std::unique_ptr<Lane>> connect(const std::vector<std::string>& cards,
                                                const std::vector<bool>& shares_memory) = 0;
};

class Fabric {
 public:
  static Result<Fabric*> create(const FabricOptions& options);
  virtual ~Fabric() = default;

  virtual Result<std::unique_ptr<LaneSetup>> open_lane(int ranks, int rank,
                                                       const LaneOptions& options) = 0;

  // Whether messages may lie in memory of this kind, by what the network library claims; simulated
  // memory counts as reached.
  virtual bool reaches(hetcclMemoryKind_t kind) const = 0;

  // Memory that lanes of peers on this node read in place. Zeroed. Any thread.
  virtual Result<void*> allocate_shared(size_t bytes) = 0;
  virtual Status free_shared(void* memory) = 0;

  virtual std::string describe() const = 0;  // UCX's version, transports, segment sizes
};

}  // namespace hetccl::net

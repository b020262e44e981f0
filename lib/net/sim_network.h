// A network in this process, for tests: it delivers as late, and lets go of memory as late, as the
// contract of a lane allows, by seeded chance. Pairs run ahead of each other; within a pair order
// holds. Time is virtual: each call of any lane's progress() is one tick.
//
// What it chooses for each message: whether the pieces are copied at once, some time later, or read
// where they lie when the receiver looks (only if they stay stable); and whether the data land at
// the announced destination or elsewhere.
//
// Thread rule: as lanes; lanes of one network may be used by different threads. With one thread,
// everything repeats from the seed.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lib/net/lane.h"

namespace hetccl::net {

struct SimOptions {
  uint64_t seed = 1;
  size_t chunk_bytes = 64 * 1024;
  unsigned depth = 4;
  unsigned longest_delay = 20;  // ticks, of messages, acknowledgements and late copies
  // Rank `lost_rank` dies at its operation number `lost_at`, counted from 1: an accepted send, an
  // announcement, a message received, a release. The others learn of it after some ticks.
  int lost_rank = -1;
  uint64_t lost_at = 0;
};

// The lanes of all ranks.
std::vector<std::unique_ptr<Lane>> open_sim_lanes(int ranks, const SimOptions& options);

}  // namespace hetccl::net

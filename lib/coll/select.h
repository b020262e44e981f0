// Chooses the algorithm of a call from what is equal on all ranks, and says why. Pure functions:
// made once for each shape of call, and cached by the caller.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/status.h"
#include "lib/coll/registry.h"

namespace hetccl::coll {

// A cost model in the manner of LogGP: a message of b bytes from r to s takes
// latency + b / rate, and a rank that reduces takes bytes / reduce rate on top.
struct LinkCost {
  double latency_s;    // one message, from call to use
  double bytes_per_s;  // payload
  double overhead_s;   // per message, time that sender and receiver are each busy
};
struct CostModel {
  std::vector<int> node_of;  // of each rank
  LinkCost within_node, between_nodes;
  std::vector<double> rank_bytes_per_s;  // each rank's link, each direction; empty: between_nodes'
  std::vector<double> reduce_bytes_per_s;  // per rank; empty: default_reduce_bytes_per_s
  double default_reduce_bytes_per_s;
  size_t chunk_bytes;  // messages are cut into chunks that overlap
};
// Parameters of an ordinary machine for these nodes, used where nothing was measured.
CostModel default_cost_model(std::span<const int> node_of, size_t chunk_bytes);

// Seconds that the slowest rank needs, by simulating the plans of all ranks; above 32 ranks
// extrapolated from 8, 16 and 32 of them, spread evenly. The same bits on every machine.
double estimate(const Algorithm& algorithm, int ranks, int root, size_t total_bytes,
                size_t accumulator_ratio_num, size_t accumulator_ratio_den, const CostModel& model);

struct Query {
  Collective collective;
  int ranks;
  int root;
  size_t bytes;                             // of all blocks together
  size_t element_bytes, accumulator_bytes;  // of one element; equal for pure movement
  bool needs_rank_order;  // an operator that does not commute, or reproducible sums
  bool own_counts =
      false;  // no rank knows the sizes of all blocks; `bytes` must not depend on them
};

// What HETCCL_ALGO says: per collective the forced or excluded names, in order.
class Forced {
 public:
  // "allreduce:ring,direct;broadcast:^chain" or "*:ring": the first that can serve a call is taken;
  // ^ excludes the one name that follows. An unknown collective or algorithm is an error that lists
  // the known ones.
  static Result<Forced> parse(std::string_view text);
  std::span<const std::string> wanted(Collective collective) const;
  bool excluded(Collective collective, std::string_view name) const;

 private:
  std::vector<std::vector<std::string>> wanted_{kCollectives}, excluded_{kCollectives};
};

struct Choice {
  const Algorithm* algorithm;
  std::string reason;           // "least estimated time: 12.1 us (next: ring 19.0 us)"
  bool forced_ignored = false;  // a forced algorithm could not serve this call
};
Choice choose(const Query& query, const Forced& forced, const CostModel& model);

}  // namespace hetccl::coll

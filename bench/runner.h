// Times and verifies calls. A sample is the time of the slowest rank, so that no rank hides
// another; short calls are timed in batches, so that neither the clock nor the skew of the barrier
// before a sample is what is measured. With MPI to compare, each sample of ours has one of MPI's
// next to it, in alternating order, so that a machine that changes its speed changes both. Inputs
// are written afresh before each sample, as an application would.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/formatter.h"
#include "bench/library.h"
#include "bench/options.h"
#include "bench/world.h"

namespace hetccl::bench {

class Runner {
 public:
  Runner(const World& world, const Library& library, const Options& options)
      : world_(world), library_(library), options_(options) {}

  // Collective over the ranks.
  Measurement measure(const Call& call, const std::string& memory) const;

  // All calls in order, as one step of an application; a measurement each, and one of the step.
  std::vector<Measurement> measure_step(const std::vector<Call>& calls, const std::string& memory,
                                        Step* step) const;

 private:
  void run(const Call& call) const;
  void wait() const;  // for what was run in a stream
  void run_peer(const Call& call) const;
  // Wrong elements of one fresh call, over all ranks.
  uint64_t verify(const Call& call) const;
  void warn_if_peer_differs(const Call& call) const;
  int choose_batch(const Call& call) const;
  double sample_us(const Call& call, int batch, bool peer) const;
  bool comparable(const Call& call) const;
  Measurement describe(const Call& call, const std::string& memory) const;
  // Seconds since the step began at the end of each call.
  std::vector<double> time_step(const std::vector<Call>& calls, bool peer) const;

  const World& world_;
  const Library& library_;
  const Options& options_;
};

}  // namespace hetccl::bench

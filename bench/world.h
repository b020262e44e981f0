// The ranks of the tool itself: what they must agree on goes through MPI, one message for all.
// One thread.
#pragma once

#include <mpi.h>

#include <string>
#include <vector>

#include "bench/call.h"

namespace hetccl::bench {

class World {
 public:
  World(int* argc, char*** argv, const char* program);  // MPI_Init
  ~World();                                             // MPI_Finalize
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int rank() const { return place_.rank; }
  int ranks() const { return place_.ranks; }
  Place place() const { return place_; }
  int ranks_on_node() const { return on_node_; }
  int rank_on_node() const { return rank_on_node_; }

  // True on all ranks, or false on all, after rank 0 printed the first failing rank's reason.
  bool agree(bool ok, const std::string& why) const;
  // Prints and ends all ranks: for failures after which the others cannot be met any more.
  [[noreturn]] void fail(const std::string& why) const;
  void barrier() const { MPI_Barrier(MPI_COMM_WORLD); }
  // Element by element over the ranks, in place.
  void maximum(std::vector<double>* values) const;
  uint64_t sum(uint64_t value) const;
  // Every rank's text, in rank order, on every rank.
  std::vector<std::string> gather(const std::string& mine) const;

 private:
  const char* program_;
  Place place_{};
  int on_node_ = 1, rank_on_node_ = 0;
};

}  // namespace hetccl::bench

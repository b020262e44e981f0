// One peer's turn: some tens of milliseconds of one collective of one size, timed and verified.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "bench/compare/peer.h"

namespace hetccl::bench {

struct Cell {
  Kind kind;
  uint64_t bytes;
  double budget_s;  // of the timed calls
};

class Visitor {
 public:
  // Allocates; REQUIRES start() before the first visit.
  Visitor(const World& world, Peer* peer, uint64_t most_bytes);
  std::string start();  // "" or why not

  // All ranks call it alike; what rank 0 returns is the answer.
  nlohmann::json visit(const Cell& cell);

 private:
  std::vector<Call> make_calls(const Cell& cell, const Shape& shape, size_t count) const;
  double estimate_s(const std::vector<Call>& calls, double budget_s) const;
  size_t choose_batch(const Cell& cell, const Shape& shape, double each_s) const;
  std::vector<double> sample(const std::vector<Call>& calls, int samples) const;
  uint64_t count_wrong(const std::vector<Call>& calls) const;
  void run(const Call& call) const;
  size_t stride(const Shape& shape) const;

  const World& world_;
  Peer* peer_;
  size_t room_;  // bytes of each buffer
  std::byte *send_ = nullptr, *recv_ = nullptr;
  std::map<std::pair<Kind, uint64_t>, size_t> batches_;  // of a cell; 0: not visited yet
};

}  // namespace hetccl::bench

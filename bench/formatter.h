// Turns measurements into text in the columns of nccl-tests, CSV or JSON. Pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "bench/collective.h"

namespace hetccl::bench {

struct Times {  // microseconds
  double min = 0, median = 0, p99 = 0, max = 0;
};
// Nearest rank. REQUIRES: not empty.
Times summarize(std::vector<double> samples_us);

struct Measurement {
  Kind kind = Kind::kAllReduce;
  uint64_t bytes = 0;
  size_t count = 0;
  DataType type = hetcclFloat32;
  RedOp op = hetcclSum;  // meant only where the collective reduces
  int root = -1;         // -1: none
  Skew skew = Skew::kEven;
  bool in_place = false;
  std::string algorithm;
  std::string memory;
  int ranks = 1;
  Times time;
  uint64_t wrong = 0;
  bool checked = true;
  bool compared = false;
  Times mpi_time;
};

double algorithm_bandwidth(const Measurement& m);  // GB/s, 10^9; 0 where no time or bytes
double bus_bandwidth(const Measurement& m);
double speedup(const Measurement& m);  // MPI's median over ours

struct Totals {
  uint64_t wrong = 0;
  double average_bus_bandwidth = 0;
  double mean_speedup = 0;  // geometric; 0: nothing was compared
};
Totals total(std::span<const Measurement> all);

// Out of place and in place of one size come next to each other in `all`, and share a line.
std::string to_text(std::span<const Measurement> all, const nlohmann::json& meta);
std::string to_csv(std::span<const Measurement> all);
nlohmann::json to_json(const Measurement& m);
nlohmann::json to_json(const Times& t);

// A replayed list: each call's figures, in order, and those of the whole step.
struct Step {
  Times time;
  bool compared = false;
  Times mpi_time;
};
std::string step_to_text(std::span<const Measurement> calls, const Step& step,
                         const nlohmann::json& meta);
std::string step_to_csv(std::span<const Measurement> calls, const Step& step);
nlohmann::json to_json(const Step& step);

}  // namespace hetccl::bench

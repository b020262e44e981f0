// hetccl as the tools use it: a communicator over all ranks, and calls on it.
#pragma once

#include <hetccl/hetccl.h>

#include <nlohmann/json.hpp>
#include <string>

#include "bench/call.h"
#include "bench/world.h"

namespace hetccl::bench {

class Library {
 public:
  // `algorithm`: HETCCL_ALGO for this communicator, or empty. REQUIRES: nothing of the library was
  // called before. False on all ranks: rank 0 has said why.
  bool start(const World& world, const std::string& algorithm);
  ~Library();

  // "" or what went wrong, in the library's words.
  std::string run(const Call& call) const;
  std::string last_algorithm() const;
  // What hetccl_perf reports of the run: versions, ranks, links and settings in force.
  nlohmann::json describe(const World& world, const std::string& my_memory) const;

 private:
  hetcclComm_t comm_ = nullptr;
};

}  // namespace hetccl::bench

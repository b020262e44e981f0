// What every transport has to offer to pass the contract suite: lanes of all ranks in one process,
// stepped by one thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lib/net/lane.h"

namespace hetccl::net {

struct ContractOptions {
  size_t chunk_bytes = 64 * 1024;
  unsigned depth = 4;
};

class ContractNetwork {
 public:
  virtual ~ContractNetwork() = default;
  virtual std::vector<std::unique_ptr<Lane>> open(int ranks, const ContractOptions& options) = 0;
  // Opens lanes of which rank 0's is connected at once and the last one by `connect_last`.
  struct Halfway {
    std::vector<std::unique_ptr<Lane>> lanes;  // the last one is null
    std::function<std::unique_ptr<Lane>()> connect_last;
  };
  virtual Halfway open_all_but_last(int ranks, const ContractOptions& options) = 0;
  virtual std::byte* allocate_shared(size_t bytes) = 0;
  virtual void free_shared(std::byte* memory) = 0;
};

std::unique_ptr<ContractNetwork> make_contract_network(const std::string& kind);
extern std::string contract_kind;  // from the command line

}  // namespace hetccl::net

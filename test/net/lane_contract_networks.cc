#include <cstdlib>
#include <stdexcept>

#include "lib/net/fabric.h"
#include "lib/net/sim_network.h"

#include "test/net/lane_contract.h"

namespace hetccl::net {
namespace {

// All ranks in this process. `local`: they share memory; otherwise they meet over the network.
class FabricNetwork final : public ContractNetwork {
 public:
  FabricNetwork(bool local, const std::string& put) : local_(local) {
    Result<Fabric*> fabric =
        Fabric::create(FabricOptions{.interfaces = "", .segment_bytes = 0, .put = put});
    if (!fabric.ok()) throw std::runtime_error(fabric.status().message());
    fabric_ = *fabric;
  }

  std::vector<std::unique_ptr<Lane>> open(int ranks, const ContractOptions& options) override {
    Halfway halfway = open_all_but_last(ranks, options);
    halfway.lanes.back() = halfway.connect_last();
    return std::move(halfway.lanes);
  }

  Halfway open_all_but_last(int ranks, const ContractOptions& options) override {
    auto setups = std::make_shared<std::vector<std::unique_ptr<LaneSetup>>>();
    std::vector<std::string> cards;
    for (int rank = 0; rank < ranks; ++rank) {
      setups->push_back(
          value(fabric_->open_lane(ranks, rank, LaneOptions{options.chunk_bytes, options.depth})));
      cards.push_back(setups->back()->card());
    }
    std::vector<bool> shares(ranks, local_);
    Halfway halfway;
    for (int rank = 0; rank + 1 < ranks; ++rank) {
      halfway.lanes.push_back(value((*setups)[rank]->connect(cards, shares)));
    }
    halfway.lanes.push_back(nullptr);
    halfway.connect_last = [=] { return value(setups->back()->connect(cards, shares)); };
    return halfway;
  }

  std::byte* allocate_shared(size_t bytes) override {
    return static_cast<std::byte*>(value(fabric_->allocate_shared(bytes)));
  }
  void free_shared(std::byte* memory) override { (void)fabric_->free_shared(memory).ok(); }

 private:
  template <typename T>
  static T value(Result<T> result) {
    if (!result.ok()) throw std::runtime_error(result.status().message());
    return std::move(*result);
  }

  bool local_;
  Fabric* fabric_;
};

class SimContractNetwork final : public ContractNetwork {
 public:
  explicit SimContractNetwork(uint64_t seed) : seed_(seed) {}

  std::vector<std::unique_ptr<Lane>> open(int ranks, const ContractOptions& options) override {
    SimOptions sim;
    sim.seed = seed_++;
    sim.chunk_bytes = options.chunk_bytes;
    sim.depth = options.depth;
    return open_sim_lanes(ranks, sim);
  }
  Halfway open_all_but_last(int ranks, const ContractOptions& options) override {
    Halfway halfway;
    halfway.lanes = open(ranks, options);
    auto last = std::make_shared<std::unique_ptr<Lane>>(std::move(halfway.lanes.back()));
    halfway.connect_last = [last] { return std::move(*last); };
    return halfway;
  }
  std::byte* allocate_shared(size_t bytes) override {
    return static_cast<std::byte*>(std::calloc(bytes, 1));
  }
  void free_shared(std::byte* memory) override { std::free(memory); }

 private:
  uint64_t seed_;
};

}  // namespace

std::unique_ptr<ContractNetwork> make_contract_network(const std::string& kind) {
  if (kind.starts_with("sim")) {
    return std::make_unique<SimContractNetwork>(std::stoull("0" + kind.substr(3)));
  }
  if (kind == "shm") return std::make_unique<FabricNetwork>(true, "auto");
  if (kind == "am") return std::make_unique<FabricNetwork>(false, "no");
  if (kind == "put") return std::make_unique<FabricNetwork>(false, "yes");
  throw std::runtime_error("unknown network " + kind);
}

}  // namespace hetccl::net

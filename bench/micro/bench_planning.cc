// What the first call of a shape costs before anything moves: the plan of one rank, the estimate of
// one algorithm, and the choice among all.
#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "lib/coll/registry.h"
#include "lib/coll/select.h"

namespace hetccl::coll {
namespace {

constexpr size_t kChunkBytes = 64 << 10;
constexpr size_t kBytes = 1 << 20;

// Nodes of eight ranks.
CostModel model_of(int ranks) {
  constexpr int kRanksOnNode = 8;
  std::vector<int> node_of;
  for (int rank = 0; rank < ranks; ++rank) node_of.push_back(rank / kRanksOnNode);
  return default_cost_model(node_of, kChunkBytes);
}

void plan(benchmark::State& state, const Algorithm* algorithm) {
  const int ranks = static_cast<int>(state.range(0));
  size_t steps = 0;
  for (auto _ : state) {
    const Plan made = make_plan(*algorithm, ranks, ranks / 2, 0);
    steps = made.steps.size();
    benchmark::DoNotOptimize(steps);
  }
  state.counters["steps"] = static_cast<double>(steps);
}

void estimate_of(benchmark::State& state, const Algorithm* algorithm) {
  const int ranks = static_cast<int>(state.range(0));
  const CostModel model = model_of(ranks);
  for (auto _ : state) {
    benchmark::DoNotOptimize(estimate(*algorithm, ranks, 0, kBytes, 1, 1, model));
  }
}

void choice(benchmark::State& state, Collective collective) {
  const int ranks = static_cast<int>(state.range(0));
  const CostModel model = model_of(ranks);
  const Forced none;
  const Query query{collective, ranks, 0, kBytes, 4, 4, false};
  for (auto _ : state) benchmark::DoNotOptimize(choose(query, none, model).algorithm);
}

void register_all() {
  constexpr int kRanks[] = {8, 64, 256};
  auto with_ranks = [&](benchmark::internal::Benchmark* made) {
    made->Unit(benchmark::kMicrosecond);
    for (int ranks : kRanks) made->Arg(ranks);
  };
  for (const Algorithm& algorithm : algorithms()) {
    const std::string name =
        std::string(name_of(algorithm.collective)) + "/" + std::string(algorithm.name);
    with_ranks(benchmark::RegisterBenchmark(("plan/" + name).c_str(), plan, &algorithm));
    if (algorithm.collective == Collective::kAllReduce) {
      with_ranks(
          benchmark::RegisterBenchmark(("estimate/" + name).c_str(), estimate_of, &algorithm));
    }
  }
  for (Collective collective :
       {Collective::kAllReduce, Collective::kAllGather, Collective::kBroadcast}) {
    const std::string name = "choose/" + std::string(name_of(collective));
    with_ranks(benchmark::RegisterBenchmark(name.c_str(), choice, collective));
  }
}

}  // namespace
}  // namespace hetccl::coll

int main(int argc, char** argv) {
  hetccl::coll::register_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

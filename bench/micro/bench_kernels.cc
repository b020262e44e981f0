// How fast the host reduces: two or four sources into one destination, in the caches and out of
// them, for each instruction set that this processor has. Bytes per second are those of all sources
// and the destination; a copy of as much stands beside.
#include <benchmark/benchmark.h>

#include <cstring>
#include <string>
#include <vector>

#include "lib/device/device.h"

namespace hetccl {
namespace {

constexpr size_t kMostSources = 4;
constexpr int64_t kInCache = 8 << 10, kInMemory = 32 << 20;

// Ones in every type would do as well; small bit patterns are no NaN and no denormal of any float.
std::vector<std::byte> filled(size_t bytes) {
  return std::vector<std::byte>(bytes, std::byte{0x3c});
}

void combine(benchmark::State& state, const char* isa, DataType type, RedOp op, size_t sources) {
  const auto bytes = static_cast<size_t>(state.range(0));
  auto device = device::host_device(isa);
  if (!device.ok()) return state.SkipWithError(device.status().message().c_str());
  std::vector<std::vector<std::byte>> inputs(sources, filled(bytes));
  std::vector<std::byte> output(bytes);
  std::vector<device::Source> from;
  for (const auto& input : inputs) from.push_back({input.data(), false});
  const device::Reduction reduction{type, op, static_cast<int>(sources)};
  const device::Combine what{output.data(), false, true, from, bytes / size_of(type)};
  for (auto _ : state) {
    (*device)->combine(reduction, what);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * bytes * (sources + 1)));
}

void copy(benchmark::State& state) {
  const auto bytes = static_cast<size_t>(state.range(0));
  const std::vector<std::byte> from = filled(bytes);
  std::vector<std::byte> to(bytes);
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), bytes);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<int64_t>(2 * state.iterations() * bytes));
}

void register_all() {
  struct Row {
    DataType type;
    RedOp op;
    size_t sources;
  };
  std::vector<Row> rows = {{hetcclFloat32, hetcclSum, kMostSources},
                           {hetcclFloat16, hetcclAvg, 2},
                           {hetcclFloat32, hetcclMax, 2}};
  for (DataType type : {hetcclInt8, hetcclInt32, hetcclInt64, hetcclFloat8e4m3, hetcclFloat16,
                        hetcclBfloat16, hetcclFloat32, hetcclFloat64, hetcclComplex64}) {
    rows.push_back({type, hetcclSum, 2});
  }
  benchmark::RegisterBenchmark("copy", copy)->Arg(kInCache)->Arg(kInMemory);
  for (const char* isa : device::host_isas()) {
    for (const Row& row : rows) {
      const std::string name = std::string("combine/") + isa + "/" +
                               std::string(name_of(row.type)) + "/" + std::string(name_of(row.op)) +
                               "/" + std::to_string(row.sources);
      benchmark::RegisterBenchmark(name.c_str(), combine, isa, row.type, row.op, row.sources)
          ->Arg(kInCache)
          ->Arg(kInMemory);
    }
  }
}

}  // namespace
}  // namespace hetccl

int main(int argc, char** argv) {
  hetccl::register_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

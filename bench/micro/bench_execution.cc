// What the interpreter itself costs: a plan run over a lane that is always ready, with blocks of
// one element, so that hardly anything but the steps is timed.
#include <benchmark/benchmark.h>

#include <vector>

#include "lib/coll/registry.h"
#include "lib/run/execution.h"

namespace hetccl {
namespace {

// Accepts and delivers at once; messages hold zeros.
class ReadyLane final : public net::Lane {
 public:
  explicit ReadyLane(int ranks) : sent_(static_cast<size_t>(ranks)), zeros_(1 << 16) {}
  size_t max_message() const override { return zeros_.size(); }
  bool try_send(int peer, std::span<const net::Piece> pieces, net::Envelope, bool) override {
    benchmark::DoNotOptimize(pieces.data());
    ++sent_[peer];
    return true;
  }
  bool has_credit(int) override { return true; }
  uint64_t sends_accepted(int peer) override { return sent_[peer]; }
  uint64_t sends_done(int peer) override { return sent_[peer]; }
  uint64_t sends_released(int peer) override { return sent_[peer]; }
  bool wants_announcements(int) const override { return true; }
  bool try_announce(int, std::byte*, size_t bytes, bool) override {
    announced_ = bytes;
    return true;
  }
  bool try_receive(int, unsigned, net::Received* message) override {
    *message = {zeros_.data(), announced_, 0};
    return true;
  }
  void release(int) override {}
  Result<bool> progress() override { return false; }
  bool quiet() override { return true; }
  std::string describe(int) const override { return "always ready"; }

 private:
  std::vector<uint64_t> sent_;
  std::vector<std::byte> zeros_;
  size_t announced_ = 0;
};

void plan_steps(benchmark::State& state, const char* name) {
  const int ranks = static_cast<int>(state.range(0));
  const coll::Algorithm* algorithm = coll::find(coll::Collective::kAllReduce, name);
  const size_t count = static_cast<size_t>(algorithm->blocks(ranks));
  run::Shape shape;
  shape.reduction = {hetcclFloat32, hetcclSum, ranks};
  shape.reduces = true;
  shape.element_bytes = shape.accumulator_bytes = 4;
  shape.max_message = 4096;
  shape.unbuffered = algorithm->unbuffered;
  const run::Program program(coll::make_plan(*algorithm, ranks, 0, 0),
                             coll::Layout::split(count, static_cast<int>(count), 1), shape);
  ReadyLane lane(ranks);
  run::Execution execution(&lane, *device::host_device("auto"), ranks, 4);
  std::vector<float> in(count), out(count), work(count);
  const run::Buffers buffers{reinterpret_cast<std::byte*>(in.data()),
                             reinterpret_cast<std::byte*>(out.data()),
                             reinterpret_cast<std::byte*>(work.data()), nullptr};
  for (auto _ : state) {
    execution.start(program, buffers, 0);
    while (execution.poll() != run::Execution::Outcome::kDone) {
    }
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * program.steps().size()));
  state.counters["steps"] = static_cast<double>(program.steps().size());
}

BENCHMARK_CAPTURE(plan_steps, one_shot, "one_shot")->Arg(2)->Arg(4)->Arg(8);
BENCHMARK_CAPTURE(plan_steps, direct, "direct")->Arg(2)->Arg(4)->Arg(8);
BENCHMARK_CAPTURE(plan_steps, ring, "ring")->Arg(2)->Arg(8)->Arg(32);

}  // namespace
}  // namespace hetccl

BENCHMARK_MAIN();

#include "bench/compare/visit.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>

namespace hetccl::bench {
namespace {

using Clock = std::chrono::steady_clock;

double since_s(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// A batch is long beside a barrier's skew. Each of its calls has memory of its own, freshly
// written: a library that reads its peer's memory in place would else find it in its cache.
constexpr double kBatch_s = 150e-6;
constexpr size_t kMostCalls = 128;
constexpr size_t kPoolBytes = size_t{4} << 20;
constexpr int kFewestSamples = 3, kMostSamples = 200;
constexpr size_t kAlignment = size_t{2} << 20;
// Send and receive buffers shall not collide in the sets of the caches.
constexpr size_t kApart = 576;

double agreed(const World& world, double value) {
  std::vector<double> one = {value};
  world.maximum(&one);
  return one[0];
}

}  // namespace

std::byte* Peer::allocate(size_t bytes) {
  return static_cast<std::byte*>(
      std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment));
}

Visitor::Visitor(const World& world, Peer* peer, uint64_t most_bytes)
    : world_(world), peer_(peer), room_(std::max<size_t>(most_bytes, kPoolBytes)) {}

std::string Visitor::start() {
  send_ = peer_->allocate(room_ + kAlignment);
  recv_ = peer_->allocate(room_ + kAlignment);
  if (send_ == nullptr || recv_ == nullptr) return "no memory for the buffers";
  std::memset(send_, 0, room_ + kAlignment);
  std::memset(recv_, 0, room_ + kAlignment);
  recv_ += kApart;
  return "";
}

size_t Visitor::stride(const Shape& shape) const {
  constexpr size_t kLine = 64;
  return (static_cast<size_t>(shape.bytes) + kLine - 1) / kLine * kLine;
}

// Roots take turns: one root alone would run ahead of the others from call to call.
std::vector<Call> Visitor::make_calls(const Cell& cell, const Shape& shape, size_t count) const {
  std::vector<Call> calls;
  for (size_t i = 0; i < count; ++i) {
    const int root =
        has_root(cell.kind) ? static_cast<int>(i % static_cast<size_t>(world_.ranks())) : 0;
    // MPI's broadcast has one buffer; so have all.
    const bool in_place = cell.kind == Kind::kBroadcast;
    const size_t at = i * stride(shape);
    calls.emplace_back(cell.kind, hetcclFloat32, hetcclSum, root, shape, in_place, world_.place(),
                       send_ + at, recv_ + at);
  }
  return calls;
}

void Visitor::run(const Call& call) const {
  const std::string wrong = peer_->run(call);
  if (!wrong.empty()) world_.fail(wrong);
}

// The least of some trials: whatever else the machine does only makes it longer.
double Visitor::estimate_s(const std::vector<Call>& calls, double budget_s) const {
  constexpr int kTrials = 5;
  constexpr size_t kMostRounds = 20;
  for (const Call& call : calls) call.write_input();
  for (const Call& call : calls) run(call);
  double least_s = 1e9, spent_s = 0;
  for (int trial = 0; trial < kTrials && spent_s < budget_s / 2; ++trial) {
    // As many as the last trial says a tenth of the budget holds.
    const double fitting = budget_s / 10 / (least_s * static_cast<double>(calls.size()));
    const auto rounds = static_cast<size_t>(
        std::clamp(fitting, 1.0, trial == 0 ? 1.0 : static_cast<double>(kMostRounds)));
    world_.barrier();
    const auto begin = Clock::now();
    for (size_t i = 0; i < rounds; ++i) {
      for (const Call& call : calls) run(call);
    }
    const double took_s = agreed(world_, since_s(begin));
    spent_s += took_s;
    least_s = std::min(least_s, took_s / static_cast<double>(rounds * calls.size()));
  }
  return std::max(least_s, 1e-8);
}

size_t Visitor::choose_batch(const Cell& cell, const Shape& shape, double each_s) const {
  const size_t fitting = room_ / std::max<size_t>(stride(shape), 1);
  const size_t wanted = static_cast<size_t>(std::ceil(kBatch_s / each_s));
  const size_t ranks = static_cast<size_t>(world_.ranks());
  size_t batch = std::clamp<size_t>(
      std::min(wanted, kPoolBytes / std::max<size_t>(stride(shape), 1)), 1, kMostCalls);
  if (has_root(cell.kind) && batch > 1) batch = (batch + ranks - 1) / ranks * ranks;
  return std::min(batch, std::max<size_t>(fitting, 1));
}

std::vector<double> Visitor::sample(const std::vector<Call>& calls, int samples) const {
  std::vector<double> times;
  for (int i = 0; i < samples; ++i) {
    for (const Call& call : calls) call.write_input();
    world_.barrier();
    const auto begin = Clock::now();
    for (const Call& call : calls) run(call);
    times.push_back(since_s(begin) / static_cast<double>(calls.size()));
  }
  world_.maximum(&times);
  std::sort(times.begin(), times.end());
  return times;
}

uint64_t Visitor::count_wrong(const std::vector<Call>& calls) const {
  const size_t checked = std::min<size_t>(calls.size(), static_cast<size_t>(world_.ranks()));
  uint64_t wrong = 0;
  for (size_t i = 0; i < checked; ++i) {
    calls[i].spoil_output();
    calls[i].write_input();
    world_.barrier();
    run(calls[i]);
    wrong += calls[i].count_wrong_at(peer_->result(calls[i]));
  }
  return world_.sum(wrong);
}

nlohmann::json Visitor::visit(const Cell& cell) {
  const std::string lacking = peer_->lacks(cell.kind);
  if (!lacking.empty()) return {{"lacks", lacking}};
  const Shape shape = shape_of_size(cell.kind, hetcclFloat32, world_.ranks(), cell.bytes);
  if (shape.bytes > room_ || shape.count == 0) {
    return {{"lacks", "a size of " + std::to_string(cell.bytes) + " bytes"}};
  }
  size_t& batch = batches_[{cell.kind, cell.bytes}];
  std::vector<Call> calls = make_calls(cell, shape, std::max<size_t>(batch, 1));
  double each_s = estimate_s(calls, cell.budget_s);
  // A visit that was disturbed may have chosen too short a batch, never too long a one.
  const size_t wanted = choose_batch(cell, shape, each_s);
  if (wanted > batch) {
    batch = wanted;
    calls = make_calls(cell, shape, batch);
    each_s = estimate_s(calls, cell.budget_s);
  }
  const int samples = static_cast<int>(
      std::clamp(cell.budget_s / (each_s * static_cast<double>(batch)),
                 static_cast<double>(kFewestSamples), static_cast<double>(kMostSamples)));
  const std::vector<double> times = sample(calls, samples);
  const std::string algorithm = peer_->algorithm();
  nlohmann::json wrong;
  if (peer_->has_results()) wrong = count_wrong(calls);
  return {{"time_us", {{"median", 1e6 * times[times.size() / 2]}, {"min", 1e6 * times.front()}}},
          {"bytes", shape.bytes},
          {"samples", samples},
          {"batch", batch},
          {"algorithm", algorithm},
          {"wrong", wrong}};
}

}  // namespace hetccl::bench

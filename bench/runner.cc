#include "bench/runner.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>

#include "bench/mpi_peer.h"

namespace hetccl::bench {
namespace {

using Clock = std::chrono::steady_clock;

double since_us(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

// A batch lasts about this long: hundreds of times the clock's cost and a barrier's skew.
constexpr double kBatchUs = 200;
constexpr int kLongestBatch = 256;

}  // namespace

void Runner::run(const Call& call) const {
  std::string wrong = library_.run(call);
  if (!wrong.empty()) world_.fail(wrong);
}

void Runner::wait() const {
  std::string wrong = library_.wait();
  if (!wrong.empty()) world_.fail(wrong);
}

void Runner::run_peer(const Call& call) const {
  if (!run_mpi(call)) world_.fail("MPI's own " + std::string(name_of(call.kind())) + " failed");
}

uint64_t Runner::verify(const Call& call) const {
  if (!options_.check) return 0;
  call.spoil_output();
  call.write_input();
  run(call);
  wait();
  return world_.sum(call.count_wrong());
}

void Runner::warn_if_peer_differs(const Call& call) const {
  if (!options_.check) return;
  call.spoil_output();
  call.write_input();
  run_peer(call);
  uint64_t wrong = world_.sum(call.count_wrong_at(mpi_result(call)));
  if (wrong > 0 && world_.rank() == 0) {
    std::fprintf(stderr, "hetccl_perf: warning: MPI's own %s of %zu has %llu wrong values\n",
                 std::string(name_of(call.kind())).c_str(), call.shape().count,
                 static_cast<unsigned long long>(wrong));
  }
}

int Runner::choose_batch(const Call& call) const {
  for (int i = 0; i < options_.warmup; ++i) run(call);
  wait();
  constexpr int kTrials = 3;
  Clock::time_point begin = Clock::now();
  for (int i = 0; i < kTrials; ++i) run(call);
  wait();
  std::vector<double> each = {since_us(begin) / kTrials};
  world_.maximum(&each);
  double fitting = std::ceil(kBatchUs / std::max(each[0], 0.01));
  return static_cast<int>(std::clamp(fitting, 1.0, static_cast<double>(kLongestBatch)));
}

double Runner::sample_us(const Call& call, int batch, bool peer) const {
  call.write_input();
  world_.barrier();
  Clock::time_point begin = Clock::now();
  if (peer) {
    for (int i = 0; i < batch; ++i) run_peer(call);
  } else {
    for (int i = 0; i < batch; ++i) run(call);
    wait();
  }
  return since_us(begin) / batch;
}

bool Runner::comparable(const Call& call) const {
  // MPI returns at once from a call that moves nothing, hetccl's is matched: no common measure.
  bool empty = call.shape().bytes == 0 && call.kind() != Kind::kBarrier;
  return options_.compare_mpi && !empty &&
         mpi_lacks(call.kind(), call.type(), call.op(), call.shape()).empty();
}

Measurement Runner::describe(const Call& call, const std::string& memory) const {
  Measurement m;
  m.kind = call.kind();
  m.bytes = call.shape().bytes;
  m.count = call.shape().count;
  m.type = call.type();
  m.op = call.op();
  m.root = has_root(call.kind()) ? call.root() : -1;
  m.skew = call.shape().skew;
  m.in_place = call.in_place();
  m.algorithm = library_.last_algorithm();
  m.memory = memory;
  m.ranks = world_.ranks();
  m.checked = options_.check;
  m.compared = comparable(call);
  return m;
}

Measurement Runner::measure(const Call& call, const std::string& memory) const {
  uint64_t wrong = verify(call);
  int batch = choose_batch(call);
  Measurement m = describe(call, memory);
  if (m.compared) {
    warn_if_peer_differs(call);
    for (int i = 0; i < options_.warmup; ++i) run_peer(call);
  }
  std::vector<double> ours, theirs;
  for (int i = 0; i < options_.iterations; ++i) {
    if (m.compared && i % 2 == 1) theirs.push_back(sample_us(call, batch, true));
    ours.push_back(sample_us(call, batch, false));
    if (m.compared && i % 2 == 0) theirs.push_back(sample_us(call, batch, true));
  }
  world_.maximum(&ours);
  m.time = summarize(std::move(ours));
  if (m.compared) {
    world_.maximum(&theirs);
    m.mpi_time = summarize(std::move(theirs));
  }
  m.wrong = wrong + verify(call);
  return m;
}

std::vector<double> Runner::time_step(const std::vector<Call>& calls, bool peer) const {
  for (const Call& call : calls) call.write_input();
  std::vector<double> ends;
  ends.reserve(calls.size());
  world_.barrier();
  Clock::time_point begin = Clock::now();
  for (const Call& call : calls) {
    if (peer) {
      run_peer(call);
    } else {
      run(call);
      wait();
    }
    ends.push_back(since_us(begin));
  }
  return ends;
}

std::vector<Measurement> Runner::measure_step(const std::vector<Call>& calls,
                                              const std::string& memory, Step* step) const {
  std::vector<Measurement> results;
  step->compared = options_.compare_mpi;
  for (const Call& call : calls) {
    uint64_t wrong = verify(call);
    results.push_back(describe(call, memory));
    results.back().wrong = wrong;
    step->compared =
        step->compared && mpi_lacks(call.kind(), call.type(), call.op(), call.shape()).empty();
  }
  for (int i = 0; i < options_.warmup; ++i) {
    (void)time_step(calls, false);
    if (step->compared) (void)time_step(calls, true);
  }
  // Per call, then the whole step: samples of ours and of MPI's.
  std::vector<std::vector<double>> samples[2];
  for (auto& s : samples) s.resize(calls.size() + 1);
  auto sample = [&](bool peer) {
    std::vector<double> ends = time_step(calls, peer);
    for (size_t c = 0; c < ends.size(); ++c) {
      samples[peer][c].push_back(c == 0 ? ends[0] : ends[c] - ends[c - 1]);
    }
    samples[peer][ends.size()].push_back(ends.back());
  };
  for (int i = 0; i < options_.iterations; ++i) {
    if (step->compared && i % 2 == 1) sample(true);
    sample(false);
    if (step->compared && i % 2 == 0) sample(true);
  }
  for (bool peer : {false, true}) {
    if (peer && !step->compared) break;
    for (size_t c = 0; c <= calls.size(); ++c) {
      world_.maximum(&samples[peer][c]);
      Times times = summarize(std::move(samples[peer][c]));
      Times& place = c == calls.size() ? (peer ? step->mpi_time : step->time)
                                       : (peer ? results[c].mpi_time : results[c].time);
      place = times;
    }
  }
  for (size_t c = 0; c < calls.size(); ++c) {
    results[c].compared = step->compared && comparable(calls[c]);
    results[c].wrong += verify(calls[c]);
  }
  return results;
}

}  // namespace hetccl::bench

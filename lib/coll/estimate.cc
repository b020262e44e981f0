// The cost model: what a plan costs on given links, without running it.
//
// Every step has two times: when its first chunk is done and when all of it is. A step that waits
// chunk by chunk starts after the first chunk of what it waits for, one that waits for the whole
// after the last; so pipelines get their credit without simulating single chunks.
// What a rank can do only one after the other: its processor (overheads, reductions, copies through
// shared memory), its link's sending and its receiving direction.
#include <algorithm>
#include <queue>
#include <vector>

#include "lib/coll/select.h"

namespace hetccl::coll {
namespace {

// Above this many ranks the time is extrapolated from this many and fewer.
constexpr int kSimulated = 32;

// Several senders to one receiver at a time fill the switch's queue and lose some of the rate:
// measured on shaped Ethernet links, the direct all-reduce took 1.09 of the ring's time.
constexpr double kContention = 1.1;

// A communicator of `ranks` that stands for a larger one: rank i is rank i * stride of it.
struct Sample {
  const CostModel& model;
  int ranks;
  double stride;

  int original(int rank) const { return static_cast<int>(rank * stride); }
  bool same_node(int a, int b) const {
    return model.node_of[original(a)] == model.node_of[original(b)];
  }
  double link_rate(int rank) const {
    return model.rank_bytes_per_s.empty() ? model.between_nodes.bytes_per_s
                                          : model.rank_bytes_per_s[original(rank)];
  }
  double reduce_rate(int rank) const {
    return model.reduce_bytes_per_s.empty() ? model.default_reduce_bytes_per_s
                                            : model.reduce_bytes_per_s[original(rank)];
  }
};

struct Times {
  double first = 0, last = 0;
  void wait_for(const Times& other, bool whole) {
    first = std::max(first, whole ? other.last : other.first);
    last = std::max(last, other.last);
  }
};

class Simulation {
 public:
  Simulation(const Algorithm& algorithm, int root, double bytes, double accumulator_ratio,
             const Sample& sample)
      : sample_(sample),
        block_bytes_(bytes / algorithm.blocks(sample.ranks)),
        accumulator_ratio_(accumulator_ratio),
        ranks_(sample.ranks),
        sent_(static_cast<size_t>(sample.ranks) * sample.ranks) {
    for (int r = 0; r < sample.ranks; ++r) prepare(make_plan(algorithm, sample.ranks, r, root), r);
  }

  double run() {
    for (int r = 0; r < sample_.ranks; ++r) {
      for (uint32_t s = 0; s < ranks_[r].plan.steps.size(); ++s) {
        if (ranks_[r].pending[s] == 0) ready_.push({0, r, s, false});
      }
    }
    double end = 0;
    while (!ready_.empty()) {
      const Ready next = ready_.top();
      ready_.pop();
      Rank& rank = ranks_[next.rank];
      const Step& step = rank.plan.steps[next.step];
      if (step.kind == StepKind::kCombine) {
        combine(next.rank, rank.times[next.step], step);
      } else if (next.on_wire) {
        cross(next.rank, rank.times[next.step], step, next.time);
      } else if (!send(next.rank, next.step, step)) {
        continue;
      }
      end = std::max(end, rank.times[next.step].last);
      release_dependents(next.rank, next.step);
    }
    return end;
  }

 private:
  struct Rank {
    Plan plan;
    std::vector<Times> times;                    // by step: earliest start, then what came of it
    std::vector<int> pending;                    // by step: dependencies and messages to come
    std::vector<std::vector<Dependency>> later;  // by step: those that depend on it
    Times processor;  // when it can take up another first chunk, and when all its work is done
    double sender_free = 0, receiver_free = 0;
    int waiting_senders = 0;  // ranks with messages for this one that are on their links
  };
  // Messages of one rank to another, and the receiver's steps that take them, both in order.
  struct Stream {
    std::vector<uint32_t> receivers;
    size_t arrived = 0;
    int waiting = 0;  // on their link
  };
  struct Ready {
    double time;
    int rank;
    uint32_t step;
    bool on_wire;  // a send to another node that has got its turn at the sender's link
    bool operator<(const Ready& other) const {  // the queue's top is the largest: the earliest
      if (time != other.time) return time > other.time;
      return rank != other.rank ? rank > other.rank : step > other.step;
    }
  };

  void prepare(Plan plan, int r) {
    Rank& rank = ranks_[r];
    rank.plan = std::move(plan);
    const size_t steps = rank.plan.steps.size();
    rank.times.resize(steps);
    rank.pending.resize(steps);
    rank.later.resize(steps);
    for (uint32_t s = 0; s < steps; ++s) {
      const Step& step = rank.plan.steps[s];
      for (uint32_t d = step.dependencies_begin; d < step.dependencies_end; ++d) {
        rank.later[rank.plan.dependencies[d].step].push_back({s, rank.plan.dependencies[d].whole});
        ++rank.pending[s];
      }
      for (uint32_t o = step.operands_begin; o < step.operands_end; ++o) {
        const int peer = rank.plan.operands[o].peer;
        if (peer < 0) continue;
        stream(peer, r).receivers.push_back(s);
        ++rank.pending[s];
      }
    }
  }
  Stream& stream(int from, int to) { return sent_[static_cast<size_t>(from) * sample_.ranks + to]; }

  double bytes_of(const Step& step, Buffer buffer) const {
    const double bytes = block_bytes_ * step.blocks.count;
    return buffer == Buffer::kWork ? bytes * accumulator_ratio_ : bytes;
  }
  double chunk_share(double bytes) const {
    const double chunk = static_cast<double>(sample_.model.chunk_bytes);
    return bytes > chunk ? chunk / bytes : 1;
  }

  // The processor spends `busy` on a step, of which `share` on its first chunk; it works on the
  // chunks of several steps in turn.
  Times work(Rank& rank, const Times& ready, double busy, double share) {
    Times& processor = rank.processor;
    processor.first = std::max(processor.first, ready.first) + busy * share;
    processor.last = std::max(processor.last, ready.first) + busy;
    return {processor.first, std::max(processor.last, ready.last + busy * share)};
  }

  // Within a node the sender exposes its data, once for all peers, and the reader moves them.
  // Otherwise the message takes its turn at the sender's link: false, as it goes on from there when
  // its time comes, so that receivers serve messages in the order of time.
  bool send(int r, uint32_t s, const Step& step) {
    Rank& rank = ranks_[r];
    Times& times = rank.times[s];
    const double bytes = bytes_of(step, step.buffer);
    const double share = chunk_share(bytes);
    const bool near = sample_.same_node(r, step.peer);
    const LinkCost& link = near ? sample_.model.within_node : sample_.model.between_nodes;
    const double expose = near && !step.fan_out ? bytes / link.bytes_per_s : 0;
    const double busy = link.overhead_s / share + expose;
    times = work(rank, times, busy, share);
    if (near) {
      deliver(r, step.peer, {times.first + link.latency_s, times.last + link.latency_s});
      return true;
    }
    const double begin = std::max(times.first, rank.sender_free);
    rank.sender_free = begin + bytes / sample_.link_rate(r);
    if (stream(r, step.peer).waiting++ == 0) ++ranks_[step.peer].waiting_senders;
    ready_.push({begin, r, s, true});
    return false;
  }

  void cross(int r, Times& times, const Step& step, double begin) {
    const double bytes = bytes_of(step, step.buffer);
    const double share = chunk_share(bytes);
    double arrive = bytes / sample_.link_rate(step.peer);
    double& receiver_free = ranks_[step.peer].receiver_free;
    int& waiting_senders = ranks_[step.peer].waiting_senders;
    if (waiting_senders > 1) arrive *= kContention;
    if (--stream(r, step.peer).waiting == 0) --waiting_senders;
    const double slower = std::max(bytes / sample_.link_rate(r), arrive);
    begin = std::max(begin, receiver_free);
    receiver_free = begin + arrive;
    times = {begin + slower * share, std::max(begin + slower, times.last + slower * share)};
    const double latency = sample_.model.between_nodes.latency_s;
    deliver(r, step.peer, {times.first + latency, times.last + latency});
  }

  void deliver(int from, int to, const Times& arrival) {
    Stream& messages = stream(from, to);
    const uint32_t receiver = messages.receivers[messages.arrived++];
    ranks_[to].times[receiver].wait_for(arrival, false);
    release(to, receiver);
  }

  void combine(int r, Times& times, const Step& step) {
    Rank& rank = ranks_[r];
    const uint32_t operands = step.operands_end - step.operands_begin;
    const bool moves = operands == 1 && !step.finalize;
    bool local = true;
    double busy = 0, largest = 0;
    for (uint32_t o = step.operands_begin; o < step.operands_end; ++o) {
      const Operand& operand = rank.plan.operands[o];
      local &= operand.peer < 0;
      const bool wide = operand.peer < 0 ? operand.buffer == Buffer::kWork : operand.wide;
      const double bytes = bytes_of(step, wide ? Buffer::kWork : Buffer::kInput);
      const bool near = operand.peer >= 0 && sample_.same_node(r, operand.peer);
      largest = std::max(largest, bytes);
      if (operand.peer >= 0) {
        const LinkCost& link = near ? sample_.model.within_node : sample_.model.between_nodes;
        busy += link.overhead_s / chunk_share(bytes);
      }
      if (!moves) {
        busy += bytes / sample_.reduce_rate(r);
      } else if (near) {
        busy += bytes / sample_.model.within_node.bytes_per_s;
      } else if (operand.peer < 0) {
        busy += bytes / sample_.reduce_rate(r);
      }
    }
    if (local) busy += sample_.model.within_node.overhead_s;  // a step is not free
    const double share = chunk_share(largest);
    times = work(rank, times, busy, share);
  }

  void release_dependents(int r, uint32_t s) {
    for (const Dependency& d : ranks_[r].later[s]) {
      ranks_[r].times[d.step].wait_for(ranks_[r].times[s], d.whole);
      release(r, d.step);
    }
  }
  void release(int r, uint32_t s) {
    if (--ranks_[r].pending[s] == 0) ready_.push({ranks_[r].times[s].first, r, s, false});
  }

  const Sample sample_;
  double block_bytes_, accumulator_ratio_;
  std::vector<Rank> ranks_;
  std::vector<Stream> sent_;
  std::priority_queue<Ready> ready_;
};

// log2, straight between powers of two: the same bits on every machine, whatever its library.
double log2_of(double x) {
  double whole = 0;
  for (; x >= 2; x /= 2) ++whole;
  return whole + (x - 1);
}

}  // namespace

double estimate(const Algorithm& algorithm, int ranks, int root, size_t total_bytes,
                size_t accumulator_ratio_num, size_t accumulator_ratio_den,
                const CostModel& model) {
  const double ratio =
      static_cast<double>(accumulator_ratio_num) / static_cast<double>(accumulator_ratio_den);
  const auto simulate = [&](int some) {
    const double stride = static_cast<double>(ranks) / some;
    const int its_root = std::min(some - 1, static_cast<int>(root / stride));
    const Sample sample{model, some, stride};
    return Simulation(algorithm, its_root, static_cast<double>(total_bytes), ratio, sample).run();
  };
  if (ranks <= kSimulated) return simulate(ranks);
  // t(n) = a + b n + c log2 n, through three rank counts.
  const double t8 = simulate(kSimulated / 4), t16 = simulate(kSimulated / 2);
  const double t32 = simulate(kSimulated);
  const double per_rank = std::max(0.0, ((t32 - t16) - (t16 - t8)) / (kSimulated / 4));
  const double per_doubling = std::max(0.0, (t32 - t16) - per_rank * (kSimulated / 2));
  const double more = static_cast<double>(ranks) / kSimulated;
  return t32 + per_rank * (ranks - kSimulated) + per_doubling * log2_of(more);
}

CostModel default_cost_model(std::span<const int> node_of, size_t chunk_bytes) {
  CostModel model;
  model.node_of.assign(node_of.begin(), node_of.end());
  model.within_node = {0.5e-6, 5e9, 0.1e-6};
  model.between_nodes = {25e-6, 1.2e9, 4e-6};
  model.default_reduce_bytes_per_s = 5e9;
  model.chunk_bytes = chunk_bytes;
  return model;
}

}  // namespace hetccl::coll

// N ranks in one process over the simulated network: random algorithms, shapes, mixtures of in
// place and not, schedules and delays, all from a seed; and the loss of a rank at every operation.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>

#include "lib/call.h"
#include "lib/coll/registry.h"
#include "lib/net/sim_network.h"
#include "lib/run/execution.h"

namespace hetccl {
namespace {

using coll::Collective;
using Random = std::mt19937_64;

int32_t value(int rank, size_t index) {
  return static_cast<int32_t>((index * 31 + static_cast<size_t>(rank) * 7) % 23);
}

// One collective of all ranks, with its data and what must come of it.
class Job {
 public:
  struct Options {
    const coll::Algorithm* algorithm;
    int ranks;
    int root;
    size_t count;
    DataType type;  // int32, or float16, whose partial sums travel in float32
    std::vector<bool> in_place;
    net::SimOptions network;
  };

  explicit Job(const Options& options) : o_(options) {
    lanes_ = net::open_sim_lanes(o_.ranks, o_.network);
    for (int r = 0; r < o_.ranks; ++r) add_rank(r);
  }

  // Polls ranks in random order until all are done, or all that are not dead know of the loss.
  // False: no end within the bound.
  bool run(Random& random, bool loss_expected) {
    std::vector<int> state(static_cast<size_t>(o_.ranks), 0);  // 1: done, 2: error
    for (int round = 0; round < 2000000; ++round) {
      const auto r = static_cast<size_t>(random() % static_cast<size_t>(o_.ranks));
      if (state[r] == 0) {
        switch (ranks_[r].execution->poll()) {
          case run::Execution::Outcome::kDone:
            state[r] = 1;
            break;
          case run::Execution::Outcome::kMismatch:
            ADD_FAILURE() << "rank " << r << " saw a mismatch";
            return false;
          default:
            break;
        }
      }
      if (!lanes_[r]->progress().ok()) {
        EXPECT_TRUE(loss_expected);
        if (state[r] == 0) state[r] = 2;
      }
      if (std::find(state.begin(), state.end(), 0) == state.end()) return true;
    }
    return false;
  }

  void check() const {
    for (int r = 0; r < o_.ranks; ++r) check_rank(r);
  }

 private:
  struct Rank {
    std::vector<std::byte> send, recv, work, temp;
    std::unique_ptr<run::Program> program;
    std::unique_ptr<run::Execution> execution;
    std::byte *input, *output;
  };

  size_t n() const { return static_cast<size_t>(o_.ranks); }
  size_t width() const { return size_of(o_.type); }
  size_t send_count(int r) const {
    switch (o_.algorithm->collective) {
      case Collective::kReduceScatter:
      case Collective::kAllToAll:
        return o_.count * n();
      case Collective::kBroadcast:
        return r == o_.root ? o_.count : 0;
      case Collective::kScatter:
        return r == o_.root ? o_.count * n() : 0;
      case Collective::kBarrier:
        return 0;
      default:
        return o_.count;
    }
  }
  size_t recv_count(int r) const {
    switch (o_.algorithm->collective) {
      case Collective::kAllGather:
      case Collective::kAllToAll:
        return o_.count * n();
      case Collective::kReduce:
        return r == o_.root ? o_.count : 0;
      case Collective::kGather:
        return r == o_.root ? o_.count * n() : 0;
      case Collective::kExscan:
        return r > 0 ? o_.count : 0;
      case Collective::kBarrier:
        return 0;
      default:
        return o_.count;
    }
  }

  void put(std::byte* place, size_t index, int32_t v) const {
    if (o_.type == hetcclInt32) {
      std::memcpy(place + index * 4, &v, 4);
    } else {  // small whole numbers as float16: exact
      uint16_t bits = 0;
      if (v != 0) {
        const int e = 31 - __builtin_clz(static_cast<unsigned>(v));
        bits = static_cast<uint16_t>((e + 15) << 10 | ((v << (10 - e)) & 0x3ff));
      }
      std::memcpy(place + index * 2, &bits, 2);
    }
  }
  bool holds(const std::byte* place, size_t index, int32_t v) const {
    std::byte want[4];
    put(want, 0, v);
    return std::memcmp(place + index * width(), want, width()) == 0;
  }

  void add_rank(int r) {
    Call call{o_.algorithm->collective};
    call.count = o_.algorithm->collective == Collective::kBarrier ? 0 : o_.count;
    call.type = o_.type;
    call.op = hetcclSum;
    call.root = o_.root;
    run::Shape shape;
    shape.reduction = {o_.type, hetcclSum, o_.ranks};
    shape.reduces = call.reduces();
    shape.element_bytes = width();
    shape.accumulator_bytes = call.reduces() ? accumulator_size(o_.type, hetcclSum) : width();
    shape.max_message = o_.network.chunk_bytes;
    shape.unbuffered = o_.algorithm->unbuffered;
    Rank rank;
    rank.program =
        std::make_unique<run::Program>(coll::make_plan(*o_.algorithm, o_.ranks, r, o_.root),
                                       layout_of(call, *o_.algorithm, o_.ranks, r), shape);
    const size_t sends = send_count(r), receives = recv_count(r);
    rank.send.resize(std::max(sends, receives) * width() + 1, std::byte{0xEE});
    rank.recv.resize(receives * width() + 1, std::byte{0xEE});
    rank.input = rank.send.data();
    rank.output = rank.recv.data();
    if (o_.in_place[static_cast<size_t>(r)]) {
      rank.output = rank.send.data();
      const size_t own = static_cast<size_t>(r) * o_.count * width();
      const bool root = r == o_.root;
      if (call.collective == Collective::kAllGather ||
          (call.collective == Collective::kGather && root)) {
        rank.input = rank.output + own;
      }
      if (call.collective == Collective::kReduceScatter ||
          (call.collective == Collective::kScatter && root)) {
        rank.output = rank.input + own;
      }
    }
    for (size_t i = 0; i < sends; ++i) put(rank.input, i, value(r, i));
    rank.work.resize(rank.program->work_bytes());
    rank.temp.resize(rank.program->temp_bytes());
    rank.execution =
        std::make_unique<run::Execution>(lanes_[static_cast<size_t>(r)].get(),
                                         *device::host_device("auto"), o_.ranks, o_.network.depth);
    ranks_.push_back(std::move(rank));
    Rank& kept = ranks_.back();
    kept.execution->start(*kept.program,
                          {kept.input, kept.output, kept.work.data(), kept.temp.data()}, 12345);
  }

  int32_t expected(int r, size_t i) const {
    const auto me = static_cast<size_t>(r);
    switch (o_.algorithm->collective) {
      case Collective::kBroadcast:
        return value(o_.root, i);
      case Collective::kScatter:
        return value(o_.root, me * o_.count + i);
      case Collective::kAllGather:
      case Collective::kGather:
        return value(static_cast<int>(i / o_.count), i % o_.count);
      case Collective::kAllToAll:
        return value(static_cast<int>(i / o_.count), me * o_.count + i % o_.count);
      default:
        break;
    }
    const size_t at =
        o_.algorithm->collective == Collective::kReduceScatter ? me * o_.count + i : i;
    int32_t sum = 0;
    const int summed = coll::contributions(o_.algorithm->collective, o_.ranks, r);
    for (int k = 0; k < summed; ++k) sum += value(k, at);
    return sum;
  }

  void check_rank(int r) const {
    const Rank& rank = ranks_[static_cast<size_t>(r)];
    for (size_t i = 0; i < recv_count(r); ++i) {
      ASSERT_TRUE(holds(rank.output, i, expected(r, i)))
          << coll::name_of(o_.algorithm->collective) << ":" << o_.algorithm->name << " rank " << r
          << " of " << o_.ranks << " root " << o_.root << " count " << o_.count << " element " << i
          << " seed " << o_.network.seed;
    }
    EXPECT_EQ(rank.recv.back(), std::byte{0xEE});
    if (o_.in_place[static_cast<size_t>(r)]) return;
    for (size_t i = 0; i < send_count(r); ++i) {
      ASSERT_TRUE(holds(rank.input, i, value(r, i))) << "the send buffer was written";
    }
  }

  Options o_;
  std::vector<std::unique_ptr<net::Lane>> lanes_;
  std::vector<Rank> ranks_;
};

Job::Options random_options(uint64_t seed, Random& random) {
  const auto rows = coll::algorithms();
  Job::Options o;
  o.algorithm = &rows[random() % rows.size()];
  o.ranks = static_cast<int>(1 + random() % 9);
  o.root = static_cast<int>(random() % static_cast<uint64_t>(o.ranks));
  o.count = random() % 4 == 0 ? random() % 12 : random() % 700;
  const bool half = random() % 2 == 0 && o.algorithm->collective != Collective::kBarrier;
  o.type = half ? hetcclFloat16 : hetcclInt32;
  for (int r = 0; r < o.ranks; ++r) o.in_place.push_back(random() % 2 == 0);
  o.network.seed = seed;
  o.network.chunk_bytes = random() % 2 == 0 ? 64 : 512;
  o.network.depth = static_cast<unsigned>(2 + random() % 3);
  o.network.longest_delay = static_cast<unsigned>(1 + random() % 40);
  return o;
}

TEST(Execution, RightForTwoThousandSeeds) {
  for (uint64_t seed = 1; seed <= 2000 && !HasFatalFailure(); ++seed) {
    Random random(seed);
    const Job::Options o = random_options(seed, random);
    Job job(o);
    ASSERT_TRUE(job.run(random, false))
        << "no end: " << coll::name_of(o.algorithm->collective) << ":" << o.algorithm->name
        << " ranks " << o.ranks << " count " << o.count << " seed " << seed;
    job.check();
  }
}

// Whatever operation a rank dies at, every other one comes to an end.
TEST(Execution, EndsWhenARankIsLostAtAnyOperation) {
  int jobs = 0;
  for (const coll::Algorithm& algorithm : coll::algorithms()) {
    for (uint64_t at = 1; at <= 60; ++at) {
      Random random(at * 1000 + 17);
      Job::Options o;
      o.algorithm = &algorithm;
      o.ranks = 4;
      o.root = static_cast<int>(at % 4);
      o.count = 100;
      o.type = hetcclInt32;
      o.in_place = {false, true, false, true};
      o.network = {at, 64, 2, 10, static_cast<int>(random() % 4), at};
      Job job(o);
      ASSERT_TRUE(job.run(random, true)) << algorithm.name << " lost at " << at;
      ++jobs;
    }
  }
  EXPECT_EQ(jobs, static_cast<int>(coll::algorithms().size()) * 60);
}

// The same executions serve call after call; a foreign signature is found, not used.
TEST(Execution, AForeignMessageIsAMismatch) {
  net::SimOptions network;
  auto lanes = net::open_sim_lanes(2, network);
  const coll::Algorithm* direct = coll::find(Collective::kAllReduce, "direct");
  run::Shape shape;
  shape.reduction = {hetcclInt32, hetcclSum, 2};
  shape.reduces = true;
  shape.element_bytes = shape.accumulator_bytes = 4;
  shape.max_message = 1024;
  shape.unbuffered = true;
  std::vector<int32_t> in[2] = {std::vector<int32_t>(10, 1), std::vector<int32_t>(10, 2)};
  std::vector<int32_t> out[2] = {std::vector<int32_t>(10), std::vector<int32_t>(10)};
  std::vector<std::unique_ptr<run::Program>> programs;
  std::vector<std::unique_ptr<run::Execution>> executions;
  for (int r = 0; r < 2; ++r) {
    programs.push_back(std::make_unique<run::Program>(coll::make_plan(*direct, 2, r, 0),
                                                      coll::Layout::split(10, 2, 1), shape));
    executions.push_back(std::make_unique<run::Execution>(lanes[static_cast<size_t>(r)].get(),
                                                          *device::host_device("auto"), 2, 4));
    executions[static_cast<size_t>(r)]->start(
        *programs.back(),
        {reinterpret_cast<std::byte*>(in[r].data()), reinterpret_cast<std::byte*>(out[r].data()),
         nullptr, nullptr},
        r == 0 ? 111 : 222);
  }
  bool found = false;
  for (int k = 0; k < 10000 && !found; ++k) {
    for (size_t r = 0; r < 2; ++r) {
      found |= executions[r]->poll() == run::Execution::Outcome::kMismatch;
      ASSERT_TRUE(lanes[r]->progress().ok());
    }
  }
  EXPECT_TRUE(found);
  EXPECT_EQ(out[0], std::vector<int32_t>(10)) << "nothing of another call was used";
}

}  // namespace
}  // namespace hetccl

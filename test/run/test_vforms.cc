// AllToAllv, Gatherv and Scatterv of N ranks in one process over the simulated network: random
// counts, displacements, mixtures of in place and not, schedules and delays, all from a seed. Each
// rank binds its program from the counts that it knows itself.
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

constexpr int32_t kUntouched = -1;

int32_t element(size_t from, size_t to, size_t i) {
  return static_cast<int32_t>(from * 1000003 + to * 5003 + i);
}

struct Blocks {
  std::vector<size_t> counts, displacements;
  size_t end = 0;
};

// In random order, with random gaps.
Blocks place(std::vector<size_t> counts, Random& random) {
  Blocks blocks{std::move(counts), {}, 0};
  blocks.displacements.resize(blocks.counts.size());
  std::vector<size_t> order(blocks.counts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::shuffle(order.begin(), order.end(), random);
  for (size_t r : order) {
    blocks.displacements[r] = blocks.end + random() % 3;
    blocks.end = blocks.displacements[r] + blocks.counts[r];
  }
  return blocks;
}

class Job {
 public:
  Job(const coll::Algorithm& algorithm, uint64_t seed) : random_(seed), algorithm_(algorithm) {
    n_ = 1 + random_() % 7;
    root_ = random_() % n_;
    network_.seed = seed;
    network_.chunk_bytes = random_() % 2 == 0 ? 64 : 512;
    network_.depth = static_cast<unsigned>(2 + random_() % 3);
    network_.longest_delay = static_cast<unsigned>(1 + random_() % 40);
    lanes_ = net::open_sim_lanes(static_cast<int>(n_), network_);
    sent_.resize(n_ * n_);
    const size_t most = random_() % 4 == 0 ? 10 : 400;
    for (size_t from = 0; from < n_; ++from) {
      for (size_t to = 0; to < n_; ++to) {
        if (random_() % 3 != 0) sent(from, to) = random_() % most;
      }
    }
    const bool symmetric = random_() % 2 == 0;  // so that all-to-all may be in place
    for (size_t from = 0; symmetric && from < n_; ++from) {
      for (size_t to = 0; to < from; ++to) sent(from, to) = sent(to, from);
    }
  }

  size_t n() const { return n_; }
  size_t root() const { return root_; }
  size_t& sent(size_t from, size_t to) { return sent_[from * n_ + to]; }

  // What the ranks believe may be changed between.
  void start() {
    for (size_t r = 0; r < n_; ++r) ranks_.push_back(std::make_unique<Rank>());
    for (size_t r = 0; r < n_; ++r) {
      due_.push_back({});
      for (size_t from = 0; from < n_; ++from) due_[r].push_back(sent(from, r));
    }
  }
  std::vector<size_t>& due(size_t rank) { return due_[rank]; }

  // False: no end within the bound. `mismatch`: the first that was found.
  bool run(run::Mismatch* mismatch, size_t* finder) {
    for (size_t r = 0; r < n_; ++r) bind(r);
    std::vector<bool> done(n_, false);
    for (int round = 0; round < 2000000; ++round) {
      const size_t r = random_() % n_;
      if (!done[r]) {
        const auto outcome = ranks_[r]->execution->poll();
        if (outcome == run::Execution::Outcome::kMismatch) {
          *mismatch = ranks_[r]->execution->mismatch();
          *finder = r;
          return true;
        }
        done[r] = outcome == run::Execution::Outcome::kDone;
      }
      EXPECT_TRUE(lanes_[r]->progress().ok());
      if (std::find(done.begin(), done.end(), false) == done.end()) return true;
    }
    return false;
  }

  void check() {
    for (size_t r = 0; r < n_; ++r) {
      const Rank& rank = *ranks_[r];
      std::vector<int32_t> want = rank.before;
      for (size_t from = 0; from < n_; ++from) {
        for (size_t i = 0; i < rank.in.counts[from]; ++i) {
          want[rank.in.displacements[from] + i] = element(from, r, i);
        }
      }
      ASSERT_EQ(rank.in_place ? rank.send : rank.recv, want)
          << coll::name_of(algorithm_.collective) << ":" << algorithm_.name << " rank " << r
          << " of " << n_ << " seed " << network_.seed;
    }
  }

 private:
  struct Rank {
    std::vector<int32_t> send, recv, before;
    std::vector<std::byte> temp;
    Blocks out, in;
    bool in_place = false;
    std::unique_ptr<run::Program> program;
    std::unique_ptr<run::Execution> execution;
  };

  bool takes_part(size_t from, size_t to) const {
    if (algorithm_.collective == Collective::kGather) return to == root_;
    return algorithm_.collective != Collective::kScatter || from == root_;
  }

  void bind(size_t r) {
    Rank& rank = *ranks_[r];
    std::vector<size_t> gives(n_, 0), gets(n_, 0);
    for (size_t p = 0; p < n_; ++p) {
      if (takes_part(r, p)) gives[p] = sent(r, p);
      if (takes_part(p, r)) gets[p] = due_[r][p];
    }
    rank.out = place(gives, random_);
    rank.in = place(gets, random_);
    Call call{algorithm_.collective};
    call.type = hetcclInt32;
    call.root = static_cast<int>(root_);
    call.own_counts = true;
    size_t send_at = 0, recv_at = 0;
    if (algorithm_.collective == Collective::kAllToAll) {
      rank.in_place = gives == gets && random_() % 2 == 0;
      if (rank.in_place) rank.in = rank.out;
      call.counts = rank.in.counts.data();
      call.displacements = rank.in.displacements.data();
      call.send_counts = rank.out.counts.data();
      call.send_displacements = rank.out.displacements.data();
    } else {
      const bool gather = algorithm_.collective == Collective::kGather;
      call.count = gather ? gives[root_] : gets[root_];
      if (r == root_) call.counts = gather ? rank.in.counts.data() : rank.out.counts.data();
      if (r == root_) {
        call.displacements = gather ? rank.in.displacements.data() : rank.out.displacements.data();
      }
      (gather ? send_at : recv_at) =
          gather ? rank.out.displacements[root_] : rank.in.displacements[root_];
    }
    const auto extents = check_arguments(call, static_cast<int>(n_), static_cast<int>(r));
    ASSERT_TRUE(extents.ok()) << extents.status().message();
    rank.send.assign(rank.out.end + 1, kUntouched);
    rank.recv.assign(rank.in.end + 1, kUntouched);
    for (size_t to = 0; to < n_; ++to) {
      for (size_t i = 0; i < rank.out.counts[to]; ++i) {
        rank.send[rank.out.displacements[to] + i] = element(r, to, i);
      }
    }
    rank.before = rank.in_place ? rank.send : rank.recv;
    auto* const output = rank.in_place ? rank.send.data() : rank.recv.data();
    call.send = rank.send.data() + send_at;
    call.recv = output + recv_at;
    const int ranks = static_cast<int>(n_), me = static_cast<int>(r);
    ASSERT_TRUE(check_buffers(call, ranks, me, *extents).ok());
    run::Shape shape;
    shape.reduction = {hetcclInt32, hetcclSum, ranks};
    shape.element_bytes = shape.accumulator_bytes = 4;
    shape.max_message = network_.chunk_bytes;
    shape.unbuffered = algorithm_.unbuffered;
    shape.own_counts = true;
    rank.program = std::make_unique<run::Program>(
        coll::make_plan(algorithm_, ranks, me, call.root, call.apart(ranks)),
        layout_of(call, algorithm_, ranks, me), shape);
    rank.temp.resize(rank.program->temp_bytes());
    rank.execution = std::make_unique<run::Execution>(lanes_[r].get(), *device::host_device("auto"),
                                                      ranks, network_.depth);
    rank.execution->start(*rank.program,
                          {static_cast<const std::byte*>(call.send),
                           static_cast<std::byte*>(call.recv), nullptr, rank.temp.data()},
                          0x1234567887654321);
  }

  Random random_;
  const coll::Algorithm& algorithm_;
  size_t n_, root_;
  net::SimOptions network_;
  std::vector<std::unique_ptr<net::Lane>> lanes_;
  std::vector<size_t> sent_;              // from, to
  std::vector<std::vector<size_t>> due_;  // of each rank, from each
  std::vector<std::unique_ptr<Rank>> ranks_;
};

std::vector<const coll::Algorithm*> rows() {
  std::vector<const coll::Algorithm*> found;
  for (const coll::Algorithm& a : coll::algorithms()) {
    if (a.own_counts) found.push_back(&a);
  }
  return found;
}

class VForms : public testing::TestWithParam<const coll::Algorithm*> {};

TEST_P(VForms, RightForTwoThousandSeeds) {
  for (uint64_t seed = 1; seed <= 2000 && !HasFatalFailure(); ++seed) {
    Job job(*GetParam(), seed);
    job.start();
    run::Mismatch mismatch;
    size_t finder = 0;
    ASSERT_TRUE(job.run(&mismatch, &finder)) << "no end, seed " << seed;
    ASSERT_EQ(mismatch.peer, -1) << "rank " << finder << ", seed " << seed;
    job.check();
  }
}

// Where one receiver expects another count than its sender's, it finds so at the first message and
// learns the sender's count, whatever the sizes.
TEST_P(VForms, CountsThatDifferAreFoundByTheReceiver) {
  int found = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    Job job(*GetParam(), seed);
    if (job.n() == 1) continue;
    Random random(seed * 7 + 1);
    const Collective collective = GetParam()->collective;
    size_t from = random() % job.n(), to = (from + 1 + random() % (job.n() - 1)) % job.n();
    if (collective == Collective::kScatter) std::swap(from, to);
    if (collective != Collective::kAllToAll) {
      (collective == Collective::kGather ? to : from) = job.root();
      if (from == to) continue;
    }
    job.start();
    const size_t sent = job.sent(from, to);
    job.due(to)[from] = random() % 2 == 0 || sent == 0 ? sent + 1 + random() % 300 : sent - 1;
    run::Mismatch mismatch;
    size_t finder = 0;
    ASSERT_TRUE(job.run(&mismatch, &finder)) << "no end, seed " << seed;
    EXPECT_EQ(finder, to) << seed;
    EXPECT_EQ(mismatch.peer, static_cast<int>(from)) << seed;
    EXPECT_EQ(mismatch.named_elements, sent) << seed;
    EXPECT_EQ(mismatch.expected_elements, job.due(to)[from]) << seed;
    ++found;
  }
  EXPECT_GT(found, 100);
}

// Counts that 32 bits do not hold, bound without memory: every chunk lies where it should.
TEST(VFormProgram, CountsBeyond32Bits) {
  const std::vector<size_t> gives = {3, size_t{9} << 30}, gets = {3, (size_t{1} << 33) + 5};
  const std::vector<size_t> give_at = {size_t{11} << 30, 1}, get_at = {0, size_t{1} << 35};
  Call call{Collective::kAllToAll};
  call.type = hetcclFloat64;
  call.own_counts = true;
  call.counts = gets.data();
  call.displacements = get_at.data();
  call.send_counts = gives.data();
  call.send_displacements = give_at.data();
  const auto extents = check_arguments(call, 2, 0);
  ASSERT_TRUE(extents.ok()) << extents.status().message();
  EXPECT_EQ(extents->send_bytes, (give_at[0] + 3) * 8);
  EXPECT_EQ(extents->recv_bytes, (get_at[1] + gets[1]) * 8);
  const coll::Algorithm& direct = *coll::find(Collective::kAllToAll, "direct");
  run::Shape shape;
  shape.element_bytes = shape.accumulator_bytes = 8;
  shape.max_message = 1 << 20;
  shape.own_counts = true;
  const run::Program program(coll::make_plan(direct, 2, 0, 0, call.apart(2)),
                             layout_of(call, direct, 2, 0), shape);
  std::vector<run::Program::Piece> pieces;
  int looked_at = 0;
  for (const auto& step : program.steps()) {
    const bool sends = step.step.kind == coll::StepKind::kSend;
    if (!sends && program.plan().operands[step.step.operands_begin].peer < 0) continue;
    const size_t count = sends ? gives[1] : gets[1], at = sends ? give_at[1] : get_at[1];
    EXPECT_EQ(step.tag, count);
    EXPECT_EQ(step.chunks, (count * 8 + (1 << 20) - 1) >> 20);
    size_t next = at;
    for (uint32_t c = 0; c < step.chunks; ++c) {
      for (const auto& piece : program.pieces(step, c, &pieces)) {
        ASSERT_EQ(piece.offset, next);
        next += piece.count;
      }
    }
    EXPECT_EQ(next, at + count);
    ++looked_at;
  }
  EXPECT_EQ(looked_at, 2);
}

INSTANTIATE_TEST_SUITE_P(Registry, VForms, testing::ValuesIn(rows()), [](const auto& info) {
  return std::string(coll::name_of(info.param->collective)) + "_" + info.param->name;
});

}  // namespace
}  // namespace hetccl

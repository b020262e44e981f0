// N ranks in one process over the simulated network: random algorithms, shapes, mixtures of in
// place and not, schedules and delays, all from a seed; and the loss of a rank at every operation.
#include "test/run/job.h"

namespace hetccl {
namespace {

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

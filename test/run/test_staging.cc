// Devices in the place of hosts: the same jobs as in test_execution.cc with every rank's own choice
// of memory, over a staging pool that is scarce, and with all ways in which devices reach each
// other. The processor cannot touch the simulated memory, so that nothing but the device's own
// copies and kernels can have made a right result.
#include <cstdlib>

#include "lib/device/sim/sim.h"
#include "test/run/job.h"

namespace hetccl {
namespace {

device::Accelerator* sim(device::Kind kind, int ordinal) {
  return *(*device::backend(kind))->device(ordinal);
}

run::StagingPool make_pool(size_t blocks) {
  return {blocks * run::StagingPool::kBlock,
          [](size_t bytes) -> Result<void*> { return std::aligned_alloc(4096, bytes); }};
}

// What two ranks' devices can do with each other: nothing, IPC one or both ways, direct.
void choose_paths(Job::Options* o, Random& random, int mode) {
  const auto n = static_cast<size_t>(o->ranks);
  o->paths.assign(n, std::vector<run::DevicePath>(n));
  for (size_t a = 0; a < n; ++a) {
    for (size_t b = 0; b < a; ++b) {
      if (mode == 0) continue;
      const bool vendor = o->devices[a] == nullptr || o->devices[b] == nullptr ||
                          o->devices[a]->kind() == o->devices[b]->kind();
      if (mode == 1 && vendor) {
        const bool out = random() % 4 != 0, in = random() % 4 != 0;
        o->paths[a][b].ipc_out = o->paths[b][a].ipc_in = out;
        o->paths[a][b].ipc_in = o->paths[b][a].ipc_out = in;
      } else if (mode == 2) {
        o->paths[a][b].direct = o->paths[b][a].direct =
            o->devices[a] != nullptr && o->devices[b] != nullptr;
      }
    }
  }
}

void run_seeds(int mode, uint64_t seeds, size_t blocks, bool large) {
  run::StagingPool pool = make_pool(blocks);
  const std::vector<device::Accelerator*> all = {nullptr, sim(hetcclMemorySimCuda, 0),
                                                 sim(hetcclMemorySimCuda, 1),
                                                 sim(hetcclMemorySimHip, 0)};
  for (device::Accelerator* a : all) {
    if (a == nullptr) continue;
    ASSERT_TRUE(pool.open(a).ok());
  }
  for (uint64_t seed = 1; seed <= seeds && !testing::Test::HasFatalFailure(); ++seed) {
    Random random(seed * 77 + static_cast<uint64_t>(mode));
    Job::Options o = random_options(seed, random);
    if (large) {  // what is named or direct has a least size
      o.count = 3000 + random() % 20000;
      o.network.chunk_bytes = 32 << 10;
    }
    // With IPC all devices are of one vendor, as within a communicator.
    for (int r = 0; r < o.ranks; ++r) {
      o.devices.push_back(all[random() % (mode == 1 ? 3 : all.size())]);
    }
    o.reader = all[1];
    o.pool = &pool;
    choose_paths(&o, random, mode);
    Job job(o);
    ASSERT_TRUE(job.run(random, false))
        << "no end: " << coll::name_of(o.algorithm->collective) << ":" << o.algorithm->name
        << " ranks " << o.ranks << " count " << o.count << " seed " << seed;
    job.check();
  }
}

TEST(Staging, RightForEveryMixtureOfMemory) { run_seeds(0, 300, 64, false); }
TEST(Staging, RightWithLargeMessages) { run_seeds(0, 60, 64, true); }
// Blocks for a fraction of what is under way: they go round, and nobody waits for ever.
TEST(Staging, RightWithHardlyAnyBlocks) { run_seeds(0, 200, 2, false); }
TEST(Staging, RightWhereDevicesReadEachOther) { run_seeds(1, 100, 64, true); }
TEST(Staging, RightWhereTheNetworkReachesDevices) { run_seeds(2, 100, 64, true); }

}  // namespace
}  // namespace hetccl

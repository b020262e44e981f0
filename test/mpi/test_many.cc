// Many communicators: live at once, one after the other, in a thread each; those that shrink leaves
// where nobody has died; and registrations.
#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>

#include "test/mpi/mpi_test.h"

namespace hetccl::test {
namespace {

using Many = World;

// HETCCL_TEST_MANY multiplies what the tests make.
int times(int count) {
  const char* factor = std::getenv("HETCCL_TEST_MANY");
  return factor == nullptr ? count : count * std::max(1, std::atoi(factor));
}

int entries(const char* folder) {
  int count = 0;
  if (DIR* d = opendir(folder)) {
    while (readdir(d) != nullptr) ++count;
    closedir(d);
  }
  return count;
}

size_t resident_bytes() {
  long pages = 0, unused = 0;
  if (FILE* f = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(f, "%ld %ld", &unused, &pages) != 2) pages = 0;
    std::fclose(f);
  }
  return static_cast<size_t>(pages) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

int sum(hetcclComm_t c, int mine) {
  int out = -1;
  EXPECT_EQ(hetcclAllReduce(&mine, &out, 1, hetcclInt32, hetcclSum, c, nullptr), hetcclSuccess)
      << hetcclGetLastError(c);
  return out;
}

TEST_F(Many, LiveAtOnceDestroyedInAnyOrder) {
  std::vector<hetcclComm_t> made(200);
  for (auto& c : made) {
    ASSERT_EQ(hetcclCommDup(comm, &c), hetcclSuccess) << hetcclGetLastError(nullptr);
  }
  for (size_t k = 0; k < made.size(); ++k) {
    ASSERT_EQ(sum(made[k], static_cast<int>(k)), static_cast<int>(k) * ranks);
  }
  // Each rank in an order of its own. Between nodes in one that all share: there a rank confirms
  // what it has taken when it next uses or destroys the communicator, and each wait for that may be
  // long.
  const bool nodes = std::getenv("HETCCL_NODE") != nullptr;
  std::shuffle(made.begin(), made.end(), std::mt19937(nodes ? 0u : static_cast<unsigned>(rank)));
  for (hetcclComm_t c : made) EXPECT_EQ(hetcclCommDestroy(c), hetcclSuccess);
  EXPECT_EQ(sum(comm, 1), ranks);
}

TEST_F(Many, OneAfterTheOtherLeaveNothingBehind) {
  const int count = times(300), warm = count / 3;
  int descriptors = 0, segments = 0;
  size_t memory = 0;
  for (int k = 0; k < count; ++k) {
    if (k == warm) {
      MPI_Barrier(MPI_COMM_WORLD);
      descriptors = entries("/proc/self/fd");
      segments = entries("/dev/shm");
      memory = resident_bytes();
      MPI_Barrier(MPI_COMM_WORLD);
    }
    hetcclComm_t c = nullptr;
    ASSERT_EQ(hetcclCommDup(comm, &c), hetcclSuccess) << k << ": " << hetcclGetLastError(nullptr);
    ASSERT_EQ(sum(c, k), k * ranks);
    ASSERT_EQ(hetcclCommDestroy(c), hetcclSuccess);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  const int descriptors_after = entries("/proc/self/fd"), segments_after = entries("/dev/shm");
  const size_t memory_after = resident_bytes();
  MPI_Barrier(MPI_COMM_WORLD);
  EXPECT_LE(descriptors_after, descriptors + 2);
  EXPECT_LE(segments_after, segments + 2);  // another program may have made some
  EXPECT_LE(memory_after, memory + (size_t{8} << 20));
  if (rank == 0) {
    std::printf(
        "%d communicators: descriptors %d to %d, segments %d to %d, memory %zu to %zu KiB\n",
        count - warm, descriptors, descriptors_after, segments, segments_after, memory >> 10,
        memory_after >> 10);
  }
}

TEST_F(Many, AThreadEach) {
  constexpr size_t kCount = 1024;  // 4 KiB
  const int calls = times(25);
  std::vector<hetcclComm_t> made(32);
  for (auto& c : made) ASSERT_EQ(hetcclCommDup(comm, &c), hetcclSuccess);
  std::vector<std::thread> threads;
  std::vector<size_t> wrong(made.size(), 0);
  for (size_t t = 0; t < made.size(); ++t) {
    threads.emplace_back([&, t] {
      std::vector<int> in(kCount), out(kCount);
      for (int k = 0; k < calls; ++k) {
        const int mine = rank + k + static_cast<int>(t);
        std::fill(in.begin(), in.end(), mine);
        wrong[t] += hetcclAllReduce(in.data(), out.data(), kCount, hetcclInt32, hetcclSum, made[t],
                                    nullptr) != hetcclSuccess;
        const int want = ranks * (ranks - 1) / 2 + ranks * (k + static_cast<int>(t));
        wrong[t] += kCount - static_cast<size_t>(std::count(out.begin(), out.end(), want));
      }
    });
  }
  for (auto& t : threads) t.join();
  EXPECT_EQ(wrong, std::vector<size_t>(made.size(), 0));
  for (auto& c : made) EXPECT_EQ(hetcclCommDestroy(c), hetcclSuccess);
}

// ---- shrink, with all alive

TEST_F(Many, ShrinkLeavesOutWhomItIsTold) {
  hetcclComm_t less = nullptr;
  const int odd[] = {1, 3, 5, 7};
  const int nodd = ranks / 2;
  for (int round = 0; round < 3; ++round) {
    if (rank % 2 == 0) {
      ASSERT_EQ(hetcclCommShrink(comm, odd, nodd, &less, nullptr), hetcclSuccess)
          << hetcclGetLastError(nullptr);
      int n = 0, r = -1;
      EXPECT_EQ(hetcclCommCount(less, &n), hetcclSuccess);
      EXPECT_EQ(hetcclCommUserRank(less, &r), hetcclSuccess);
      EXPECT_EQ(n, ranks - nodd);
      EXPECT_EQ(r, rank / 2);
      int want = 0;
      for (int k = 0; k < ranks; k += 2) want += k;
      EXPECT_EQ(sum(less, rank), want);
      EXPECT_EQ(hetcclCommDestroy(less), hetcclSuccess);
    }
    EXPECT_EQ(sum(comm, 1), ranks);  // the old one is as it was
  }
}

TEST_F(Many, ShrinkRefusesWhatIsNoList) {
  hetcclComm_t less = nullptr;
  const int far = ranks, self = rank;
  EXPECT_EQ(hetcclCommShrink(comm, &far, 1, &less, nullptr), hetcclInvalidArgument);
  EXPECT_EQ(hetcclCommShrink(comm, &self, 1, &less, nullptr), hetcclInvalidArgument);
  EXPECT_EQ(hetcclCommShrink(comm, nullptr, 1, &less, nullptr), hetcclInvalidArgument);
  EXPECT_EQ(hetcclCommShrink(comm, nullptr, -1, &less, nullptr), hetcclInvalidArgument);
  EXPECT_EQ(hetcclCommShrink(comm, nullptr, 0, nullptr, nullptr), hetcclInvalidArgument);
  EXPECT_EQ(hetcclCommShrink(nullptr, nullptr, 0, &less, nullptr), hetcclInvalidArgument);
  EXPECT_EQ(less, nullptr);
  EXPECT_EQ(sum(comm, 2), 2 * ranks);
}

// ---- registrations

TEST_F(Many, RegistrationsAreCheckedAndCounted) {
  Guarded memory(1 << 20, Guarded::Edge::kBack);
  void *first = nullptr, *second = nullptr, *none = nullptr;
  EXPECT_EQ(hetcclCommRegister(comm, memory.data(), 1 << 20, &first), hetcclSuccess);
  EXPECT_EQ(hetcclCommRegister(comm, memory.data(), 100, &second), hetcclSuccess);
  EXPECT_NE(first, second);
  EXPECT_EQ(hetcclCommRegister(comm, nullptr, 100, &none), hetcclInvalidArgument);
  EXPECT_EQ(hetcclCommRegister(comm, memory.data(), 0, &none), hetcclInvalidArgument);
  EXPECT_EQ(hetcclCommRegister(comm, memory.data(), SIZE_MAX, &none), hetcclInvalidArgument);
  EXPECT_EQ(hetcclCommRegister(comm, memory.data(), size_t{1} << 46, &none), hetcclInvalidArgument);
  EXPECT_EQ(hetcclCommRegister(comm, memory.data(), 100, nullptr), hetcclInvalidArgument);
  EXPECT_EQ(none, nullptr);
  hetcclComm_t other = nullptr;
  ASSERT_EQ(hetcclCommDup(comm, &other), hetcclSuccess);
  EXPECT_EQ(hetcclCommDeregister(other, first), hetcclInvalidArgument);
  EXPECT_EQ(hetcclCommDestroy(other), hetcclSuccess);
  EXPECT_EQ(hetcclCommDeregister(comm, first), hetcclSuccess);
  EXPECT_EQ(hetcclCommDeregister(comm, first), hetcclInvalidArgument);
  EXPECT_EQ(hetcclCommDeregister(comm, nullptr), hetcclInvalidArgument);
  EXPECT_EQ(sum(comm, 1), ranks);  // `second` ends with the communicator
}

}  // namespace
}  // namespace hetccl::test

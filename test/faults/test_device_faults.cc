// A device that is lost at any of its copies or kernels: every rank gets a named error in bounded
// time, or all of them a right result. Nothing hangs, nothing crashes.
#include <gtest/gtest.h>

#include "lib/introspect.h"
#include "test/faults/processes.h"

namespace hetccl::test {
namespace {

constexpr int kRanks = 3;
constexpr int kVictim = 1;
constexpr size_t kCount = 200000;

// Two large calls and a small one on simulated devices.
void call_until_error(const std::string& faults, int rank, Board& board) {
  setenv("HETCCL_TIMEOUT", "30", 1);
  setenv("HETCCL_CHUNK_SIZE", "64K", 1);
  setenv("HETCCL_SIM", (rank == kVictim ? faults : std::string("ipc=on")).c_str(), 1);
  hetcclConfig_t config = HETCCL_CONFIG_INITIALIZER;
  config.device_kind = rank == 2 ? hetcclMemorySimHip : hetcclMemorySimCuda;
  hetcclComm_t comm = nullptr;
  if (rank == 0) {
    if (hetcclGetUniqueId(&board.id) != hetcclSuccess) _exit(10);
    board.id_known = 1;
  }
  while (board.id_known == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  hetcclResult_t r = hetcclCommInitRankConfig(&comm, kRanks, board.id, rank, &config);
  std::string why = hetcclGetLastError(nullptr);
  void* memory = nullptr;
  if (r == hetcclSuccess) {
    r = hetcclMemAlloc(&memory, kCount * 4, static_cast<hetcclMemoryKind_t>(config.device_kind));
    why = hetcclGetLastError(nullptr);
  }
  for (size_t count : {kCount, size_t{100}, kCount}) {
    if (r != hetcclSuccess) break;
    r = hetcclAllReduce(memory, memory, count, hetcclFloat32, hetcclSum, comm, nullptr);
    why = hetcclGetLastError(comm);
  }
  board.say(rank, r, why.c_str());
  // The others wait for the call that this rank cannot make.
  if (comm != nullptr && memory == nullptr) {
    hetcclCommAbort(comm);
  } else if (comm != nullptr) {
    hetcclCommDestroy(comm);
  }
}

// A device that cannot do its first copy is none, and its rank's data pass by none of it: that
// this rank notices is enough. From the first call on everybody must.
void lose_device_at(const char* operation, int last) {
  int errors = 0;
  for (int k = 1; k <= last; k += k < 20 ? 1 : 7) {
    const std::string faults = std::string(operation) + "=" + std::to_string(k);
    SCOPED_TRACE(faults);
    Ranks processes(kRanks, [&](int rank, Board& board) { call_until_error(faults, rank, board); });
    for (int r = 0; r < kRanks; ++r) {
      EXPECT_EQ(processes.status(r), 0) << "rank " << r << " crashed or hung";
      const int result = processes.board().result[r];
      EXPECT_NE(result, -1) << "rank " << r << " said nothing";
      EXPECT_NE(result, hetcclTimeout) << processes.board().text[r];
      EXPECT_NE(result, hetcclInternalError) << processes.board().text[r];
      if (result != hetcclSuccess) {
        ++errors;
        EXPECT_NE(std::string(processes.board().text[r]), "") << "rank " << r;
      }
    }
    const int mine = processes.board().result[kVictim];
    for (int r = 0; r < kRanks; ++r) {
      if (mine == hetcclSuccess) {
        EXPECT_EQ(processes.board().result[r], hetcclSuccess) << processes.board().text[r];
      }
    }
  }
  EXPECT_GT(errors, kRanks) << "no fault was met";
}

TEST(DeviceFaults, ADeviceIsLostInACopy) { lose_device_at("fail_copy", 80); }
TEST(DeviceFaults, ADeviceIsLostInAKernel) { lose_device_at("fail_combine", 30); }

}  // namespace
}  // namespace hetccl::test

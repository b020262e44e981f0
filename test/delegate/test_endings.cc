// Delegated calls that go wrong: every rank gets the named error in bounded time, and nothing of
// the vendor's library is left behind.
#include "test/delegate/ranks.h"

namespace hetccl::test {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point t) {
  return std::chrono::duration<double>(Clock::now() - t).count();
}

hetcclResult_t sum(hetcclComm_t comm, const Buffer<int32_t>& x, size_t count,
                   hetcclStream_t stream = nullptr) {
  return hetcclAllReduce(x.data(), x.data(), count, hetcclInt32, hetcclSum, comm, stream);
}

void wait_for_all(Board& board, int n) {
  ++board.ready;
  while (board.ready < n) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

// What the library refuses on one rank is an error on all; an invalid argument there is a fault of
// ours, and not the program's.
TEST(DelegatedEndings, TheLibraryRefuses) {
  run_ranks(3, [](int rank, Board& board, Findings& found) {
    hetcclComm_t comm = create(rank, 3, board);
    Buffer<int32_t> x(hetcclMemorySimCuda, {rank, 0});
    found.ok(sum(comm, x, 1));
    if (rank == 1) STUB(stub_fail)("ncclAllReduce", 4);
    const hetcclResult_t r = sum(comm, x, 2);
    found.check(r == hetcclInternalError, hetcclGetErrorString(r));
    const std::string text = hetcclGetLastError(comm);
    found.equal(text,
                std::string(rank == 1 ? "" : "rank 1: ") +
                    "nccl 2.28.9: starting a call: invalid argument (as told by the test)",
                "error");
    found.check(sum(comm, x, 2) == r, "the communicator goes on");
    found.equal(hetcclGetLastError(comm), text, "second error");
    found.ok(hetcclCommDestroy(comm));
    found.contains(STUB(stub_calls)(), "ncclCommAbort");
  });
}

TEST(DelegatedEndings, TheLibraryFailsLater) {
  run_ranks(3, [](int rank, Board& board, Findings& found) {
    hetcclComm_t comm = create(rank, 3, board);
    Buffer<int32_t> x(hetcclMemorySimCuda, {rank});
    if (rank == 2) STUB(stub_fail_later)(1);
    const hetcclResult_t r = sum(comm, x, 1);
    // The others' part was done, perhaps; then they hear of it in their next call.
    const hetcclResult_t next = sum(comm, x, 1);
    found.check(rank == 2 ? r == hetcclUnhandledDeviceError
                          : r == hetcclSuccess || r == hetcclUnhandledDeviceError,
                hetcclGetErrorString(r));
    found.check(next == hetcclUnhandledDeviceError, hetcclGetErrorString(next));
    found.contains(hetcclGetLastError(comm), "nccl 2.28.9: ncclCommGetAsyncError: ");
    if (rank != 2) found.contains(hetcclGetLastError(comm), "rank 2: ");
    found.ok(hetcclCommDestroy(comm));
  });
}

// Ranks that disagree never get as far as the library, which would hang or give wrong data.
TEST(DelegatedEndings, RanksDisagree) {
  run_ranks(3, [](int rank, Board& board, Findings& found) {
    hetcclComm_t comm = create(rank, 3, board);
    Buffer<int32_t> x(hetcclMemorySimCuda, std::vector<int32_t>(20, 1));
    const std::string before = STUB(stub_calls)();
    const hetcclResult_t r = sum(comm, x, rank == 1 ? 11 : 10);
    found.check(r == hetcclInvalidUsage, hetcclGetErrorString(r));
    found.contains(hetcclGetLastError(comm), "count=10 type=int32 op=sum");
    found.contains(hetcclGetLastError(comm), "count=11 type=int32 op=sum");
    const std::string after = STUB(stub_calls)();
    found.check(after.substr(before.size()).find("ncclAllReduce") == std::string::npos, after);
    found.ok(hetcclCommDestroy(comm));
  });
}

// As above, but one rank's call stays with hetccl.
TEST(DelegatedEndings, RanksDisagreeWhoRunsTheCall) {
  run_ranks(3, [](int rank, Board& board, Findings& found) {
    hetcclComm_t comm = create(rank, 3, board);
    Buffer<int32_t> x(hetcclMemorySimCuda, std::vector<int32_t>(20, 1));
    const hetcclResult_t r = hetcclAllReduce(
        x.data(), x.data(), 20, rank == 1 ? hetcclFloat32 : hetcclInt32, hetcclSum, comm, nullptr);
    found.check(r == hetcclInvalidUsage, hetcclGetErrorString(r));
    found.contains(hetcclGetLastError(comm), "type=float32");
    found.contains(hetcclGetLastError(comm), "type=int32");
    found.ok(hetcclCommDestroy(comm));
  });
}

// A rank dies within the vendor's library, where the others would wait for it for ever.
TEST(DelegatedEndings, ARankDies) {
  constexpr int kVictim = 1;
  Folder folder;
  Ranks ranks(3, [](int rank, Board& board) {
    Findings found;
    hetcclComm_t comm = create(rank, 3, board);
    Buffer<int32_t> x(hetcclMemorySimCuda, {rank});
    found.ok(sum(comm, x, 1));
    STUB(stub_hang)();
    wait_for_all(board, 3);
    const hetcclResult_t r = sum(comm, x, 1);
    found.check(r == hetcclRemoteError, hetcclGetErrorString(r));
    found.contains(hetcclGetLastError(comm), "rank 1");
    const auto begin = Clock::now();
    found.ok(hetcclCommDestroy(comm));
    found.check(since(begin) < 10, "Destroy takes too long");
    found.contains(STUB(stub_calls)(), "ncclCommAbort");
    board.say(rank, r, found.first().c_str());
  });
  Board& board = ranks.board();
  ASSERT_TRUE(ranks.wait_until([&] { return board.ready == 3; }, 60));
  std::this_thread::sleep_for(std::chrono::milliseconds(500));  // most are in the library by then
  ranks.signal(kVictim, SIGKILL);
  EXPECT_TRUE(ranks.wait_until([&] { return board.result[0] != -1 && board.result[2] != -1; }, 15));
  for (int r : {0, 2}) {
    EXPECT_EQ(ranks.status(r), 0) << "rank " << r;
    EXPECT_STREQ(board.text[r], "") << "rank " << r;
  }
}

// A broken connection is what the library sees of a death; the rank that died is what is reported.
TEST(DelegatedEndings, ADeathIsReportedAsOne) {
  run_ranks(
      3,
      [](int rank, Board& board, Findings& found) {
        hetcclComm_t comm = create(rank, 3, board);
        Buffer<int32_t> x(hetcclMemorySimCuda, {rank});
        found.ok(sum(comm, x, 1));
        wait_for_all(board, 3);
        if (rank == 1) STUB(stub_hang)();
        if (rank != 1) STUB(stub_fail_later)(6);
        const auto calls = STUB(stub_calls);
        const std::string before = calls();
        std::thread die([&] {  // as soon as the library has the call
          if (rank != 1) return;
          while (calls() == before) std::this_thread::yield();
          _exit(0);
        });
        const hetcclResult_t r = sum(comm, x, 1);
        die.join();
        found.check(r == hetcclRemoteError, hetcclGetErrorString(r));
        found.contains(hetcclGetLastError(comm), "rank 1");
        found.check(std::string(hetcclGetLastError(comm)).find("nccl") == std::string::npos,
                    hetcclGetLastError(comm));
        found.ok(hetcclCommDestroy(comm));
      },
      1);
}

TEST(DelegatedEndings, TheTimeOutEndsTheWait) {
  run_ranks(2, [](int rank, Board& board, Findings& found) {
    setenv("HETCCL_TIMEOUT", "5", 1);
    hetcclComm_t comm = create(rank, 2, board);
    Buffer<int32_t> x(hetcclMemorySimCuda, {rank});
    STUB(stub_hang)();
    const hetcclResult_t r = sum(comm, x, 1);
    found.check(r == hetcclTimeout, hetcclGetErrorString(r));
    found.contains(hetcclGetLastError(comm), "HETCCL_TIMEOUT");
    found.ok(hetcclCommDestroy(comm));
  });
}

// A library that does not even abort holds nobody up.
TEST(DelegatedEndings, TheLibraryIsStuck) {
  run_ranks(2, [](int rank, Board& board, Findings& found) {
    setenv("HETCCL_TIMEOUT", "3", 1);
    setenv("HETCCL_DEBUG", "none", 1);
    hetcclComm_t comm = create(rank, 2, board);
    Buffer<int32_t> x(hetcclMemoryHost, {rank});
    STUB(stub_get_stuck)();
    const auto begin = Clock::now();
    const hetcclResult_t r = sum(comm, x, 1);
    found.check(r == hetcclTimeout, hetcclGetErrorString(r));
    found.ok(hetcclCommDestroy(comm));
    found.check(since(begin) < 30, "it takes too long");
  });
}

// Of a call in a native stream, too: the stream goes on.
TEST(DelegatedEndings, AbortEndsTheWait) {
  run_ranks(2, [](int rank, Board& board, Findings& found) {
    hetcclComm_t comm = create(rank, 2, board);
    Buffer<int32_t> x(hetcclMemorySimCuda, {rank});
    hetcclStream_t stream = nullptr;
    found.ok(hetcclInternalStreamCreate(hetcclMemorySimCuda, own_device, &stream));
    STUB(stub_hang)();
    found.ok(sum(comm, x, 1, stream));
    wait_for_all(board, 2);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    const auto begin = Clock::now();
    if (rank == 0) {
      found.ok(hetcclCommAbort(comm));
      found.check(since(begin) < 5, "Abort takes too long");
    }
    found.ok(hetcclInternalStreamSynchronize(hetcclMemorySimCuda, own_device, stream));
    if (rank == 1) {
      hetcclResult_t error = hetcclSuccess;
      found.ok(hetcclCommGetAsyncError(comm, &error));
      found.check(error == hetcclRemoteError, hetcclGetErrorString(error));
      found.ok(hetcclCommDestroy(comm));
    }
    found.ok(hetcclInternalStreamDestroy(hetcclMemorySimCuda, own_device, stream));
  });
}

// A sound communicator leaves the library in its own order.
TEST(DelegatedEndings, Destroy) {
  run_ranks(2, [](int rank, Board& board, Findings& found) {
    hetcclComm_t comm = create(rank, 2, board);
    const std::string before = STUB(stub_calls)();
    found.ok(hetcclCommDestroy(comm));
    found.equal(std::string(STUB(stub_calls)()).substr(before.size()),
                "ncclCommFinalize\nncclCommDestroy\n", "the last calls");
  });
}

}  // namespace
}  // namespace hetccl::test

// A rank that dies, stops, leaves or aborts: every other rank gets the named error in bounded time.
#include <gtest/gtest.h>

#include "test/faults/processes.h"

namespace hetccl::test {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point t) {
  return std::chrono::duration<double>(Clock::now() - t).count();
}

enum class Where { kOneNode, kTwoNodes };
enum class Deed { kKill, kExit, kStop, kAbort };

struct Fault {
  int ranks;
  int victim;
  size_t count;
  Where where;
  Deed deed;
  const char* name;
};

class Faults : public ::testing::TestWithParam<Fault> {};

// Loops until an error comes. The victim does its deed, or has it done by the parent.
void loop_until_error(const Fault& fault, int rank, Board& board) {
  if (fault.where == Where::kTwoNodes) setenv("HETCCL_NODE", rank % 2 == 0 ? "even" : "odd", 1);
  setenv("HETCCL_TIMEOUT", fault.deed == Deed::kStop ? "3" : "60", 1);
  hetcclComm_t comm = meet(rank, fault.ranks, board);
  std::vector<float> x(fault.count, 1.f), y(fault.count);
  hetcclResult_t r = hetcclSuccess;
  for (int k = 0; r == hetcclSuccess; ++k) {
    if (k == 20) {
      ++board.ready;
      if (rank == fault.victim) {  // the others are in the loop by then
        while (board.ready < fault.ranks) std::this_thread::yield();
      }
      if (rank == fault.victim && fault.deed == Deed::kExit) {
        board.event = 1;
        _exit(0);
      }
      if (rank == fault.victim && fault.deed == Deed::kAbort) {
        board.event = 1;
        const auto begin = Clock::now();
        r = hetcclCommAbort(comm);
        board.seconds_us[rank] = static_cast<int64_t>(since(begin) * 1e6);
        board.say(rank, r, "aborted");
        std::this_thread::sleep_for(std::chrono::seconds(1));
        return;
      }
    }
    r = hetcclAllReduce(x.data(), y.data(), x.size(), hetcclFloat32, hetcclSum, comm, nullptr);
  }
  board.say(rank, r, hetcclGetLastError(nullptr));
  const auto begin = Clock::now();
  const hetcclResult_t destroyed = hetcclCommDestroy(comm);
  if (destroyed != hetcclSuccess || since(begin) > 20) _exit(12);
}

TEST_P(Faults, EveryOtherRankGetsTheError) {
  const Fault fault = GetParam();
  Ranks ranks(fault.ranks, [&](int rank, Board& b) { loop_until_error(fault, rank, b); });
  Board& board = ranks.board();
  ASSERT_TRUE(ranks.wait_until([&] { return board.ready == fault.ranks; }, 60));
  if (fault.deed == Deed::kKill) ranks.signal(fault.victim, SIGKILL);
  if (fault.deed == Deed::kStop) ranks.signal(fault.victim, SIGSTOP);
  const auto begin = Clock::now();
  auto all_know = [&] {
    for (int r = 0; r < fault.ranks; ++r) {
      if (r != fault.victim && board.result[r] == -1) return false;
    }
    return true;
  };
  const bool stopped = fault.deed == Deed::kStop;
  EXPECT_TRUE(ranks.wait_until(all_know, stopped ? 20 : 5)) << "waited " << since(begin) << " s";
  for (int r = 0; r < fault.ranks; ++r) {
    if (r == fault.victim) continue;
    EXPECT_EQ(board.result[r], stopped ? hetcclTimeout : hetcclRemoteError)
        << "rank " << r << ": " << board.text[r];
    if (!stopped) {
      EXPECT_NE(std::string(board.text[r]).find("rank " + std::to_string(fault.victim)),
                std::string::npos)
          << board.text[r];
    }
  }
  if (fault.deed == Deed::kAbort) {
    EXPECT_TRUE(ranks.wait_until([&] { return board.result[fault.victim] != -1; }, 6));
    EXPECT_EQ(board.result[fault.victim], hetcclSuccess);
    EXPECT_LT(board.seconds_us[fault.victim], 5000000);
  }
  if (stopped) ranks.signal(fault.victim, SIGKILL);
  for (int r = 0; r < fault.ranks; ++r) {
    if (r == fault.victim) continue;
    EXPECT_EQ(ranks.status(r), 0) << "rank " << r;
  }
}

constexpr size_t kSmall = 2, kLarge = 262144;

INSTANTIATE_TEST_SUITE_P(
    Deeds, Faults,
    ::testing::Values(Fault{2, 1, kSmall, Where::kOneNode, Deed::kKill, "KillSmall"},
                      Fault{4, 2, kLarge, Where::kOneNode, Deed::kKill, "KillLarge"},
                      Fault{4, 0, kLarge, Where::kOneNode, Deed::kKill, "KillRoot"},
                      Fault{8, 1, kSmall, Where::kOneNode, Deed::kKill, "KillInnerOfEight"},
                      Fault{2, 1, kSmall, Where::kTwoNodes, Deed::kKill, "KillSmallAcrossNodes"},
                      Fault{4, 3, kLarge, Where::kTwoNodes, Deed::kKill, "KillLargeAcrossNodes"},
                      Fault{4, 0, kLarge, Where::kTwoNodes, Deed::kKill, "KillRootAcrossNodes"},
                      Fault{3, 1, kSmall, Where::kOneNode, Deed::kExit, "Exit"},
                      Fault{3, 1, kLarge, Where::kTwoNodes, Deed::kExit, "ExitAcrossNodes"},
                      Fault{3, 2, kLarge, Where::kOneNode, Deed::kAbort, "Abort"},
                      Fault{4, 1, kLarge, Where::kTwoNodes, Deed::kAbort, "AbortAcrossNodes"},
                      Fault{3, 1, kLarge, Where::kOneNode, Deed::kStop, "Stop"},
                      Fault{3, 1, kSmall, Where::kTwoNodes, Deed::kStop, "StopAcrossNodes"}),
    [](const auto& info) { return std::string(info.param.name); });

// The kind of B48: who waits for a message of one that is gone is told, in a group or not, in a
// stream or not.
TEST(Messages, OfAProcessThatDiedAreNotWaitedFor) {
  for (const Where where : {Where::kOneNode, Where::kTwoNodes}) {
    Ranks ranks(3, [&](int rank, Board& b) {
      if (where == Where::kTwoNodes) setenv("HETCCL_NODE", rank % 2 == 0 ? "even" : "odd", 1);
      hetcclComm_t comm = meet(rank, 3, b);
      hetcclStream_t stream;
      if (hetcclStreamCreate(&stream) != hetcclSuccess) _exit(14);
      ++b.ready;
      if (rank == 1) {
        for (;;) pause();
      }
      std::vector<float> x(100000), y(100000);
      hetcclResult_t r;
      if (rank == 0) {
        r = hetcclRecv(x.data(), x.size(), hetcclFloat32, 1, comm, nullptr);
      } else {
        hetcclGroupStart();
        hetcclRecv(x.data(), x.size(), hetcclFloat32, 1, comm, stream);
        hetcclRecv(y.data(), y.size(), hetcclFloat32, 1, comm, nullptr);
        r = hetcclGroupEnd();
        if (hetcclStreamSynchronize(stream) != hetcclRemoteError) _exit(15);
      }
      b.say(rank, r, hetcclGetLastError(nullptr));
      if (hetcclCommDestroy(comm) != hetcclSuccess) _exit(12);
    });
    Board& board = ranks.board();
    ASSERT_TRUE(ranks.wait_until([&] { return board.ready == 3; }, 60));
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    ranks.signal(1, SIGKILL);
    EXPECT_TRUE(
        ranks.wait_until([&] { return board.result[0] != -1 && board.result[2] != -1; }, 5));
    for (int r : {0, 2}) {
      EXPECT_EQ(board.result[r], hetcclRemoteError) << board.text[r];
      EXPECT_EQ(ranks.status(r), 0) << "rank " << r;
    }
  }
}

// The kind of B51: exit without clean-up changes nothing.
TEST(Exit, WithoutDestroyIsHarmless) {
  for (int n : {1, 2, 4}) {
    Ranks ranks(n, [&](int rank, Board& b) {
      hetcclComm_t comm = meet(rank, n, b);
      float x = 1;
      if (hetcclAllReduce(&x, &x, 1, hetcclFloat32, hetcclSum, comm, nullptr) != hetcclSuccess) {
        _exit(13);
      }
      std::exit(7);  // runs static destructors
    });
    for (int r = 0; r < n; ++r) {
      const int status = ranks.status(r);
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7) << "rank " << r << " " << status;
    }
  }
}

// The kind of B50: the last calls are complete although their maker destroys at once.
TEST(Destroy, WaitsForALateRank) {
  Ranks ranks(2, [&](int rank, Board& b) {
    hetcclComm_t comm = meet(rank, 2, b);
    std::vector<float> x(200000, static_cast<float>(rank + 1)), y(200000);
    hetcclStream_t stream;
    if (hetcclStreamCreate(&stream) != hetcclSuccess) _exit(14);
    if (rank == 1) std::this_thread::sleep_for(std::chrono::seconds(2));
    hetcclResult_t r = hetcclSuccess;
    for (int k = 0; k < 20 && r == hetcclSuccess; ++k) {
      r = hetcclAllReduce(x.data(), y.data(), x.size(), hetcclFloat32, hetcclSum, comm, stream);
    }
    const hetcclResult_t destroyed = hetcclCommDestroy(comm);
    const hetcclResult_t synced = hetcclStreamDestroy(stream);
    b.say(rank,
          r != hetcclSuccess           ? r
          : destroyed != hetcclSuccess ? destroyed
                                       : synced,
          hetcclGetLastError(nullptr));
    if (y[199999] != 3.f) _exit(15);
  });
  for (int r = 0; r < 2; ++r) {
    EXPECT_EQ(ranks.status(r), 0);
    EXPECT_EQ(ranks.board().result[r], hetcclSuccess) << ranks.board().text[r];
  }
}

// The kind of B75: the host program's signal handlers stay its own.
volatile sig_atomic_t caught = 0;
TEST(Signals, HandlersOfTheHostStay) {
  Ranks ranks(2, [&](int rank, Board& b) {
    struct sigaction action {
    }, before[3], after[3];
    action.sa_handler = [](int) { caught = caught + 1; };
    const int numbers[3] = {SIGSEGV, SIGUSR1, SIGBUS};
    for (int n : numbers) sigaction(n, &action, nullptr);
    for (int k = 0; k < 3; ++k) sigaction(numbers[k], nullptr, &before[k]);
    hetcclComm_t comm = meet(rank, 2, b);
    for (int k = 0; k < 3; ++k) {
      sigaction(numbers[k], nullptr, &after[k]);
      if (before[k].sa_handler != after[k].sa_handler) _exit(16);
    }
    raise(SIGSEGV);
    if (caught != 1) _exit(17);
    float x = 1;
    if (hetcclAllReduce(&x, &x, 1, hetcclFloat32, hetcclSum, comm, nullptr)) _exit(18);
    if (hetcclCommDestroy(comm)) _exit(19);
  });
  for (int r = 0; r < 2; ++r) EXPECT_EQ(ranks.status(r), 0);
}

// A host without handlers of its own gets none of UCX's.
TEST(Signals, NoneAreInstalled) {
  Ranks ranks(2, [&](int rank, Board& b) {
    hetcclComm_t comm = meet(rank, 2, b);
    for (int n : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGHUP}) {
      struct sigaction now;
      sigaction(n, nullptr, &now);
      // Ignored is what a job in the background inherits.
      if (now.sa_handler != SIG_DFL && now.sa_handler != SIG_IGN) _exit(20 + n);
    }
    if (hetcclCommDestroy(comm)) _exit(19);
  });
  for (int r = 0; r < 2; ++r) EXPECT_EQ(ranks.status(r), 0);
}

// The kind of B71: memory unmapped and mapped again at one address is never served stale.
TEST(Memory, MappedAgainAtOneAddress) {
  for (const char* nodes : {"same", "apart"}) {
    Ranks ranks(2, [&](int rank, Board& b) {
      if (std::string(nodes) == "apart") setenv("HETCCL_NODE", rank == 0 ? "a" : "b", 1);
      hetcclComm_t comm = meet(rank, 2, b);
      constexpr size_t kBytes = 4 << 20, kCount = kBytes / 4;
      void* address = mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      std::vector<float> out(kCount);
      for (int round = 1; round <= 40; ++round) {
        void* p = mmap(address, kBytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        auto* x = static_cast<float*>(p);
        for (size_t i = 0; i < kCount; ++i) x[i] = static_cast<float>(round + rank);
        if (hetcclAllReduce(x, out.data(), kCount, hetcclFloat32, hetcclSum, comm, nullptr)) {
          _exit(21);
        }
        for (float f : out) {
          if (f != static_cast<float>(2 * round + 1)) _exit(22);
        }
        if (hetcclBroadcast(x, x, kCount, hetcclFloat32, round % 2, comm, nullptr)) _exit(23);
        if (x[kCount - 1] != static_cast<float>(round + round % 2)) _exit(24);
        munmap(p, kBytes);
      }
      if (hetcclCommDestroy(comm)) _exit(19);
    });
    for (int r = 0; r < 2; ++r) EXPECT_EQ(ranks.status(r), 0) << nodes;
  }
}

}  // namespace
}  // namespace hetccl::test

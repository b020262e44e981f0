// What is left after deaths goes on: the survivors agree on a new communicator, whoever died, and
// also if more die while they do.
#include <gtest/gtest.h>

#include "test/faults/processes.h"

namespace hetccl::test {
namespace {

struct Loss {
  int ranks;
  std::vector<int> victims;  // killed by the parent
  int second = -1;           // dies by itself while the others already shrink
  bool two_nodes = false;
  const char* name = "";
};

class Shrink : public ::testing::TestWithParam<Loss> {};

hetcclResult_t loop_until_error(hetcclComm_t comm, int rank, int n, Board& board) {
  std::vector<float> x(1000, 1.f), y(1000);
  hetcclResult_t r = hetcclSuccess;
  for (int k = 0; r == hetcclSuccess; ++k) {
    if (k == 5) ++board.ready;
    r = hetcclAllReduce(x.data(), y.data(), x.size(), hetcclFloat32, hetcclSum, comm, nullptr);
    if (r == hetcclSuccess && y[999] != static_cast<float>(n)) _exit(20 + rank);
  }
  return r;
}

// The sum over the members of `comm` of 2 to the power of their first ranks: names them.
hetcclResult_t who(hetcclComm_t comm, int rank, int64_t* set) {
  const int64_t mine = int64_t{1} << rank;
  return hetcclAllReduce(&mine, set, 1, hetcclInt64, hetcclSum, comm, nullptr);
}

void survive(const Loss& loss, int rank, Board& board) {
  if (loss.two_nodes) setenv("HETCCL_NODE", rank % 2 == 0 ? "even" : "odd", 1);
  setenv("HETCCL_TIMEOUT", "60", 1);
  hetcclComm_t comm = meet(rank, loss.ranks, board);
  const hetcclResult_t ended = loop_until_error(comm, rank, loss.ranks, board);
  if (ended != hetcclRemoteError) return board.say(rank, ended, "not the error of a death");
  if (rank == loss.second) {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    kill(getpid(), SIGKILL);
  }
  hetcclComm_t less = nullptr;
  int64_t set = 0;
  hetcclResult_t r = hetcclRemoteError;
  for (int attempt = 0; attempt < 5 && r != hetcclSuccess; ++attempt) {
    hetcclComm_t next = nullptr;
    r = hetcclCommShrink(less != nullptr ? less : comm, nullptr, 0, &next, nullptr);
    if (r != hetcclSuccess) continue;
    if (less != nullptr) hetcclCommDestroy(less);
    less = next;
    r = who(less, rank, &set);
  }
  int n = 0, place = -1;
  if (r == hetcclSuccess) r = hetcclCommCount(less, &n);
  if (r == hetcclSuccess) r = hetcclCommUserRank(less, &place);
  // It splits, and shrinks again, like any other; what it came from stays failed.
  hetcclComm_t half = nullptr, again = nullptr;
  if (r == hetcclSuccess) r = hetcclCommSplit(less, place % 2, 0, &half, nullptr);
  int64_t same = 0;
  if (r == hetcclSuccess) r = hetcclCommShrink(less, nullptr, 0, &again, nullptr);
  if (r == hetcclSuccess) r = who(again, rank, &same);
  if (r == hetcclSuccess && same != set) r = hetcclInternalError;
  float one = 1, sum = 0;
  if (hetcclAllReduce(&one, &sum, 1, hetcclFloat32, hetcclSum, comm, nullptr) != ended) _exit(13);
  const std::string why = hetcclGetLastError(nullptr);
  for (hetcclComm_t c : {comm, again, half, less}) {
    if (hetcclCommDestroy(c) != hetcclSuccess) _exit(14);
  }
  board.say(rank, r,
            (std::to_string(set) + " " + std::to_string(place) + "/" + std::to_string(n) +
             (r == hetcclSuccess ? "" : " " + why))
                .c_str());
}

TEST_P(Shrink, TheOthersGoOn) {
  const Loss loss = GetParam();
  Ranks ranks(loss.ranks, [&](int rank, Board& b) { survive(loss, rank, b); });
  Board& board = ranks.board();
  ASSERT_TRUE(ranks.wait_until([&] { return board.ready == loss.ranks; }, 60));
  std::vector<bool> lost(static_cast<size_t>(loss.ranks));
  for (int victim : loss.victims) {
    lost[static_cast<size_t>(victim)] = true;
    ranks.signal(victim, SIGKILL);
  }
  if (loss.second >= 0) lost[static_cast<size_t>(loss.second)] = true;
  int64_t set = 0;
  int left = 0;
  for (int r = 0; r < loss.ranks; ++r) {
    if (lost[static_cast<size_t>(r)]) continue;
    set += int64_t{1} << r;
    ++left;
  }
  const auto all_know = [&] {
    for (int r = 0; r < loss.ranks; ++r) {
      if (!lost[static_cast<size_t>(r)] && board.result[r] == -1) return false;
    }
    return true;
  };
  EXPECT_TRUE(ranks.wait_until(all_know, 60));
  for (int r = 0, place = 0; r < loss.ranks; ++r) {
    if (lost[static_cast<size_t>(r)]) continue;
    EXPECT_EQ(board.result[r], hetcclSuccess) << "rank " << r << ": " << board.text[r];
    EXPECT_EQ(std::string(board.text[r]),
              std::to_string(set) + " " + std::to_string(place) + "/" + std::to_string(left));
    EXPECT_EQ(ranks.status(r), 0) << "rank " << r;
    ++place;
  }
}

INSTANTIATE_TEST_SUITE_P(Losses, Shrink,
                         ::testing::Values(Loss{2, {1}, -1, false, "OneOfTwo"},
                                           Loss{3, {0}, -1, false, "TheFirst"},
                                           Loss{4, {3}, -1, true, "TheLastOfTwoNodes"},
                                           Loss{5, {0, 2}, -1, false, "TwoAtOnce"},
                                           Loss{4, {0, 1}, -1, true, "TwoOfTwoNodes"},
                                           Loss{4, {3}, 1, false, "AnotherMeanwhile"},
                                           Loss{5, {4}, 0, true, "TheFirstMeanwhile"}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace hetccl::test

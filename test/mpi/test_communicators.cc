// Communicators: creation with and without MPI, split, duplicate, threads, streams, arguments that
// are refused, ranks that disagree.
#include <cstring>
#include <set>
#include <string>
#include <thread>

#include "test/mpi/mpi_test.h"

namespace hetccl::test {
namespace {

using Communicators = World;

float all_sum(hetcclComm_t c, float mine) {
  float out = -1;
  EXPECT_EQ(hetcclAllReduce(&mine, &out, 1, hetcclFloat32, hetcclSum, c, nullptr), hetcclSuccess)
      << hetcclGetLastError(nullptr);
  return out;
}

TEST_F(Communicators, KnowTheirSizeAndRank) {
  int n = 0, r = -1;
  EXPECT_EQ(hetcclCommCount(comm, &n), hetcclSuccess);
  EXPECT_EQ(hetcclCommUserRank(comm, &r), hetcclSuccess);
  EXPECT_EQ(n, ranks);
  EXPECT_EQ(r, rank);
}

TEST_F(Communicators, MeetByUniqueId) {
  hetcclUniqueId id;
  std::memset(&id, 0, sizeof id);
  if (rank == 0) {
    EXPECT_EQ(hetcclGetUniqueId(&id), hetcclSuccess) << hetcclGetLastError(nullptr);
  }
  MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
  hetcclComm_t c = nullptr;
  ASSERT_EQ(hetcclCommInitRank(&c, ranks, id, rank), hetcclSuccess) << hetcclGetLastError(nullptr);
  EXPECT_EQ(all_sum(c, static_cast<float>(rank + 1)), static_cast<float>(ranks * (ranks + 1) / 2));
  EXPECT_EQ(hetcclCommDestroy(c), hetcclSuccess);
}

TEST_F(Communicators, SplitByColorAndReversedKey) {
  hetcclComm_t half = nullptr;
  ASSERT_EQ(hetcclCommSplit(comm, rank % 2, -rank, &half, nullptr), hetcclSuccess);
  int n = 0, r = -1;
  EXPECT_EQ(hetcclCommCount(half, &n), hetcclSuccess);
  EXPECT_EQ(hetcclCommUserRank(half, &r), hetcclSuccess);
  EXPECT_EQ(n, (ranks + 1 - rank % 2) / 2);
  EXPECT_EQ(r, n - 1 - rank / 2);
  float want = 0;
  for (int k = rank % 2; k < ranks; k += 2) want += static_cast<float>(k);
  EXPECT_EQ(all_sum(half, static_cast<float>(rank)), want);
  EXPECT_EQ(hetcclCommDestroy(half), hetcclSuccess);
}

TEST_F(Communicators, SplitWithoutColorGivesNone) {
  const int64_t big = int64_t{1} << 40;  // not cut to 32 bits
  hetcclComm_t some = reinterpret_cast<hetcclComm_t>(1);
  const int64_t color = rank == 0 ? -1 : (rank % 2 == 0 ? big : 2 * big);
  ASSERT_EQ(hetcclCommSplit(comm, color, 0, &some, nullptr), hetcclSuccess);
  if (rank == 0) {
    EXPECT_EQ(some, nullptr);
  } else {
    int n = 0;
    EXPECT_EQ(hetcclCommCount(some, &n), hetcclSuccess);
    int want = 0;
    for (int k = 1; k < ranks; ++k) want += k % 2 == rank % 2;
    EXPECT_EQ(n, want);
  }
  EXPECT_EQ(hetcclCommDestroy(some), hetcclSuccess);  // NULL is harmless
}

TEST_F(Communicators, DuplicatesInManyGenerations) {
  hetcclComm_t c = comm;
  std::vector<hetcclComm_t> made;
  for (int k = 0; k < 5; ++k) {
    hetcclComm_t next = nullptr;
    ASSERT_EQ(hetcclCommDup(c, &next), hetcclSuccess) << hetcclGetLastError(nullptr);
    made.push_back(next);
    c = next;
  }
  for (hetcclComm_t m : made) EXPECT_EQ(all_sum(m, 1), static_cast<float>(ranks));
  for (hetcclComm_t m : made) EXPECT_EQ(hetcclCommDestroy(m), hetcclSuccess);
}

TEST_F(Communicators, OneThreadEach) {
  constexpr int kThreads = 6, kCalls = 50;
  std::vector<hetcclComm_t> comms(kThreads);
  for (auto& c : comms) ASSERT_EQ(hetcclCommDup(comm, &c), hetcclSuccess);
  std::vector<std::thread> threads;
  std::vector<int> wrong(kThreads, 0);
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::vector<float> in(1024), out(1024);
      for (int k = 0; k < kCalls; ++k) {
        std::fill(in.begin(), in.end(), static_cast<float>(rank + k + t));
        if (hetcclAllReduce(in.data(), out.data(), in.size(), hetcclFloat32, hetcclSum, comms[t],
                            nullptr) != hetcclSuccess) {
          ++wrong[t];
        }
        const auto want = static_cast<float>(ranks * (ranks - 1) / 2 + ranks * (k + t));
        for (float f : out) wrong[t] += f != want;
      }
    });
  }
  for (auto& t : threads) t.join();
  for (int w : wrong) EXPECT_EQ(w, 0);
  for (auto& c : comms) EXPECT_EQ(hetcclCommDestroy(c), hetcclSuccess);
}

TEST_F(Communicators, StreamsInOppositeOrder) {
  hetcclComm_t second = nullptr;
  ASSERT_EQ(hetcclCommDup(comm, &second), hetcclSuccess);
  hetcclStream_t a, b;
  ASSERT_EQ(hetcclStreamCreate(&a), hetcclSuccess);
  ASSERT_EQ(hetcclStreamCreate(&b), hetcclSuccess);
  constexpr size_t kCount = 100000;
  std::vector<float> x(kCount, 1.f), y(kCount, 2.f), rx(kCount), ry(kCount);
  for (int round = 0; round < 10; ++round) {
    auto on_first = [&] {
      return hetcclAllReduce(x.data(), rx.data(), kCount, hetcclFloat32, hetcclSum, comm, a);
    };
    auto on_second = [&] {
      return hetcclAllReduce(y.data(), ry.data(), kCount, hetcclFloat32, hetcclSum, second, b);
    };
    if (rank % 2 == 0) {
      EXPECT_EQ(on_first(), hetcclSuccess);
      EXPECT_EQ(on_second(), hetcclSuccess);
    } else {
      EXPECT_EQ(on_second(), hetcclSuccess);
      EXPECT_EQ(on_first(), hetcclSuccess);
    }
    EXPECT_EQ(hetcclStreamSynchronize(a), hetcclSuccess);
    EXPECT_EQ(hetcclStreamSynchronize(b), hetcclSuccess);
    EXPECT_EQ(rx[kCount - 1], static_cast<float>(ranks));
    EXPECT_EQ(ry[0], static_cast<float>(2 * ranks));
  }
  EXPECT_EQ(hetcclStreamQuery(a), hetcclSuccess);
  EXPECT_EQ(hetcclStreamDestroy(a), hetcclSuccess);
  EXPECT_EQ(hetcclStreamDestroy(b), hetcclSuccess);
  EXPECT_EQ(hetcclCommDestroy(second), hetcclSuccess);
}

TEST_F(Communicators, BlockingCallsWaitForThoseOnStreams) {
  hetcclStream_t s;
  ASSERT_EQ(hetcclStreamCreate(&s), hetcclSuccess);
  constexpr size_t kCount = 50000;
  std::vector<std::vector<float>> in(20, std::vector<float>(kCount)), out = in;
  for (size_t k = 0; k < in.size(); ++k) {
    std::fill(in[k].begin(), in[k].end(), static_cast<float>(k));
    EXPECT_EQ(
        hetcclAllReduce(in[k].data(), out[k].data(), kCount, hetcclFloat32, hetcclSum, comm, s),
        hetcclSuccess);
  }
  EXPECT_EQ(all_sum(comm, 1), static_cast<float>(ranks));
  EXPECT_EQ(hetcclStreamSynchronize(s), hetcclSuccess);
  for (size_t k = 0; k < in.size(); ++k) EXPECT_EQ(out[k][7], static_cast<float>(k) * ranks);
  EXPECT_EQ(hetcclStreamDestroy(s), hetcclSuccess);
}

TEST_F(Communicators, BadArgumentsAreRefusedAndNothingIsLost) {
  float x = 1, y[4] = {0, 0, 0, 0};
  auto refused = [&](hetcclResult_t r, const char* word) {
    EXPECT_EQ(r, hetcclInvalidArgument);
    EXPECT_NE(std::string(hetcclGetLastError(nullptr)).find(word), std::string::npos)
        << hetcclGetLastError(nullptr);
  };
  if (rank == ranks - 1) {  // the others wait for the corrected call
    refused(hetcclAllReduce(nullptr, y, 1, hetcclFloat32, hetcclSum, comm, nullptr), "sendbuff");
    refused(hetcclAllReduce(&x, nullptr, 1, hetcclFloat32, hetcclSum, comm, nullptr), "recvbuff");
    refused(hetcclAllReduce(&x, y, 1, static_cast<hetcclDataType_t>(77), hetcclSum, comm, nullptr),
            "77");
    refused(hetcclAllReduce(&x, y, 1, hetcclFloat32, hetcclBAnd, comm, nullptr), "float32");
    refused(hetcclAllReduce(&x, y, 1, hetcclFloat32, hetcclMinLoc, comm, nullptr), "minloc");
    refused(hetcclBroadcast(&x, y, 1, hetcclFloat32, ranks, comm, nullptr), "root");
    refused(hetcclBroadcast(&x, y, 1, hetcclFloat32, -1, comm, nullptr), "root");
    refused(hetcclAllReduce(&x, y, size_t{1} << 62, hetcclFloat32, hetcclSum, comm, nullptr),
            "2^63");
    refused(hetcclAllReduce(y, y + 1, 3, hetcclFloat32, hetcclSum, comm, nullptr), "overlap");
    refused(hetcclAllReduce(&x, y, 1, hetcclFloat32, hetcclSum, nullptr, nullptr), "NULL");
    refused(hetcclAllReduce(&x, y, 1, hetcclFloat32, hetcclSum, comm, &x), "stream");
    EXPECT_NE(std::string(hetcclGetLastError(comm)).find("stream"), std::string::npos);
  }
  EXPECT_EQ(all_sum(comm, 1), static_cast<float>(ranks));
  hetcclResult_t state = hetcclInternalError;
  EXPECT_EQ(hetcclCommGetAsyncError(comm, &state), hetcclSuccess);
  EXPECT_EQ(state, hetcclSuccess);
}

// Each way in which one rank's call can differ ends with the same error on every rank.
class Disagreement : public ::testing::TestWithParam<const char*> {};

TEST_P(Disagreement, IsNamedOnEveryRank) {
  const int rank = world_rank(), ranks = world_size();
  if (ranks == 1) GTEST_SKIP() << "one rank cannot disagree";
  const std::string how = GetParam();
  hetcclComm_t c = nullptr;
  ASSERT_EQ(hetcclCommInitMPI(&c, MPI_COMM_WORLD, nullptr), hetcclSuccess);
  std::vector<float> in(100000, 1.f), out(100000);
  const bool odd = rank == ranks - 1;
  const size_t count = how == "big count" ? 60000 : 100;
  hetcclResult_t result = hetcclSuccess;
  for (int k = 0; k < 40 && result == hetcclSuccess; ++k) {
    const bool differ = odd && k == 3;
    auto reduce = [&](size_t n, hetcclDataType_t t, hetcclRedOp_t op) {
      return hetcclAllReduce(in.data(), out.data(), n, t, op, c, nullptr);
    };
    if (how == "root") {
      result = hetcclBroadcast(in.data(), out.data(), count, hetcclFloat32, differ ? 1 % ranks : 0,
                               c, nullptr);
    } else if (!differ) {
      result = reduce(count, hetcclFloat32, hetcclSum);
    } else if (how == "collective") {
      result = hetcclBroadcast(in.data(), out.data(), count, hetcclFloat32, 0, c, nullptr);
    } else if (how == "type") {
      result = reduce(count, hetcclInt32, hetcclSum);
    } else if (how == "operator") {
      result = reduce(count, hetcclFloat32, hetcclMax);
    } else if (how == "zero count") {
      result = reduce(0, hetcclFloat32, hetcclSum);
    } else {
      result = reduce(count + 1, hetcclFloat32, hetcclSum);
    }
  }
  EXPECT_EQ(result, hetcclInvalidUsage) << hetcclGetLastError(nullptr);
  const std::string text = hetcclGetLastError(c);
  EXPECT_NE(text.find(how == "root" ? "broadcast" : "allreduce"), std::string::npos) << text;
  EXPECT_NE(text.find("rank"), std::string::npos) << text;
  hetcclResult_t state = hetcclSuccess;
  EXPECT_EQ(hetcclCommGetAsyncError(c, &state), hetcclSuccess);
  EXPECT_EQ(state, hetcclInvalidUsage);
  // At its end: every further call says so.
  float f = 1;
  EXPECT_EQ(hetcclAllReduce(&f, &f, 1, hetcclFloat32, hetcclSum, c, nullptr), hetcclInvalidUsage);
  EXPECT_EQ(hetcclCommDestroy(c), hetcclSuccess);
  MPI_Barrier(MPI_COMM_WORLD);
}

INSTANTIATE_TEST_SUITE_P(Kinds, Disagreement,
                         ::testing::Values("count", "big count", "zero count", "type", "operator",
                                           "collective", "root"),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& ch : name) ch = ch == ' ' ? '_' : ch;
                           return name;
                         });

TEST(Settings, BadValueOnOneRankFailsAll) {
  const bool odd = world_rank() == world_size() - 1;
  for (const char* value : {"", "abc", "-1", "1e3x", "64Q", "99999999999999999999", " 8 "}) {
    if (odd) setenv("HETCCL_DEPTH", value, 1);
    hetcclComm_t c = nullptr;
    EXPECT_EQ(hetcclCommInitMPI(&c, MPI_COMM_WORLD, nullptr), hetcclInvalidArgument) << value;
    EXPECT_EQ(c, nullptr);
    const std::string text = hetcclGetLastError(nullptr);
    EXPECT_NE(text.find("HETCCL_DEPTH"), std::string::npos) << text;
    EXPECT_NE(text.find("2 to 64"), std::string::npos) << text;
    unsetenv("HETCCL_DEPTH");
  }
}

TEST(Settings, UnknownAlgorithmIsRefusedEverywhere) {
  setenv("HETCCL_ALGO", "allreduce:nosuch", 1);
  hetcclComm_t c = nullptr;
  EXPECT_EQ(hetcclCommInitMPI(&c, MPI_COMM_WORLD, nullptr), hetcclInvalidArgument);
  const std::string text = hetcclGetLastError(nullptr);
  EXPECT_NE(text.find("nosuch"), std::string::npos) << text;
  EXPECT_NE(text.find("ring"), std::string::npos) << text;
  unsetenv("HETCCL_ALGO");
}

TEST(Settings, DifferentValuesGiveWayToRankZero) {
  if (world_rank() == world_size() - 1) {
    setenv("HETCCL_ALGO", "allreduce:ring", 1);
    setenv("HETCCL_CHUNK_SIZE", "4K", 1);
  }
  hetcclComm_t c = nullptr;
  ASSERT_EQ(hetcclCommInitMPI(&c, MPI_COMM_WORLD, nullptr), hetcclSuccess);
  std::vector<float> x(50000, 1.f);
  EXPECT_EQ(hetcclAllReduce(x.data(), x.data(), x.size(), hetcclFloat32, hetcclSum, c, nullptr),
            hetcclSuccess);
  EXPECT_EQ(x[49999], static_cast<float>(world_size()));
  EXPECT_EQ(hetcclCommDestroy(c), hetcclSuccess);
  unsetenv("HETCCL_ALGO");
  unsetenv("HETCCL_CHUNK_SIZE");
}

TEST(Lifetime, ManyCommunicatorsInARow) {
  for (int k = 0; k < 40; ++k) {
    hetcclComm_t c = nullptr;
    ASSERT_EQ(hetcclCommInitMPI(&c, MPI_COMM_WORLD, nullptr), hetcclSuccess)
        << hetcclGetLastError(nullptr);
    EXPECT_EQ(all_sum(c, 1), static_cast<float>(world_size()));
    EXPECT_EQ(hetcclCommDestroy(c), hetcclSuccess);
  }
}

TEST(Lifetime, AbortIsLocalAndTheOthersHear) {
  if (world_size() == 1) GTEST_SKIP() << "one rank has no others";
  hetcclComm_t c = nullptr;
  ASSERT_EQ(hetcclCommInitMPI(&c, MPI_COMM_WORLD, nullptr), hetcclSuccess);
  if (world_rank() == 0) {
    EXPECT_EQ(hetcclCommAbort(c), hetcclSuccess);
  } else {
    float x = 1;
    EXPECT_EQ(hetcclAllReduce(&x, &x, 1, hetcclFloat32, hetcclSum, c, nullptr), hetcclRemoteError);
    EXPECT_NE(std::string(hetcclGetLastError(c)).find("abort"), std::string::npos);
    EXPECT_EQ(hetcclCommDestroy(c), hetcclSuccess);
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

}  // namespace
}  // namespace hetccl::test

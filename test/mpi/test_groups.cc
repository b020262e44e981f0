// Send, Recv and groups: every order in which ranks may name their calls, in every place they may
// be given to.
#include <algorithm>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "lib/introspect.h"
#include "test/mpi/mpi_test.h"

namespace hetccl::test {
namespace {

class Groups : public World {
 protected:
  int left() const { return (rank + ranks - 1) % ranks; }
  int right() const { return (rank + 1) % ranks; }
  // What `from` sends as its `k`-th message.
  static std::vector<int32_t> message(int from, int k, size_t count) {
    std::vector<int32_t> data(count);
    for (size_t i = 0; i < count; ++i) {
      data[i] = from * 1000003 + k * 10007 + static_cast<int32_t>(i);
    }
    return data;
  }
  hetcclResult_t send(const std::vector<int32_t>& data, int peer, hetcclStream_t s = nullptr) {
    return hetcclSend(data.data(), data.size(), hetcclInt32, peer, comm, s);
  }
  hetcclResult_t recv(std::vector<int32_t>* data, int peer, hetcclStream_t s = nullptr) {
    return hetcclRecv(data->data(), data->size(), hetcclInt32, peer, comm, s);
  }
};

const size_t kCounts[] = {0, 1, 5, 1000, 16384, 65537, 300001, 1 << 20};

TEST_F(Groups, EmptyAndNestedOnesAreLegal) {
  EXPECT_EQ(hetcclGroupStart(), hetcclSuccess);
  EXPECT_EQ(hetcclGroupEnd(), hetcclSuccess);
  EXPECT_EQ(hetcclGroupStart(), hetcclSuccess);
  EXPECT_EQ(hetcclGroupStart(), hetcclSuccess);
  int32_t mine = rank + 1, sum = -1;
  EXPECT_EQ(hetcclAllReduce(&mine, &sum, 1, hetcclInt32, hetcclSum, comm, nullptr), hetcclSuccess);
  EXPECT_EQ(hetcclGroupEnd(), hetcclSuccess);
  EXPECT_EQ(sum, -1) << "an inner group ends nothing";
  EXPECT_EQ(hetcclGroupEnd(), hetcclSuccess);
  EXPECT_EQ(sum, ranks * (ranks + 1) / 2);
  EXPECT_EQ(hetcclGroupEnd(), hetcclInvalidUsage);
}

TEST_F(Groups, RingExchangeOfEverySizeInEitherOrder) {
  for (const size_t count : kCounts) {
    const auto out = message(rank, 0, count);
    for (const bool send_first : {true, false}) {
      std::vector<int32_t> in(count, -1);
      EXPECT_EQ(hetcclGroupStart(), hetcclSuccess);
      if (send_first) {
        EXPECT_EQ(send(out, right()), hetcclSuccess);
      }
      EXPECT_EQ(recv(&in, left()), hetcclSuccess);
      if (!send_first) {
        EXPECT_EQ(send(out, right()), hetcclSuccess);
      }
      EXPECT_EQ(hetcclGroupEnd(), hetcclSuccess) << hetcclGetLastError(nullptr);
      EXPECT_EQ(in, message(left(), 0, count)) << count;
    }
  }
}

// Blocking calls without a group, one side after the other.
TEST_F(Groups, PairsWithoutGroup) {
  if (ranks == 1) GTEST_SKIP() << "needs another rank, or a group";
  for (const size_t count : kCounts) {
    if (rank == 0) {
      std::vector<int32_t> in(count);
      EXPECT_EQ(send(message(0, 7, count), 1), hetcclSuccess);
      EXPECT_EQ(recv(&in, 1), hetcclSuccess);
      EXPECT_EQ(in, message(1, 8, count));
    } else if (rank == 1) {
      std::vector<int32_t> in(count);
      EXPECT_EQ(recv(&in, 0), hetcclSuccess);
      EXPECT_EQ(in, message(0, 7, count));
      EXPECT_EQ(send(message(1, 8, count), 0), hetcclSuccess);
    }
  }
}

// Zero bytes from NULL to everybody, and five elements to the right neighbour.
TEST_F(Groups, ZeroBytesWithNullBesidesAMessage) {
  for (int round = 0; round < 20; ++round) {
    const auto out = message(rank, round, 5);
    std::vector<int32_t> in(5);
    EXPECT_EQ(hetcclGroupStart(), hetcclSuccess);
    for (int p = 0; p < ranks; ++p) {
      EXPECT_EQ(hetcclRecv(nullptr, 0, hetcclInt32, p, comm, nullptr), hetcclSuccess);
      EXPECT_EQ(hetcclSend(nullptr, 0, hetcclInt32, p, comm, nullptr), hetcclSuccess);
    }
    EXPECT_EQ(send(out, right()), hetcclSuccess);
    EXPECT_EQ(recv(&in, left()), hetcclSuccess);
    EXPECT_EQ(hetcclGroupEnd(), hetcclSuccess) << hetcclGetLastError(nullptr);
    EXPECT_EQ(in, message(left(), round, 5));
  }
}

// Uneven exchange of all with all: rank 2 idle, then rank 2 alone, then nobody, then by chance.
TEST_F(Groups, UnevenExchangeOfAllWithAllInPermutedOrders) {
  uint32_t chance = 12345;
  for (int round = 0; round < 40; ++round) {
    std::vector<size_t> counts(static_cast<size_t>(ranks * ranks));
    for (int i = 0; i < ranks; ++i) {
      for (int j = 0; j < ranks; ++j) {
        chance = chance * 1664525u + 1013904223u;
        const bool of_2 = i == 2 || j == 2;
        const auto some = static_cast<size_t>(i + 2 * j + 1);
        counts[static_cast<size_t>(i * ranks + j)] = round == 0         ? (of_2 ? 0 : some)
                                                     : round == 1       ? (of_2 ? some : 0)
                                                     : round == 2       ? 0
                                                     : chance >> 16 & 1 ? some * 1000
                                                                        : 0;
      }
    }
    std::vector<std::vector<int32_t>> out, in;
    for (int p = 0; p < ranks; ++p) {
      out.push_back(message(rank, p, counts[static_cast<size_t>(rank * ranks + p)]));
      in.emplace_back(counts[static_cast<size_t>(p * ranks + rank)]);
    }
    EXPECT_EQ(hetcclGroupStart(), hetcclSuccess);
    for (int k = 0; k < ranks; ++k) {
      // Each rank begins elsewhere, and half of them go the other way.
      const int p = (rank % 2 == 0 ? rank + k + round : 2 * ranks + rank - k) % ranks;
      const auto at = static_cast<size_t>(p);
      if (k % 2 == 0) {
        EXPECT_EQ(send(out[at], p), hetcclSuccess);
      }
      EXPECT_EQ(recv(&in[at], p), hetcclSuccess);
      if (k % 2 != 0) {
        EXPECT_EQ(send(out[at], p), hetcclSuccess);
      }
    }
    EXPECT_EQ(hetcclGroupEnd(), hetcclSuccess) << hetcclGetLastError(nullptr);
    for (int p = 0; p < ranks; ++p) {
      EXPECT_EQ(in[static_cast<size_t>(p)], message(p, rank, in[static_cast<size_t>(p)].size()));
    }
  }
}

// The k-th goes to the k-th, whatever their sizes, in one group, from library memory too.
TEST_F(Groups, ManyMessagesBetweenTheSameTwoStayInOrder) {
  constexpr int kMessages = 64;
  for (const bool shared : {false, true}) {
    std::vector<std::vector<int32_t>> in;
    std::vector<void*> memory;
    EXPECT_EQ(hetcclGroupStart(), hetcclSuccess);
    std::vector<std::vector<int32_t>> out;
    for (int k = 0; k < kMessages; ++k) out.push_back(message(rank, k, k % 5 == 4 ? 40000 : k));
    for (int k = 0; k < kMessages; ++k) in.emplace_back(out[static_cast<size_t>(k)].size(), -1);
    for (int k = 0; k < kMessages; ++k) {
      const auto& data = out[static_cast<size_t>(k)];
      const void* from = data.data();
      if (shared && !data.empty()) {
        void* p = nullptr;
        EXPECT_EQ(hetcclMemAlloc(&p, data.size() * 4, hetcclMemoryHost), hetcclSuccess);
        std::memcpy(p, data.data(), data.size() * 4);
        memory.push_back(p);
        from = p;
      }
      EXPECT_EQ(hetcclSend(from, data.size(), hetcclInt32, right(), comm, nullptr), hetcclSuccess);
    }
    for (auto& data : in) EXPECT_EQ(recv(&data, left()), hetcclSuccess);
    EXPECT_EQ(hetcclGroupEnd(), hetcclSuccess) << hetcclGetLastError(nullptr);
    for (int k = 0; k < kMessages; ++k) {
      const auto& data = in[static_cast<size_t>(k)];
      EXPECT_EQ(data, message(left(), k, data.size())) << k;
    }
    for (void* p : memory) EXPECT_EQ(hetcclMemFree(p), hetcclSuccess);
  }
}

TEST_F(Groups, CollectivesOfTwoCommunicatorsInOppositeOrders) {
  hetcclComm_t other = nullptr;
  ASSERT_EQ(hetcclCommDup(comm, &other), hetcclSuccess);
  constexpr size_t kCount = 200000;
  std::vector<int32_t> a(kCount, 1), b(kCount, 2), in(1000);
  const auto out = message(rank, 1, 1000);
  for (int round = 0; round < 10; ++round) {
    std::vector<int32_t> sum_a(kCount), sum_b(kCount);
    EXPECT_EQ(hetcclGroupStart(), hetcclSuccess);
    auto call = [&](hetcclComm_t c, const std::vector<int32_t>& from, std::vector<int32_t>* to) {
      EXPECT_EQ(
          hetcclAllReduce(from.data(), to->data(), kCount, hetcclInt32, hetcclSum, c, nullptr),
          hetcclSuccess);
    };
    if (rank % 3 == 0) {
      EXPECT_EQ(send(out, right()), hetcclSuccess);
    }
    if (rank % 2 == 0) call(comm, a, &sum_a);
    call(other, b, &sum_b);
    if (rank % 3 != 0) {
      EXPECT_EQ(send(out, right()), hetcclSuccess);
    }
    if (rank % 2 != 0) call(comm, a, &sum_a);
    EXPECT_EQ(recv(&in, left()), hetcclSuccess);
    EXPECT_EQ(hetcclBarrier(comm, nullptr), hetcclSuccess);
    EXPECT_EQ(hetcclGroupEnd(), hetcclSuccess) << hetcclGetLastError(nullptr);
    EXPECT_EQ(std::count(sum_a.begin(), sum_a.end(), ranks), static_cast<long>(kCount));
    EXPECT_EQ(std::count(sum_b.begin(), sum_b.end(), 2 * ranks), static_cast<long>(kCount));
    EXPECT_EQ(in, message(left(), 1, 1000));
  }
  EXPECT_EQ(hetcclCommDestroy(other), hetcclSuccess);
}

// Lists of counts are the caller's again when the call returns.
TEST_F(Groups, ListsOfCountsMayBeChangedBeforeTheEnd) {
  const auto n = static_cast<size_t>(ranks);
  std::vector<size_t> counts(n, 3), displacements(n);
  for (size_t r = 0; r < n; ++r) displacements[r] = 3 * r;
  const auto mine = message(rank, 0, 3);
  std::vector<int32_t> all(3 * n), exchanged(3 * n);
  std::vector<int32_t> to_all;
  for (int p = 0; p < ranks; ++p) {
    const auto part = message(rank, p, 3);
    to_all.insert(to_all.end(), part.begin(), part.end());
  }
  EXPECT_EQ(hetcclGroupStart(), hetcclSuccess);
  EXPECT_EQ(hetcclAllGatherv(mine.data(), 3, all.data(), counts.data(), displacements.data(),
                             hetcclInt32, comm, nullptr),
            hetcclSuccess);
  EXPECT_EQ(hetcclAllToAllv(to_all.data(), counts.data(), displacements.data(), exchanged.data(),
                            counts.data(), displacements.data(), hetcclInt32, comm, nullptr),
            hetcclSuccess);
  std::fill(counts.begin(), counts.end(), 77777);
  std::fill(displacements.begin(), displacements.end(), 88888);
  EXPECT_EQ(hetcclGroupEnd(), hetcclSuccess) << hetcclGetLastError(nullptr);
  for (int p = 0; p < ranks; ++p) {
    const auto at = static_cast<ptrdiff_t>(3 * p);
    const auto of_p = message(p, 0, 3), for_us = message(p, rank, 3);
    EXPECT_TRUE(std::equal(of_p.begin(), of_p.end(), all.begin() + at));
    EXPECT_TRUE(std::equal(for_us.begin(), for_us.end(), exchanged.begin() + at));
  }
}

TEST_F(Groups, InvalidArgumentsAreReturnedAtOnceAndAreNoPartOfTheGroup) {
  int32_t mine = 1, sum = 0, x = 0;
  EXPECT_EQ(hetcclGroupStart(), hetcclSuccess);
  EXPECT_EQ(hetcclSend(nullptr, 1, hetcclInt32, 0, comm, nullptr), hetcclInvalidArgument);
  EXPECT_EQ(hetcclSend(&x, 1, hetcclInt32, ranks, comm, nullptr), hetcclInvalidArgument);
  EXPECT_NE(std::string(hetcclGetLastError(comm)).find("peer"), std::string::npos);
  EXPECT_EQ(hetcclRecv(&x, 1, hetcclInt32, -1, comm, nullptr), hetcclInvalidArgument);
  EXPECT_EQ(hetcclRecv(&x, 1, static_cast<hetcclDataType_t>(99), 0, comm, nullptr),
            hetcclInvalidArgument);
  EXPECT_EQ(hetcclRecv(&x, SIZE_MAX / 2, hetcclInt32, 0, comm, nullptr), hetcclInvalidArgument);
  EXPECT_EQ(hetcclRecv(&x, 1, hetcclInt32, 0, nullptr, nullptr), hetcclInvalidArgument);
  EXPECT_EQ(hetcclAllReduce(nullptr, &sum, 1, hetcclInt32, hetcclSum, comm, nullptr),
            hetcclInvalidArgument);
  EXPECT_EQ(hetcclAllReduce(&mine, &sum, 1, hetcclInt32, hetcclSum, comm, nullptr), hetcclSuccess);
  EXPECT_EQ(hetcclGroupEnd(), hetcclSuccess);
  EXPECT_EQ(sum, ranks);
}

// Send and Recv of one group in one stream run side by side; what is in the stream before and after
// is apart from them.
TEST_F(Groups, InAStreamAGroupTakesOnePlace) {
  hetcclStream_t stream = nullptr;
  ASSERT_EQ(hetcclStreamCreate(&stream), hetcclSuccess);
  constexpr size_t kCount = 500000;
  for (int round = 0; round < 5; ++round) {
    std::vector<int32_t> x(kCount, 1), y(kCount), z(kCount);
    EXPECT_EQ(hetcclAllReduce(x.data(), x.data(), kCount, hetcclInt32, hetcclSum, comm, stream),
              hetcclSuccess);
    EXPECT_EQ(hetcclGroupStart(), hetcclSuccess);
    EXPECT_EQ(send(x, right(), stream), hetcclSuccess);
    EXPECT_EQ(recv(&y, left(), stream), hetcclSuccess);
    EXPECT_EQ(hetcclGroupEnd(), hetcclSuccess);
    EXPECT_EQ(hetcclAllReduce(y.data(), z.data(), kCount, hetcclInt32, hetcclSum, comm, stream),
              hetcclSuccess);
    EXPECT_EQ(hetcclStreamSynchronize(stream), hetcclSuccess) << hetcclGetLastError(comm);
    EXPECT_EQ(std::count(y.begin(), y.end(), ranks), static_cast<long>(kCount));
    EXPECT_EQ(std::count(z.begin(), z.end(), ranks * ranks), static_cast<long>(kCount));
  }
  EXPECT_EQ(hetcclStreamDestroy(stream), hetcclSuccess);
}

// Calls in streams and without, of many kinds, waited for in reverse order.
TEST_F(Groups, OutstandingCallsInStreamsEachGetTheirOwnData) {
  constexpr int kStreams = 8, kCalls = 64;
  std::vector<hetcclStream_t> streams(kStreams);
  for (auto& s : streams) ASSERT_EQ(hetcclStreamCreate(&s), hetcclSuccess);
  std::vector<std::vector<int32_t>> in, out;
  std::vector<int32_t> sums(kCalls);
  const std::vector<int32_t> ones(kCalls, 1);
  for (int k = 0; k < kCalls; ++k) out.push_back(message(rank, k, static_cast<size_t>(k) * 300));
  for (int k = 0; k < kCalls; ++k) in.emplace_back(static_cast<size_t>(k) * 300);
  for (int k = 0; k < kCalls; ++k) {
    const auto at = static_cast<size_t>(k);
    hetcclStream_t s = streams[at % kStreams];
    if (k % 2 == 0) {
      EXPECT_EQ(hetcclAllReduce(&ones[at], &sums[at], 1, hetcclInt32, hetcclSum, comm, s),
                hetcclSuccess);
    }
    EXPECT_EQ(hetcclGroupStart(), hetcclSuccess);
    EXPECT_EQ(send(out[at], right(), s), hetcclSuccess);
    EXPECT_EQ(recv(&in[at], left(), streams[(at + 3) % kStreams]), hetcclSuccess);
    EXPECT_EQ(hetcclGroupEnd(), hetcclSuccess);
    if (k % 2 != 0) {
      EXPECT_EQ(hetcclAllReduce(&ones[at], &sums[at], 1, hetcclInt32, hetcclSum, comm, nullptr),
                hetcclSuccess);
    }
  }
  for (int i = kStreams - 1; i >= 0; --i) {
    EXPECT_EQ(hetcclStreamSynchronize(streams[static_cast<size_t>(i)]), hetcclSuccess);
  }
  for (int k = 0; k < kCalls; ++k) {
    const auto at = static_cast<size_t>(k);
    EXPECT_EQ(in[at], message(left(), k, in[at].size())) << k;
    EXPECT_EQ(sums[at], ranks) << k;
  }
  for (auto s : streams) EXPECT_EQ(hetcclStreamDestroy(s), hetcclSuccess);
}

// A receive that waits in one thread hinders neither sends nor collectives in another.
TEST_F(Groups, ThreadsDoNotHinderEachOther) {
  constexpr int kRounds = 30;
  std::thread receiver([&] {
    for (int k = 0; k < kRounds; ++k) {
      std::vector<int32_t> in(3000);
      EXPECT_EQ(recv(&in, left()), hetcclSuccess);
      EXPECT_EQ(in, message(left(), k, 3000));
    }
  });
  for (int k = 0; k < kRounds; ++k) {
    int32_t one = 1, sum = 0;
    EXPECT_EQ(hetcclAllReduce(&one, &sum, 1, hetcclInt32, hetcclSum, comm, nullptr), hetcclSuccess);
    EXPECT_EQ(sum, ranks);
    EXPECT_EQ(send(message(rank, k, 3000), right()), hetcclSuccess);
  }
  receiver.join();
}

// What was sent arrives even if its sender has destroyed the communicator at once.
TEST_F(Groups, DestroyAfterSendLosesNothing) {
  for (int round = 0; round < 5; ++round) {
    hetcclComm_t own = nullptr;
    ASSERT_EQ(hetcclCommDup(comm, &own), hetcclSuccess);
    std::vector<int32_t> in(70000);
    const auto out = message(rank, round, 70000);
    EXPECT_EQ(hetcclGroupStart(), hetcclSuccess);
    if (rank == 0) {
      for (int p = 1; p < ranks; ++p) {
        EXPECT_EQ(hetcclSend(out.data(), out.size(), hetcclInt32, p, own, nullptr), hetcclSuccess);
      }
    } else {
      EXPECT_EQ(hetcclRecv(in.data(), in.size(), hetcclInt32, 0, own, nullptr), hetcclSuccess);
    }
    EXPECT_EQ(hetcclGroupEnd(), hetcclSuccess) << hetcclGetLastError(nullptr);
    EXPECT_EQ(hetcclCommDestroy(own), hetcclSuccess);
    if (rank != 0) {
      EXPECT_EQ(in, message(0, round, 70000));
    }
  }
}

// Memory of a (simulated) device, of the host, and of one kind at each end; without a stream, in a
// native one, and to oneself.
TEST_F(Groups, MemoryOfDevices) {
  hetcclConfig_t config = HETCCL_CONFIG_INITIALIZER;
  config.device_kind = hetcclMemorySimCuda;
  config.device = 0;
  hetcclComm_t own = nullptr;
  ASSERT_EQ(hetcclCommSplit(comm, 0, 0, &own, &config), hetcclSuccess);
  hetcclStream_t native = nullptr;
  ASSERT_EQ(hetcclInternalStreamCreate(hetcclMemorySimCuda, 0, &native), hetcclSuccess);
  for (const size_t count : {size_t{0}, size_t{5}, size_t{70000}, size_t{1000001}}) {
    void *from = nullptr, *to = nullptr;
    const size_t bytes = std::max<size_t>(4, count * 4);
    ASSERT_EQ(hetcclMemAlloc(&from, bytes, hetcclMemorySimCuda), hetcclSuccess);
    ASSERT_EQ(hetcclMemAlloc(&to, bytes, hetcclMemorySimCuda), hetcclSuccess);
    const auto out = message(rank, 3, count);
    EXPECT_EQ(hetcclInternalCopy(from, out.data(), count * 4), hetcclSuccess);
    for (int kinds = 0; kinds < 4; ++kinds) {
      const bool sends_device = (kinds & 1) != 0, receives_device = (kinds & 2) != 0;
      for (hetcclStream_t stream : {hetcclStream_t{nullptr}, native}) {
        std::vector<int32_t> in(count, -1);
        const std::vector<int32_t> nothing(count, -1);
        EXPECT_EQ(hetcclInternalCopy(to, nothing.data(), count * 4), hetcclSuccess);
        EXPECT_EQ(hetcclGroupStart(), hetcclSuccess);
        EXPECT_EQ(
            hetcclSend(sends_device ? from : out.data(), count, hetcclInt32, right(), own, stream),
            hetcclSuccess)
            << hetcclGetLastError(own);
        EXPECT_EQ(
            hetcclRecv(receives_device ? to : in.data(), count, hetcclInt32, left(), own, stream),
            hetcclSuccess)
            << hetcclGetLastError(own);
        EXPECT_EQ(hetcclGroupEnd(), hetcclSuccess) << hetcclGetLastError(nullptr);
        EXPECT_EQ(hetcclInternalStreamSynchronize(hetcclMemorySimCuda, 0, native), hetcclSuccess);
        if (receives_device) {
          EXPECT_EQ(hetcclInternalCopy(in.data(), to, count * 4), hetcclSuccess);
        }
        EXPECT_EQ(in, message(left(), 3, count)) << count << " elements, kinds " << kinds;
      }
    }
    EXPECT_EQ(hetcclMemFree(from), hetcclSuccess);
    EXPECT_EQ(hetcclMemFree(to), hetcclSuccess);
  }
  EXPECT_EQ(hetcclInternalStreamDestroy(hetcclMemorySimCuda, 0, native), hetcclSuccess);
  EXPECT_EQ(hetcclCommDestroy(own), hetcclSuccess);
}

// ---- ranks that differ

TEST_F(Groups, CountsOrTypesThatDifferAreNamedAndEndTheCommunicator) {
  if (ranks == 1) GTEST_SKIP() << "needs another rank";
  for (const bool type_differs : {false, true}) {
    hetcclComm_t own = nullptr;
    ASSERT_EQ(hetcclCommDup(comm, &own), hetcclSuccess);
    std::vector<int32_t> data(100);
    hetcclResult_t result = hetcclSuccess;
    if (rank == 0) {
      result = hetcclSend(data.data(), 100, hetcclInt32, 1, own, nullptr);
    } else if (rank == 1) {
      result = type_differs ? hetcclRecv(data.data(), 100, hetcclFloat32, 0, own, nullptr)
                            : hetcclRecv(data.data(), 99, hetcclInt32, 0, own, nullptr);
      EXPECT_EQ(result, hetcclInvalidUsage);
      const std::string text = hetcclGetLastError(own);
      EXPECT_NE(text.find("100 elements of int32"), std::string::npos) << text;
      EXPECT_NE(text.find(type_differs ? "100 elements of float32" : "99 elements of int32"),
                std::string::npos)
          << text;
    }
    // The others learn it from the communicator.
    hetcclResult_t known = hetcclSuccess;
    while (known == hetcclSuccess) {
      ASSERT_EQ(hetcclCommGetAsyncError(own, &known), hetcclSuccess);
      std::this_thread::yield();
    }
    EXPECT_EQ(known, hetcclInvalidUsage);
    EXPECT_EQ(hetcclCommAbort(own), hetcclSuccess);
    MPI_Barrier(MPI_COMM_WORLD);
  }
}

TEST_F(Groups, AReceiveThatNobodyServesTimesOut) {
  hetcclConfig_t config = HETCCL_CONFIG_INITIALIZER;
  config.timeout_s = 1;
  hetcclComm_t own = nullptr;
  ASSERT_EQ(hetcclCommSplit(comm, 0, 0, &own, &config), hetcclSuccess);
  int32_t x = 5, one = 1, sum = 0;
  EXPECT_EQ(hetcclGroupStart(), hetcclSuccess);
  EXPECT_EQ(hetcclRecv(&x, 1, hetcclInt32, left(), own, nullptr), hetcclSuccess);
  EXPECT_EQ(hetcclAllReduce(&one, &sum, 1, hetcclInt32, hetcclSum, comm, nullptr), hetcclSuccess);
  EXPECT_EQ(hetcclGroupEnd(), hetcclTimeout);
  EXPECT_EQ(sum, ranks) << "the group's other calls are complete";
  EXPECT_EQ(x, 5);
  EXPECT_EQ(hetcclCommAbort(own), hetcclSuccess);
}

// Another thread's abort ends a wait.
TEST_F(Groups, AbortEndsAReceive) {
  hetcclComm_t own = nullptr;
  ASSERT_EQ(hetcclCommDup(comm, &own), hetcclSuccess);
  int32_t x = 5;
  hetcclResult_t result = hetcclSuccess;
  std::thread waiter([&] { result = hetcclRecv(&x, 1, hetcclInt32, left(), own, nullptr); });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(hetcclCommAbort(own), hetcclSuccess);
  waiter.join();
  EXPECT_EQ(result, hetcclRemoteError);
  MPI_Barrier(MPI_COMM_WORLD);
}

}  // namespace
}  // namespace hetccl::test

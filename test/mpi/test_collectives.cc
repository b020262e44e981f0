// Every collective, with every algorithm that can be forced, over the real transport: in place and
// not, on a stream and not, at counts around the number of ranks and the chunk, behind guard pages,
// from read-only send buffers.
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include "lib/coll/registry.h"
#include "test/mpi/collective_cases.h"

namespace hetccl::test {
namespace {

using coll::Collective;

struct Case {
  const coll::Algorithm* algorithm;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const coll::Algorithm& a : coll::algorithms()) all.push_back({&a});
  return all;
}

std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  std::string name = std::string(coll::name_of(info.param.algorithm->collective)) + "_" +
                     info.param.algorithm->name;
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return name;
}

class EveryAlgorithm : public ::testing::TestWithParam<Case>, protected CollectiveCases {
 protected:
  void SetUp() override {
    const coll::Algorithm& a = *GetParam().algorithm;
    const std::string forced = std::string(coll::name_of(a.collective)) + ":" + a.name;
    setenv("HETCCL_ALGO", forced.c_str(), 1);
    rank = world_rank();
    ranks = world_size();
    ASSERT_EQ(hetcclCommInitMPI(&comm, MPI_COMM_WORLD, nullptr), hetcclSuccess)
        << hetcclGetLastError(nullptr);
    ASSERT_EQ(hetcclStreamCreate(&stream), hetcclSuccess);
  }
  void TearDown() override {
    EXPECT_EQ(hetcclStreamDestroy(stream), hetcclSuccess);
    EXPECT_EQ(hetcclCommDestroy(comm), hetcclSuccess);
    unsetenv("HETCCL_ALGO");
    MPI_Barrier(MPI_COMM_WORLD);
  }

  std::vector<size_t> counts() const {
    const auto n = static_cast<size_t>(ranks);
    return {0, 1, n - 1, n, n + 1, 17, 1000, 16384, 16385, 70001, 300007};
  }

  void check(const Shape& shape, const Expected& expected, const Call& run, size_t count) override {
    for (bool in_place : {false, true}) {
      for (bool on_stream : {false, true}) {
        SCOPED_TRACE("count " + std::to_string(count) + (in_place ? " in place" : "") +
                     (on_stream ? " stream" : ""));
        const auto edge = on_stream ? Guarded::Edge::kFront : Guarded::Edge::kBack;
        if (in_place) {
          run_in_place(shape, expected, run, on_stream, edge);
        } else {
          run_apart(shape, expected, run, on_stream, edge);
        }
      }
    }
  }

  hetcclResult_t launch(const Call& run, const void* send, void* recv, bool on_stream) {
    if (!on_stream) return run(send, recv, nullptr);
    const hetcclResult_t r = run(send, recv, stream);
    return r != hetcclSuccess ? r : hetcclStreamSynchronize(stream);
  }

  void run_apart(const Shape& shape, const Expected& expected, const Call& run, bool on_stream,
                 Guarded::Edge edge) {
    Guarded send(shape.send * 4, edge), recv(shape.recv * 4, edge);
    auto* s = static_cast<float*>(send.data());
    auto* r = static_cast<float*>(recv.data());
    for (size_t i = 0; i < shape.send; ++i) {
      s[i] = static_cast<float>(value(rank, shape.send_base + i));
    }
    std::fill(r, r + shape.recv, -1.f);
    send.read_only();
    EXPECT_EQ(launch(run, shape.sends ? s : nullptr, r, on_stream), hetcclSuccess)
        << hetcclGetLastError(nullptr);
    size_t wrong = 0;
    for (size_t i = 0; i < shape.recv; ++i) {
      const float want = shape.receives ? static_cast<float>(expected(i)) : -1.f;
      wrong += r[i] != want;
    }
    EXPECT_EQ(wrong, 0u);
  }

  void run_in_place(const Shape& shape, const Expected& expected, const Call& run, bool on_stream,
                    Guarded::Edge edge) {
    const size_t all = std::max(shape.in_place_send + shape.send, shape.in_place_recv + shape.recv);
    Guarded buffer(all * 4, edge);
    auto* b = static_cast<float*>(buffer.data());
    std::fill(b, b + all, -1.f);
    for (size_t i = 0; i < shape.send; ++i) {
      b[shape.in_place_send + i] = static_cast<float>(value(rank, shape.send_base + i));
    }
    const std::vector<float> before(b, b + all);
    EXPECT_EQ(launch(run, b + shape.in_place_send, b + shape.in_place_recv, on_stream),
              hetcclSuccess)
        << hetcclGetLastError(nullptr);
    size_t wrong = 0;
    for (size_t i = 0; i < all; ++i) {
      const bool ours =
          shape.receives && i >= shape.in_place_recv && i < shape.in_place_recv + shape.recv;
      const float want = ours ? static_cast<float>(expected(i - shape.in_place_recv)) : before[i];
      wrong += b[i] != want;
    }
    EXPECT_EQ(wrong, 0u);
  }

  hetcclStream_t stream = nullptr;
};

TEST_P(EveryAlgorithm, GivesTheRightResult) {
  const Collective collective = GetParam().algorithm->collective;
  for (const size_t count : counts()) {
    if (collective != Collective::kBarrier) {
      run_case(collective, count);
      continue;
    }
    EXPECT_EQ(hetcclBarrier(comm, nullptr), hetcclSuccess);
    EXPECT_EQ(hetcclBarrier(comm, stream), hetcclSuccess);
    EXPECT_EQ(hetcclStreamSynchronize(stream), hetcclSuccess);
  }
}

INSTANTIATE_TEST_SUITE_P(Registry, EveryAlgorithm, ::testing::ValuesIn(cases()), case_name);

using Collectives = World;

TEST_F(Collectives, BarrierHoldsEveryoneBack) {
  for (int last = 0; last < ranks; ++last) {
    // The shared counter lives in MPI's window, so that the order is seen from outside.
    int* cell = nullptr;
    MPI_Win window;
    MPI_Win_allocate(rank == 0 ? sizeof(int) : 0, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &cell, &window);
    if (rank == 0) *cell = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock_all(0, window);
    const int one = 1;
    if (rank == last) {
      for (int k = 0; k < 2000; ++k) sched_yield();
      MPI_Accumulate(&one, 1, MPI_INT, 0, 0, 1, MPI_INT, MPI_SUM, window);
      MPI_Win_flush(0, window);
    }
    EXPECT_EQ(hetcclBarrier(comm, nullptr), hetcclSuccess);
    int seen = -1;
    MPI_Get(&seen, 1, MPI_INT, 0, 0, 1, MPI_INT, window);
    MPI_Win_flush(0, window);
    EXPECT_EQ(seen, 1);
    MPI_Win_unlock_all(window);
    MPI_Win_free(&window);
  }
}

TEST_F(Collectives, VFormsWithEmptyBlocks) {
  const auto n = static_cast<size_t>(ranks);
  for (size_t scale : {size_t{1}, size_t{5000}, size_t{40001}}) {
    std::vector<size_t> counts(n), displacements(n);
    size_t total = 0;
    for (size_t r = 0; r < n; ++r) {
      counts[r] = r % 3 == 1 ? 0 : (r + 1) * scale;
      displacements[r] = total + r * 3;  // gaps between the blocks
      total += counts[r];
    }
    const size_t mine = counts[static_cast<size_t>(rank)];
    std::vector<int32_t> send(mine), recv(total + 3 * n, -7);
    for (size_t i = 0; i < mine; ++i) send[i] = static_cast<int32_t>(value(rank, i));
    EXPECT_EQ(hetcclAllGatherv(send.data(), mine, recv.data(), counts.data(), displacements.data(),
                               hetcclInt32, comm, nullptr),
              hetcclSuccess)
        << hetcclGetLastError(nullptr);
    std::vector<int32_t> want(total + 3 * n, -7);
    for (size_t r = 0; r < n; ++r) {
      for (size_t i = 0; i < counts[r]; ++i) {
        want[displacements[r] + i] = static_cast<int32_t>(value(static_cast<int>(r), i));
      }
    }
    EXPECT_EQ(recv, want);

    std::vector<int32_t> all(total), block(mine + 1, -7);
    for (size_t i = 0; i < total; ++i) all[i] = static_cast<int32_t>(value(rank, i));
    EXPECT_EQ(hetcclReduceScatterv(all.data(), block.data(), counts.data(), hetcclInt32, hetcclSum,
                                   comm, nullptr),
              hetcclSuccess)
        << hetcclGetLastError(nullptr);
    size_t before = 0;
    for (int r = 0; r < rank; ++r) before += counts[static_cast<size_t>(r)];
    for (size_t i = 0; i < mine; ++i) {
      int32_t sum = 0;
      for (int r = 0; r < ranks; ++r) sum += static_cast<int32_t>(value(r, before + i));
      ASSERT_EQ(block[i], sum) << i;
    }
    EXPECT_EQ(block[mine], -7);
  }
}

TEST_F(Collectives, LibraryMemoryIsReadInPlaceAndRight) {
  constexpr size_t kCount = 500000;
  void *s = nullptr, *r = nullptr;
  ASSERT_EQ(hetcclMemAlloc(&s, kCount * 4, hetcclMemoryHost), hetcclSuccess);
  ASSERT_EQ(hetcclMemAlloc(&r, kCount * 4, hetcclMemoryHost), hetcclSuccess);
  auto *send = static_cast<float*>(s), *recv = static_cast<float*>(r);
  for (int round = 0; round < 3; ++round) {
    for (size_t i = 0; i < kCount; ++i) send[i] = static_cast<float>(value(rank, i + round));
    EXPECT_EQ(hetcclAllReduce(send, recv, kCount, hetcclFloat32, hetcclSum, comm, nullptr),
              hetcclSuccess);
    size_t wrong = 0;
    for (size_t i = 0; i < kCount; ++i) {
      int64_t sum = 0;
      for (int k = 0; k < ranks; ++k) sum += value(k, i + round);
      wrong += recv[i] != static_cast<float>(sum);
    }
    EXPECT_EQ(wrong, 0u);
    EXPECT_EQ(hetcclAllReduce(recv, recv, kCount, hetcclFloat32, hetcclMax, comm, nullptr),
              hetcclSuccess);
  }
  EXPECT_EQ(hetcclBarrier(comm, nullptr), hetcclSuccess);
  EXPECT_EQ(hetcclMemFree(s), hetcclSuccess);
  EXPECT_EQ(hetcclMemFree(r), hetcclSuccess);
}

TEST_F(Collectives, BitsAreEqualOnAllRanks) {
  for (const char* algorithm : {"", "*:ring", "*:direct"}) {
    setenv("HETCCL_ALGO", algorithm, 1);
    hetcclComm_t c = nullptr;
    ASSERT_EQ(hetcclCommInitMPI(&c, MPI_COMM_WORLD, nullptr), hetcclSuccess);
    for (hetcclDataType_t type : {hetcclFloat32, hetcclFloat16, hetcclBfloat16}) {
      const size_t width = type == hetcclFloat32 ? 4 : 2, count = 20011;
      std::vector<uint8_t> send(count * width), recv(count * width), first(count * width);
      uint32_t state = 12345u + static_cast<uint32_t>(rank) * 7919u;
      for (size_t i = 0; i < count; ++i) {
        state = state * 1664525u + 1013904223u;
        if (type == hetcclFloat32) {
          const float f = static_cast<float>(static_cast<int32_t>(state)) * 1e-5f;
          std::memcpy(&send[i * 4], &f, 4);
        } else {
          const uint16_t bits = static_cast<uint16_t>((state >> 16 & 0x83ff) | 0x3c00);
          std::memcpy(&send[i * 2], &bits, 2);
        }
      }
      EXPECT_EQ(hetcclAllReduce(send.data(), recv.data(), count, type, hetcclSum, c, nullptr),
                hetcclSuccess)
          << hetcclGetLastError(nullptr);
      first = recv;
      MPI_Bcast(first.data(), static_cast<int>(first.size()), MPI_BYTE, 0, MPI_COMM_WORLD);
      EXPECT_EQ(first, recv);
      EXPECT_EQ(hetcclAllReduce(send.data(), recv.data(), count, type, hetcclSum, c, nullptr),
                hetcclSuccess);
      EXPECT_EQ(first, recv) << "from run to run";
    }
    EXPECT_EQ(hetcclCommDestroy(c), hetcclSuccess);
  }
  unsetenv("HETCCL_ALGO");
}

}  // namespace
}  // namespace hetccl::test

// Prefix reductions: every operator and several types in every algorithm, the same bits from run to
// run, sums in rank order where they must be, and one rounding.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <string>

#include "lib/coll/registry.h"
#include "test/mpi/mpi_test.h"

namespace hetccl::test {
namespace {

using coll::Collective;

class Scans : public ::testing::TestWithParam<const coll::Algorithm*> {
 protected:
  void SetUp() override { open(false); }
  void TearDown() override { close(); }
  void open(bool reproducible) {
    const coll::Algorithm& a = *GetParam();
    setenv("HETCCL_ALGO", (std::string(coll::name_of(a.collective)) + ":" + a.name).c_str(), 1);
    if (reproducible) setenv("HETCCL_REPRODUCIBLE", "1", 1);
    ASSERT_EQ(hetcclCommInitMPI(&comm, MPI_COMM_WORLD, nullptr), hetcclSuccess)
        << hetcclGetLastError(nullptr);
    unsetenv("HETCCL_ALGO");
    unsetenv("HETCCL_REPRODUCIBLE");
  }
  void close() {
    EXPECT_EQ(hetcclCommDestroy(comm), hetcclSuccess);
    MPI_Barrier(MPI_COMM_WORLD);
  }

  bool inclusive() const { return GetParam()->collective == Collective::kScan; }
  // Ranks whose contributions this rank gets.
  int below() const { return inclusive() ? rank + 1 : rank; }
  hetcclResult_t run(const void* send, void* recv, size_t count, hetcclDataType_t type,
                     hetcclRedOp_t op) {
    return inclusive() ? hetcclScan(send, recv, count, type, op, comm, nullptr)
                       : hetcclExscan(send, recv, count, type, op, comm, nullptr);
  }

  template <typename T>
  void expect_fold(hetcclDataType_t type, hetcclRedOp_t op, const std::function<T(T, T)>& fold) {
    for (const size_t count : {size_t{1}, size_t{33}, size_t{50001}}) {
      const auto give = [](int r, size_t i) { return static_cast<T>(value(r, i) % 3 + 1); };
      std::vector<T> in(count), out(count, T{99});
      for (size_t i = 0; i < count; ++i) in[i] = give(rank, i);
      EXPECT_EQ(run(in.data(), out.data(), count, type, op), hetcclSuccess)
          << hetcclGetLastError(nullptr);
      size_t wrong = 0;
      for (size_t i = 0; i < count; ++i) {
        T want = below() > 0 ? give(0, i) : T{99};
        for (int r = 1; r < below(); ++r) want = fold(want, give(r, i));
        wrong += out[i] != want;
      }
      EXPECT_EQ(wrong, 0u) << "operator " << op << " type " << type << " count " << count;
    }
  }

  hetcclComm_t comm = nullptr;
  int rank = world_rank(), ranks = world_size();
};

TEST_P(Scans, OperatorsAndTypes) {
  using I = int32_t;
  using U = uint8_t;
  expect_fold<I>(hetcclInt32, hetcclSum, [](I a, I b) { return a + b; });
  expect_fold<I>(hetcclInt32, hetcclProd, [](I a, I b) { return a * b; });
  expect_fold<I>(hetcclInt32, hetcclMin, [](I a, I b) { return std::min(a, b); });
  expect_fold<I>(hetcclInt32, hetcclBXor, [](I a, I b) { return a ^ b; });
  expect_fold<U>(hetcclUint8, hetcclSum, [](U a, U b) { return static_cast<U>(a + b); });
  expect_fold<U>(hetcclUint8, hetcclMax, [](U a, U b) { return std::max(a, b); });
  expect_fold<double>(hetcclFloat64, hetcclSum, [](double a, double b) { return a + b; });
}

TEST_P(Scans, AverageIsRefused) {
  float x = 1, y = 0;
  EXPECT_EQ(run(&x, &y, 1, hetcclFloat32, hetcclAvg), hetcclInvalidArgument);
  EXPECT_NE(std::string(hetcclGetLastError(comm)).find("prefix"), std::string::npos);
  EXPECT_EQ(y, 0.f);
}

std::vector<float> uneven(int rank, size_t count) {
  std::vector<float> v(count);
  uint32_t state = 777u + static_cast<uint32_t>(rank) * 7919u;
  for (float& f : v) {
    state = state * 1664525u + 1013904223u;
    f = static_cast<float>(static_cast<int32_t>(state)) * (state % 7 == 0 ? 1e-3f : 1e-9f);
  }
  return v;
}

TEST_P(Scans, SameBitsFromRunToRunAndInPlace) {
  const std::vector<float> in = uneven(rank, 30011);
  std::vector<float> first(in.size()), second = in;
  EXPECT_EQ(run(in.data(), first.data(), in.size(), hetcclFloat32, hetcclSum), hetcclSuccess);
  EXPECT_EQ(run(second.data(), second.data(), in.size(), hetcclFloat32, hetcclSum), hetcclSuccess);
  EXPECT_EQ(std::memcmp(below() > 0 ? first.data() : in.data(), second.data(), in.size() * 4), 0);
}

TEST_P(Scans, ReproducibleSumsAreInRankOrder) {
  close();
  open(true);
  for (const size_t count : {size_t{5}, size_t{30011}}) {
    const std::vector<float> in = uneven(rank, count);
    std::vector<float> out(count), want = uneven(0, count);
    EXPECT_EQ(run(in.data(), out.data(), count, hetcclFloat32, hetcclSum), hetcclSuccess);
    if (below() == 0) continue;
    for (int r = 1; r < below(); ++r) {
      const std::vector<float> next = uneven(r, count);
      for (size_t i = 0; i < count; ++i) want[i] += next[i];
    }
    EXPECT_EQ(std::memcmp(out.data(), want.data(), count * 4), 0) << count;
  }
}

// 1 + many times 2^-9: in bfloat16 each single addition would be lost, the sum is not.
TEST_P(Scans, NarrowFloatsAreRoundedOnce) {
  constexpr uint16_t kOne = 0x3f80, kTiny = 0x3b00;
  const std::vector<uint16_t> in(1000, rank == 0 ? kOne : kTiny);
  std::vector<uint16_t> out(in.size());
  EXPECT_EQ(run(in.data(), out.data(), in.size(), hetcclBfloat16, hetcclSum), hetcclSuccess);
  if (below() == 0) return;
  const float sum = 1.f + static_cast<float>(below() - 1) / 512.f;
  uint32_t bits = 0;
  std::memcpy(&bits, &sum, 4);
  const auto want = static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  for (uint16_t got : out) ASSERT_EQ(got, want);
}

// A rank's NaN reaches those that count it, and no other.
TEST_P(Scans, NanIsFoundByThoseAboveOnly) {
  for (int bad = 0; bad < ranks; ++bad) {
    const float x = rank == bad ? std::numeric_limits<float>::quiet_NaN() : 1.f;
    float y = 0;
    EXPECT_EQ(run(&x, &y, 1, hetcclFloat32, hetcclMax), hetcclSuccess);
    EXPECT_EQ(std::isnan(y), bad < below());
  }
}

std::vector<const coll::Algorithm*> scans() {
  std::vector<const coll::Algorithm*> rows;
  for (const coll::Algorithm& a : coll::algorithms()) {
    if (a.collective == Collective::kScan || a.collective == Collective::kExscan) {
      rows.push_back(&a);
    }
  }
  return rows;
}
INSTANTIATE_TEST_SUITE_P(Registry, Scans, ::testing::ValuesIn(scans()), [](const auto& info) {
  return std::string(coll::name_of(info.param->collective)) + "_" + info.param->name;
});

}  // namespace
}  // namespace hetccl::test

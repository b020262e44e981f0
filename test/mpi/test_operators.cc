// Operators made at run time: scaled sums and functions of the user's, over every collective that
// reduces, in place and not, in streams; what is refused; and ranks that disagree.
#include <atomic>
#include <cmath>
#include <complex>
#include <cstring>
#include <string>

#include "test/mpi/mpi_test.h"

namespace hetccl::test {
namespace {

using Operators = World;

// x -> a x + b. Composition does not commute.
struct Affine {
  int32_t a, b;
  bool operator==(const Affine&) const = default;
};
Affine compose(const Affine& lower, const Affine& upper) {
  return {lower.a * upper.a, lower.a * upper.b + lower.b};
}
void compose_all(const void* in, void* inout, size_t count, hetcclDataType_t type, void* ctx) {
  if (type == hetcclInt64) ++*static_cast<std::atomic<int>*>(ctx);
  const auto* lower = static_cast<const Affine*>(in);
  auto* upper = static_cast<Affine*>(inout);
  for (size_t i = 0; i < count; ++i) upper[i] = compose(lower[i], upper[i]);
}
static_assert(sizeof(Affine) == sizeof(int64_t));

// What ranks 0 to n-1 give together: (2,r) each; (32,98) of five, (8,10) of three.
Affine of_ranks(int n, int32_t add = 0) {
  Affine all{1, 0};
  for (int r = 0; r < n; ++r) all = compose(all, {2, r + add});
  return all;
}

class UserOperators : public World {
 protected:
  void SetUp() override {
    World::SetUp();
    ASSERT_EQ(hetcclRedOpCreateUser(&op, compose_all, &calls, 0, comm), hetcclSuccess);
    EXPECT_GE(op, hetcclNumOps);
  }
  void TearDown() override {
    EXPECT_EQ(hetcclRedOpDestroy(op, comm), hetcclSuccess);
    World::TearDown();
  }
  hetcclRedOp_t op = hetcclSum;
  std::atomic<int> calls{0};
};

TEST_F(UserOperators, KeepTheOrderOfRanks) {
  EXPECT_EQ(of_ranks(5), (Affine{32, 98}));
  EXPECT_EQ(of_ranks(3), (Affine{8, 10}));
  for (size_t count : {1u, 3u, 4096u, 100000u}) {
    for (bool in_place : {false, true}) {
      std::vector<Affine> in(count, {2, rank}), out(count, {0, 0});
      if (in_place) out = in;
      const void* from = in_place ? out.data() : in.data();
      EXPECT_EQ(hetcclAllReduce(from, out.data(), count, hetcclInt64, op, comm, nullptr),
                hetcclSuccess)
          << hetcclGetLastError(comm);
      EXPECT_EQ(out, std::vector<Affine>(count, of_ranks(ranks))) << count;
    }
  }
  if (ranks > 1) {
    EXPECT_GT(calls, 0);
  }
}

TEST_F(UserOperators, ReduceToEveryRoot) {
  for (int root = 0; root < ranks; ++root) {
    for (size_t count : {1u, 4096u}) {
      std::vector<Affine> in(count), out(count, {7, 7});
      for (size_t i = 0; i < count; ++i) in[i] = {2, rank + static_cast<int32_t>(i % 5)};
      EXPECT_EQ(hetcclReduce(in.data(), out.data(), count, hetcclInt64, op, root, comm, nullptr),
                hetcclSuccess);
      size_t wrong = 0;
      for (size_t i = 0; i < count; ++i) {
        const Affine want =
            rank == root ? of_ranks(ranks, static_cast<int32_t>(i % 5)) : Affine{7, 7};
        wrong += out[i] != want;
      }
      EXPECT_EQ(wrong, 0u) << "root " << root << ", count " << count;
    }
  }
}

TEST_F(UserOperators, PrefixesAndBlocks) {
  for (size_t count : {1u, 1000u}) {
    std::vector<Affine> in(count, {2, rank}), out(count, {7, 7});
    EXPECT_EQ(hetcclScan(in.data(), out.data(), count, hetcclInt64, op, comm, nullptr),
              hetcclSuccess);
    EXPECT_EQ(out, std::vector<Affine>(count, of_ranks(rank + 1)));
    out.assign(count, {7, 7});
    EXPECT_EQ(hetcclExscan(in.data(), out.data(), count, hetcclInt64, op, comm, nullptr),
              hetcclSuccess);
    EXPECT_EQ(out, std::vector<Affine>(count, rank == 0 ? Affine{7, 7} : of_ranks(rank)));
    std::vector<Affine> blocks(count * static_cast<size_t>(ranks), {2, rank});
    EXPECT_EQ(hetcclReduceScatter(blocks.data(), out.data(), count, hetcclInt64, op, comm, nullptr),
              hetcclSuccess);
    EXPECT_EQ(out, std::vector<Affine>(count, of_ranks(ranks)));
  }
}

TEST_F(UserOperators, InStreamsAndDestroyedMeanwhile) {
  hetcclStream_t stream = nullptr;
  ASSERT_EQ(hetcclStreamCreate(&stream), hetcclSuccess);
  constexpr size_t kCount = 50000;
  std::vector<Affine> in(kCount, {2, rank});
  std::vector<std::vector<Affine>> out(4, std::vector<Affine>(kCount));
  hetcclRedOp_t second = hetcclSum;
  EXPECT_EQ(hetcclRedOpCreateUser(&second, compose_all, &calls, 0, comm), hetcclSuccess);
  EXPECT_NE(second, op);
  for (auto& o : out) {
    EXPECT_EQ(hetcclAllReduce(in.data(), o.data(), kCount, hetcclInt64, second, comm, stream),
              hetcclSuccess);
  }
  EXPECT_EQ(hetcclRedOpDestroy(second, comm), hetcclSuccess);
  EXPECT_EQ(hetcclStreamSynchronize(stream), hetcclSuccess);
  for (auto& o : out) EXPECT_EQ(o, std::vector<Affine>(kCount, of_ranks(ranks)));
  EXPECT_EQ(hetcclStreamDestroy(stream), hetcclSuccess);
}

// A padded structure that is copied whole, between guard pages.
struct Keyed {
  uint64_t key;
  int32_t from;
};
static_assert(sizeof(Keyed) == 16);
void keep_smaller_first(const void* in, void* inout, size_t count, hetcclDataType_t, void*) {
  const auto* a = static_cast<const Keyed*>(in);
  auto* b = static_cast<Keyed*>(inout);
  for (size_t i = 0; i < count; ++i) {
    if (a[i].key <= b[i].key) b[i] = a[i];
  }
}

TEST_F(Operators, WholeStructuresBetweenGuardPages) {
  hetcclRedOp_t op = hetcclSum;
  EXPECT_EQ(hetcclRedOpCreateUser(&op, keep_smaller_first, nullptr, 1, comm), hetcclSuccess);
  for (size_t count : {1u, 2u, 1000u}) {
    for (auto edge : {Guarded::Edge::kFront, Guarded::Edge::kBack}) {
      Guarded in(count * sizeof(Keyed), edge), out(count * sizeof(Keyed), edge);
      auto* mine = static_cast<Keyed*>(in.data());
      for (size_t i = 0; i < count; ++i) {
        mine[i].key = (static_cast<size_t>(rank) + i) % static_cast<size_t>(ranks);
        mine[i].from = rank;
      }
      in.read_only();
      EXPECT_EQ(hetcclAllReduce(in.data(), out.data(), count, hetcclComplex128, op, comm, nullptr),
                hetcclSuccess);
      size_t wrong = 0;
      for (size_t i = 0; i < count; ++i) {
        const Keyed& got = static_cast<Keyed*>(out.data())[i];
        const int want =
            static_cast<int>((static_cast<size_t>(ranks) - i % static_cast<size_t>(ranks)) %
                             static_cast<size_t>(ranks));
        wrong += got.key != 0 || got.from != want;
      }
      EXPECT_EQ(wrong, 0u) << count;
    }
  }
  EXPECT_EQ(hetcclRedOpDestroy(op, comm), hetcclSuccess);
}

// ---- scaled sums

template <typename T>
void check_premulsum(hetcclComm_t comm, int ranks, int rank, hetcclDataType_t type, T scalar) {
  hetcclRedOp_t op = hetcclSum;
  ASSERT_EQ(hetcclRedOpCreatePreMulSum(&op, &scalar, type, comm), hetcclSuccess);
  for (size_t count : {1u, 7u, 1000u, 70000u}) {
    for (bool in_place : {false, true}) {
      std::vector<T> in(count), out(count), want(count);
      for (size_t i = 0; i < count; ++i) {
        in[i] = static_cast<T>(value(rank, i));
        for (int r = 0; r < ranks; ++r) {
          want[i] = static_cast<T>(want[i] + static_cast<T>(static_cast<T>(value(r, i)) * scalar));
        }
      }
      if (in_place) out = in;
      EXPECT_EQ(hetcclAllReduce(in_place ? out.data() : in.data(), out.data(), count, type, op,
                                comm, nullptr),
                hetcclSuccess)
          << hetcclGetLastError(comm);
      EXPECT_EQ(out, want) << "type " << type << ", count " << count;
      std::vector<T> prefix(count), want_prefix(count);
      for (size_t i = 0; i < count; ++i) {
        for (int r = 0; r <= rank; ++r) {
          want_prefix[i] =
              static_cast<T>(want_prefix[i] + static_cast<T>(static_cast<T>(value(r, i)) * scalar));
        }
      }
      EXPECT_EQ(hetcclScan(in.data(), prefix.data(), count, type, op, comm, nullptr),
                hetcclSuccess);
      EXPECT_EQ(prefix, want_prefix) << "type " << type << ", count " << count;
    }
  }
  EXPECT_EQ(hetcclRedOpDestroy(op, comm), hetcclSuccess);
}

TEST_F(Operators, ScaledSumsOfEveryKindOfNumber) {
  check_premulsum<int8_t>(comm, ranks, rank, hetcclInt8, -3);
  check_premulsum<uint16_t>(comm, ranks, rank, hetcclUint16, 40000);  // wraps
  check_premulsum<int32_t>(comm, ranks, rank, hetcclInt32, -7);
  check_premulsum<uint64_t>(comm, ranks, rank, hetcclUint64, ~uint64_t{0});
  check_premulsum<float>(comm, ranks, rank, hetcclFloat32, 0.25f);
  check_premulsum<double>(comm, ranks, rank, hetcclFloat64, -1.5);
  check_premulsum<std::complex<float>>(comm, ranks, rank, hetcclComplex64, {0.5f, -2.f});
  check_premulsum<std::complex<double>>(comm, ranks, rank, hetcclComplex128, {0, 1});
}

uint16_t to_bfloat16(float f) {
  uint32_t bits;
  std::memcpy(&bits, &f, sizeof bits);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
float from_bfloat16(uint16_t b) {
  const uint32_t bits = static_cast<uint32_t>(b) << 16;
  float f;
  std::memcpy(&f, &bits, sizeof f);
  return f;
}

// Rounded more than once, 1/n of what the ranks give loses bits that one rounding keeps. Sums of
// these contributions are exact in float32, so every order gives the same.
TEST_F(Operators, ScaledNarrowFloatsAreRoundedOnce) {
  const uint16_t scalar = to_bfloat16(1.0078125f);  // 1 + 2^-7: its products need 16 bits
  hetcclRedOp_t op = hetcclSum;
  ASSERT_EQ(hetcclRedOpCreatePreMulSum(&op, &scalar, hetcclBfloat16, comm), hetcclSuccess);
  for (size_t count : {1u, 100u, 70000u}) {
    std::vector<uint16_t> in(count), out(count);
    size_t wrong = 0, twice = 0;
    const auto contribution = [](int r, size_t i) {
      return to_bfloat16(1.f + static_cast<float>((i * 3 + static_cast<size_t>(r)) % 64) / 128);
    };
    for (size_t i = 0; i < count; ++i) in[i] = contribution(rank, i);
    EXPECT_EQ(hetcclAllReduce(in.data(), out.data(), count, hetcclBfloat16, op, comm, nullptr),
              hetcclSuccess);
    for (size_t i = 0; i < count; ++i) {
      float exact = 0, rounded = 0;
      for (int r = 0; r < ranks; ++r) {
        const float product = from_bfloat16(contribution(r, i)) * from_bfloat16(scalar);
        exact += product;
        rounded += from_bfloat16(to_bfloat16(product));
      }
      wrong += out[i] != to_bfloat16(exact);
      twice += to_bfloat16(exact) != to_bfloat16(rounded);
    }
    EXPECT_EQ(wrong, 0u) << count;
    if (ranks > 2 && count > 1000) {
      EXPECT_GT(twice, 0u) << "the test could not tell";
    }
  }
  EXPECT_EQ(hetcclRedOpDestroy(op, comm), hetcclSuccess);
}

TEST_F(Operators, ScaleToNothingAndNaN) {
  const float zero = 0;
  hetcclRedOp_t op = hetcclSum;
  ASSERT_EQ(hetcclRedOpCreatePreMulSum(&op, &zero, hetcclFloat32, comm), hetcclSuccess);
  std::vector<float> in(100, rank == ranks - 1 ? INFINITY : 5.f), out(100, 1.f);
  EXPECT_EQ(hetcclAllReduce(in.data(), out.data(), 100, hetcclFloat32, op, comm, nullptr),
            hetcclSuccess);
  for (float f : out) {
    uint32_t bits;
    std::memcpy(&bits, &f, sizeof bits);
    EXPECT_EQ(bits, 0x7fc00000u);
  }
  EXPECT_EQ(hetcclRedOpDestroy(op, comm), hetcclSuccess);
}

// ---- refusals

TEST_F(Operators, RefuseWhatIsNotTheirs) {
  const float half = 0.5f;
  hetcclRedOp_t op = hetcclMax;
  EXPECT_EQ(hetcclRedOpCreatePreMulSum(nullptr, &half, hetcclFloat32, comm), hetcclInvalidArgument);
  EXPECT_EQ(hetcclRedOpCreatePreMulSum(&op, nullptr, hetcclFloat32, comm), hetcclInvalidArgument);
  EXPECT_EQ(hetcclRedOpCreatePreMulSum(&op, &half, hetcclBool, comm), hetcclInvalidArgument);
  EXPECT_EQ(hetcclRedOpCreatePreMulSum(&op, &half, hetcclFloatInt, comm), hetcclInvalidArgument);
  EXPECT_EQ(hetcclRedOpCreatePreMulSum(&op, &half, hetcclNumTypes, comm), hetcclInvalidArgument);
  EXPECT_EQ(hetcclRedOpCreateUser(&op, nullptr, nullptr, 1, comm), hetcclInvalidArgument);
  EXPECT_EQ(hetcclRedOpCreatePreMulSum(&op, &half, hetcclFloat32, nullptr), hetcclInvalidArgument);
  EXPECT_EQ(op, hetcclMax);  // outputs are written on success only
  EXPECT_EQ(hetcclRedOpDestroy(hetcclSum, comm), hetcclInvalidArgument);
  EXPECT_EQ(hetcclRedOpDestroy(hetcclNumOps, comm), hetcclInvalidArgument);

  ASSERT_EQ(hetcclRedOpCreatePreMulSum(&op, &half, hetcclFloat32, comm), hetcclSuccess);
  double d = 1, d_out = 0;
  EXPECT_EQ(hetcclAllReduce(&d, &d_out, 1, hetcclFloat64, op, comm, nullptr),
            hetcclInvalidArgument);
  hetcclComm_t other = nullptr;
  ASSERT_EQ(hetcclCommDup(comm, &other), hetcclSuccess);
  float f = 1, f_out = 0;
  EXPECT_EQ(hetcclAllReduce(&f, &f_out, 1, hetcclFloat32, op, other, nullptr),
            hetcclInvalidArgument);
  EXPECT_EQ(hetcclRedOpDestroy(op, other), hetcclInvalidArgument);
  EXPECT_EQ(hetcclCommDestroy(other), hetcclSuccess);
  // The communicator is as good as before, and the handle is not given again.
  EXPECT_EQ(hetcclAllReduce(&f, &f_out, 1, hetcclFloat32, op, comm, nullptr), hetcclSuccess);
  EXPECT_EQ(f_out, 0.5f * static_cast<float>(ranks));
  EXPECT_EQ(hetcclRedOpDestroy(op, comm), hetcclSuccess);
  EXPECT_EQ(hetcclRedOpDestroy(op, comm), hetcclInvalidArgument);
  EXPECT_EQ(hetcclAllReduce(&f, &f_out, 1, hetcclFloat32, op, comm, nullptr),
            hetcclInvalidArgument);
  hetcclRedOp_t next = op;
  EXPECT_EQ(hetcclRedOpCreatePreMulSum(&next, &half, hetcclFloat32, comm), hetcclSuccess);
  EXPECT_NE(next, op);
  EXPECT_EQ(hetcclRedOpDestroy(next, comm), hetcclSuccess);
}

TEST_F(Operators, AnotherScalarOnOneRankIsFound) {
  if (ranks == 1) GTEST_SKIP() << "one rank agrees with itself";
  hetcclComm_t c = nullptr;
  ASSERT_EQ(hetcclCommDup(comm, &c), hetcclSuccess);
  const float scalar = rank == 0 ? 0.5f : 0.25f;
  hetcclRedOp_t op = hetcclSum;
  ASSERT_EQ(hetcclRedOpCreatePreMulSum(&op, &scalar, hetcclFloat32, c), hetcclSuccess);
  std::vector<float> in(1000, 1.f), out(1000);
  hetcclResult_t result = hetcclSuccess;
  for (int k = 0; k < 50 && result == hetcclSuccess; ++k) {
    result = hetcclAllReduce(in.data(), out.data(), in.size(), hetcclFloat32, op, c, nullptr);
  }
  EXPECT_EQ(result, hetcclInvalidUsage);
  EXPECT_NE(std::string(hetcclGetLastError(c)).find("premulsum"), std::string::npos)
      << hetcclGetLastError(c);
  MPI_Barrier(MPI_COMM_WORLD);
  EXPECT_EQ(hetcclCommDestroy(c), hetcclSuccess);
}

}  // namespace
}  // namespace hetccl::test

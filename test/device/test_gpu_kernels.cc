// The GPUs' kernels on the host, against the host device: every type and operator, with blocks of
// 32 and of 64 threads that run forwards and backwards. What it proves is the source: the bits that
// a GPU's own compiler makes of it need a GPU.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "lib/device/gpu/compiler.h"
#include "lib/device/gpu/launch.h"
#include "test/device/reference.h"

namespace hetccl::device {
namespace {

using reference::Bytes;

constexpr size_t kMargin = 64;
constexpr uint8_t kUntouched = 0xa5;

// Bytes that end where a page without access begins, or `behind` bytes ahead of it, with a margin
// on both sides.
class Guarded {
 public:
  Guarded() {
    const size_t page = sysconf(_SC_PAGESIZE);
    base_ = static_cast<uint8_t*>(
        mmap(nullptr, kBytes + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT_EQ(mprotect(base_ + kBytes, page, PROT_NONE), 0);
  }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  ~Guarded() { munmap(base_, kBytes + sysconf(_SC_PAGESIZE)); }

  uint8_t* place(size_t bytes, size_t behind) {
    at_ = base_ + kBytes - behind - bytes;
    bytes_ = bytes;
    std::fill(at_ - kMargin, base_ + kBytes, kUntouched);
    return at_;
  }
  bool margins_untouched() const {
    const auto untouched = [](uint8_t byte) { return byte == kUntouched; };
    return std::all_of(at_ - kMargin, at_, untouched) &&
           std::all_of(at_ + bytes_, base_ + kBytes, untouched);
  }

 private:
  static constexpr size_t kBytes = 1 << 17;
  uint8_t* base_;
  uint8_t* at_ = nullptr;
  size_t bytes_ = 0;
};

struct Shape {
  enum Sources { kNarrow, kWide, kMixed };

  size_t sources;
  size_t count;
  Sources kind = kNarrow;
  bool finalize = true;
  size_t shift = 0;       // of the buffers, in units of the type's alignment
  bool together = false;  // all are shifted alike; else each by more than the one before
  int in_place = -1;      // the source that is the destination
  int max_blocks = 2;
  int ranks = 3;
};

std::ostream& operator<<(std::ostream& out, const Shape& s) {
  return out << s.sources << " sources of " << s.count << ", kind " << s.kind << ", finalize "
             << s.finalize << ", shift " << s.shift << (s.together ? " together" : " apart")
             << ", in place " << s.in_place << ", blocks " << s.max_blocks << ", ranks " << s.ranks
             << ", lanes " << shim::lanes << (shim::backwards ? " backwards" : "");
}

constexpr size_t kFew = 9;  // sources in guarded memory of their own; further ones share

class GpuKernels : public testing::TestWithParam<std::tuple<hetcclDataType_t, hetcclRedOp_t>> {
 protected:
  void SetUp() override {
    std::tie(type_, op_) = GetParam();
    host_ = *host_device("portable");
    shim::lanes = 32;
    shim::backwards = false;
    widens_ = width(true) != width(false);
  }

  size_t width(bool wide) const { return wide ? accumulator_size(type_, op_) : size_of(type_); }

  // Random data are made once, and calls take parts of them.
  const uint8_t* data(bool wide, size_t count) {
    Bytes& pool = pools_[wide];
    constexpr size_t kPool = 4096;
    if (pool.empty()) pool = reference::random_data(type_, op_, wide, kPool, random_);
    return pool.data() + random_() % (kPool - count) * width(wide);
  }

  bool wide_source(const Shape& shape, size_t s) {
    if (!widens_) return false;
    if (static_cast<int>(s) == shape.in_place) return !shape.finalize;
    return shape.kind == Shape::kWide || (shape.kind == Shape::kMixed && random_() % 2 == 0);
  }

  // The kernels' call, and the same call of the host's on copies.
  void check(const Shape& shape) {
    const size_t unit = shape.shift * alignment_of(type_);
    // Accumulators are aligned as such, or to 8 bytes.
    const size_t wide_unit = shape.shift * std::min<size_t>(width(true), 8);
    const bool wide = widens_ && !shape.finalize;
    const size_t bytes = shape.count * width(wide);
    uint8_t* to = destination_.place(bytes, wide ? wide_unit : unit);
    std::vector<KernelSource> sources;
    std::vector<Source> copies;
    for (size_t s = 0; s < shape.sources; ++s) {
      const bool wide_from = wide_source(shape, s);
      const uint8_t* from = data(wide_from, shape.count);
      const size_t from_bytes = shape.count * width(wide_from);
      copies.push_back({from, wide_from});
      if (static_cast<int>(s) == shape.in_place) {
        std::copy_n(from, from_bytes, to);
        sources.push_back({to, wide_from});
      } else if (s < kFew) {
        const size_t times = shape.together ? 1 : s + 2;
        uint8_t* at =
            memory_[s].place(from_bytes, (wide_from && widens_ ? wide_unit : unit) * times);
        std::copy_n(from, from_bytes, at);
        sources.push_back({at, wide_from});
      } else {
        sources.push_back({from, wide_from});
      }
    }
    Bytes expected(bytes);
    host_->combine({type_, op_, shape.ranks},
                   {expected.data(), wide, shape.finalize, copies, shape.count});

    Launch launch = {
        {to, sources.data(), sources.size(), shape.count, shape.ranks, wide, shape.finalize},
        type_,
        op_,
        nullptr,
        shape.max_blocks,
        nullptr};
    const size_t scratch = scratch_bytes(launch);
    if (scratch != 0) launch.scratch = scratch_.place(scratch, 0);
    shim::blocks_used = 0;
    ASSERT_EQ(launch_combine(launch), 0) << shape;
    ASSERT_EQ(reference::difference({type_, op_, shape.ranks}, expected, to, wide, !shape.finalize),
              "")
        << shape;
    ASSERT_TRUE(destination_.margins_untouched()) << shape;
    ASSERT_EQ(shim::misaligned, 0u) << shape;
    ASSERT_LE(shim::blocks_used, static_cast<unsigned>(shape.max_blocks)) << shape;
    ASSERT_TRUE(scratch == 0 || scratch_.margins_untouched()) << shape;
    for (size_t s = 0; s < std::min(shape.sources, kFew); ++s) {
      if (static_cast<int>(s) == shape.in_place || shape.count == 0) continue;
      ASSERT_EQ(std::memcmp(sources[s].data, copies[s].data, shape.count * width(copies[s].wide)),
                0)
          << "source " << s << " was written, " << shape;
    }
  }

  // With 32 and with 64 threads a block, on one block and on several; the other ways to run go
  // round, one further at every call.
  void check_next(Shape shape) {
    for (unsigned lanes : {32, 64}) {
      shim::lanes = lanes;
      for (int several = 0; several < 2; ++several) {
        shim::backwards = turn_ % 3 == 1;
        constexpr int kBlocks[] = {2, 3, 7, 1000};
        shape.max_blocks = several != 0 ? kBlocks[turn_ % 4] : 1;
        constexpr int kRanks[] = {1, 3, 4, 7, 1000};
        shape.ranks = kRanks[turn_ % 5];
        ++turn_;
        check(shape);
        if (HasFatalFailure()) return;
      }
    }
  }

  hetcclDataType_t type_;
  hetcclRedOp_t op_;
  Device* host_ = nullptr;
  bool widens_ = false;
  std::mt19937_64 random_{11};
  size_t turn_ = 0;
  Bytes pools_[2];
  Guarded destination_, scratch_, memory_[kFew];
};

constexpr size_t kCounts[] = {0, 1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 257, 1000};
constexpr Shape::Sources kKinds[] = {Shape::kNarrow, Shape::kWide, Shape::kMixed};

TEST_P(GpuKernels, GiveTheHostsBits) {
  for (Shape::Sources kind : kKinds) {
    if (!widens_ && kind != Shape::kNarrow) continue;
    for (bool finalize : {true, false}) {
      for (size_t sources : {1, 2, 3, 5}) {
        for (size_t count : kCounts) {
          for (size_t shift : {0, 1, 3, 7}) {
            check_next({sources, count, kind, finalize, shift, shift % 2 == 1 && count % 2 == 0});
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

TEST_P(GpuKernels, ManySourcesTakeSeveralLaunches) {
  for (Shape::Sources kind : kKinds) {
    if (!widens_ && kind != Shape::kNarrow) continue;
    for (bool finalize : {true, false}) {
      for (size_t count : {1, 17, 64, 257}) {
        for (size_t sources : {64, 65, 130}) {
          const unsigned before = shim::launches;
          check_next({sources, count, kind, finalize, count % 2});
          if (HasFatalFailure()) return;
          EXPECT_EQ(shim::launches - before, 4 * (sources == 64 ? 1 : sources == 65 ? 2 : 3));
        }
      }
    }
  }
}

TEST_P(GpuKernels, DestinationMayBeAnySource) {
  for (bool finalize : {true, false}) {
    for (size_t sources : {1, 2, 3, 5, 130}) {
      for (size_t place : {size_t{0}, sources / 2, sources - 1}) {
        for (size_t count : {1, 33, 1000}) {
          check_next({sources, count, Shape::kMixed, finalize, count % 2, sources == 3,
                      static_cast<int>(place)});
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

std::vector<std::tuple<hetcclDataType_t, hetcclRedOp_t>> all_supported() {
  std::vector<std::tuple<hetcclDataType_t, hetcclRedOp_t>> all;
  for (int t = 0; t < hetcclNumTypes; ++t) {
    for (int o = 0; o < hetcclNumOps; ++o) {
      const auto type = static_cast<hetcclDataType_t>(t);
      const auto op = static_cast<hetcclRedOp_t>(o);
      if (supports(type, op)) all.emplace_back(type, op);
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, GpuKernels, testing::ValuesIn(all_supported()), [](const auto& info) {
  return std::string(name_of(std::get<0>(info.param))) + "_" +
         std::string(name_of(std::get<1>(info.param)));
});

TEST(GpuLaunch, LoadsAKernelForEachTypeAndOperator) {
  int defined = 0;
  alignas(16) char data[64] = {};
  for (int type = 0; type < hetcclNumTypes; ++type) {
    for (int op = 0; op < hetcclNumOps; ++op) {
      const KernelSource source = {data, false};
      const Launch launch = {{data, &source, 1, 1, 1, false, true},
                             static_cast<hetcclDataType_t>(type),
                             static_cast<hetcclRedOp_t>(op),
                             nullptr,
                             1,
                             nullptr};
      defined += launch_combine(launch) == 0;
    }
  }
  shim::loaded = 0;
  EXPECT_EQ(load_kernels(), 0);
  EXPECT_GT(defined, 100);
  EXPECT_EQ(shim::loaded, static_cast<unsigned>(defined));
}

TEST(GpuLaunch, RefusesWhatItCannotDo) {
  alignas(16) float data[8] = {};
  const KernelSource source = {data, false};
  const KernelSource odd = {reinterpret_cast<char*>(data) + 1, false};
  const Launch good = {
      {data + 4, &source, 1, 2, 2, false, true}, hetcclFloat32, hetcclSum, nullptr, 1, nullptr};
  EXPECT_EQ(launch_combine(good), 0);
  Launch bad = good;
  bad.op = hetcclBXor;
  EXPECT_NE(launch_combine(bad), 0);
  bad = good;
  bad.type = static_cast<hetcclDataType_t>(hetcclNumTypes);
  EXPECT_NE(launch_combine(bad), 0);
  EXPECT_EQ(scratch_bytes(bad), 0u);
  bad = good;
  bad.call.sources = &odd;
  EXPECT_NE(launch_combine(bad), 0);
  bad = good;
  bad.call.destination = reinterpret_cast<char*>(data) + 18;
  EXPECT_NE(launch_combine(bad), 0);
  bad = good;
  bad.call.source_count = 0;
  EXPECT_NE(launch_combine(bad), 0);
  const std::vector<KernelSource> many(65, source);
  bad = good;
  bad.call.sources = many.data();
  bad.call.source_count = many.size();
  EXPECT_GT(scratch_bytes(bad), 0u);
  EXPECT_NE(launch_combine(bad), 0);  // without scratch
}

// Whatever the bits are: neither a NaN nor a pair's padding is touched.
TEST(GpuLaunch, CopiesALoneSourceThatIsNotFinished) {
  alignas(16) uint16_t from[37], to[38];
  for (uint16_t i = 0; i < 37; ++i) from[i] = static_cast<uint16_t>(0x7c01 + 977 * i);
  std::fill(std::begin(to), std::end(to), uint16_t{0xa5a5});
  const KernelSource source = {from, false};
  shim::lanes = 32;
  EXPECT_EQ(
      launch_combine(
          {{to, &source, 1, 37, 3, false, false}, hetcclFloat16, hetcclAvg, nullptr, 2, nullptr}),
      0);
  EXPECT_EQ(std::memcmp(to, from, sizeof from), 0);
  EXPECT_EQ(to[37], 0xa5a5);
  EXPECT_EQ(launch_combine({{to, &source, 1, 4, 3, false, false},
                            hetcclDoubleInt,
                            hetcclMinLoc,
                            nullptr,
                            2,
                            nullptr}),
            0);
  EXPECT_EQ(std::memcmp(to, from, sizeof from), 0);
}

TEST(GpuLaunch, UsesNoMoreBlocksThanThereIsWorkFor) {
  std::vector<float> from(1 << 16, 1.0f), to(1 << 16);
  const KernelSource sources[2] = {{from.data(), false}, {from.data(), false}};
  Launch launch = {{to.data(), sources, 2, 100, 2, false, true},
                   hetcclFloat32,
                   hetcclSum,
                   nullptr,
                   1000,
                   nullptr};
  shim::lanes = 0;
  EXPECT_EQ(launch_combine(launch), 0);
  EXPECT_EQ(shim::blocks_used, 1u);
  launch.call.count = to.size();
  EXPECT_EQ(launch_combine(launch), 0);
  EXPECT_EQ(shim::blocks_used, to.size() * sizeof(float) / 16 / 512);
  EXPECT_TRUE(std::all_of(to.begin(), to.end(), [](float x) { return x == 2.0f; }));
  launch.max_blocks = 0;
  EXPECT_EQ(launch_combine(launch), 0);
  EXPECT_EQ(shim::blocks_used, 1u);
}

// More scratch than is kept for one launch: piece by piece.
TEST(GpuLaunch, ScratchIsBounded) {
  constexpr size_t kCount = 600'000;
  std::vector<int64_t> from(kCount), to(kCount, -1);
  for (size_t i = 0; i < kCount; ++i) from[i] = static_cast<int64_t>(i * 0x9e3779b97f4a7c15u);
  const std::vector<KernelSource> sources(66, {from.data(), false});
  Launch launch = {{to.data(), sources.data(), sources.size(), kCount, 66, false, true},
                   hetcclInt64,
                   hetcclAvg,
                   nullptr,
                   4,
                   nullptr};
  const size_t bytes = scratch_bytes(launch);
  EXPECT_LE(bytes, size_t{8} << 20);
  std::vector<uint64_t> scratch(bytes / 8 + 2);
  launch.scratch = scratch.data();
  shim::lanes = 64;
  EXPECT_EQ(launch_combine(launch), 0);
  EXPECT_EQ(to, from);
}

}  // namespace
}  // namespace hetccl::device

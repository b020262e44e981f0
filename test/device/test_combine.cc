// Every type, operator and instruction set against the reference, bit for bit.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <tuple>

#include "test/device/reference.h"

namespace hetccl::device {
namespace {

using reference::Bytes;
using reference::Input;

// Memory that ends where a page without access begins.
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
  // `bytes` long, `before` bytes ahead of the forbidden page.
  uint8_t* end(size_t bytes, size_t before) { return base_ + kBytes - before - bytes; }

  static constexpr size_t kBytes = 1 << 18;

 private:
  uint8_t* base_;
};

constexpr size_t kMargin = 256;
constexpr size_t kMostSources = 9;

class CombineTest
    : public testing::TestWithParam<std::tuple<const char*, hetcclDataType_t, hetcclRedOp_t>> {
 protected:
  void SetUp() override {
    const auto [isa, type, op] = GetParam();
    const auto known = host_isas();
    if (std::none_of(known.begin(), known.end(),
                     [&, name = isa](const char* k) { return std::strcmp(k, name) == 0; })) {
      GTEST_SKIP() << "this processor lacks " << isa;
    }
    device_ = *host_device(isa);
    reduction_ = {type, op, 3};
    widens_ = accumulator_size(type, op) != size_of(type);
  }

  size_t width(bool wide) const {
    return wide ? accumulator_size(reduction_.type, reduction_.op) : size_of(reduction_.type);
  }

  struct Shape {
    size_t sources, count;
    bool wide, finalize;
    bool mixed;    // each source narrow or wide by chance
    size_t shift;  // in units of the type's alignment, more for each further buffer
    int in_place;  // the source that is the destination; -1: none
  };

  void check(const Shape& shape) {
    std::vector<Input> inputs;
    std::vector<Source> sources;
    const size_t unit = alignment_of(reduction_.type) * shape.shift;
    for (size_t s = 0; s < shape.sources; ++s) {
      bool wide = shape.mixed && random_() % 2;
      if (static_cast<int>(s) == shape.in_place) wide = shape.wide;
      inputs.push_back(
          {reference::random_data(reduction_.type, reduction_.op, wide, shape.count, random_),
           wide});
      uint8_t* at = memory_[s].end(inputs[s].data.size(), unit * (s + 1));
      std::copy(inputs[s].data.begin(), inputs[s].data.end(), at);
      sources.push_back({at, wide});
    }
    const size_t bytes = shape.count * width(shape.wide);
    const size_t behind = std::min(unit, kMargin);
    uint8_t* to = memory_[kMostSources].end(bytes, unit);
    Bytes around;
    if (shape.in_place >= 0) {
      to = static_cast<uint8_t*>(const_cast<void*>(sources[shape.in_place].data));
    } else {
      std::fill(to - kMargin, to + bytes + behind, 0xa5);
      around.assign(to - kMargin, to + bytes + behind);
    }
    device_->combine(reduction_, {to, shape.wide, shape.finalize, sources, shape.count});

    const Bytes expected =
        reference::combine(reduction_, inputs, shape.wide, shape.finalize, shape.count);
    const std::string wrong =
        reference::difference(reduction_, expected, to, shape.wide, !shape.finalize);
    ASSERT_EQ(wrong, "") << shape.sources << " sources, " << shape.count << " elements, wide "
                         << shape.wide << ", finalize " << shape.finalize << ", shift "
                         << shape.shift << ", in place " << shape.in_place;
    for (size_t s = 0; s < shape.sources; ++s) {
      if (static_cast<int>(s) == shape.in_place || shape.count == 0) continue;
      ASSERT_EQ(std::memcmp(sources[s].data, inputs[s].data.data(), inputs[s].data.size()), 0)
          << "source " << s << " was written";
    }
    if (shape.in_place >= 0) return;
    ASSERT_TRUE(std::equal(around.begin(), around.begin() + kMargin, to - kMargin))
        << "written ahead of the destination";
    ASSERT_TRUE(std::equal(around.begin() + kMargin + bytes, around.end(), to + bytes))
        << "written past the destination";
  }

  Device* device_ = nullptr;
  Reduction reduction_ = {};
  bool widens_ = false;
  std::mt19937_64 random_{20};
  Guarded memory_[kMostSources + 1];
};

// All tails, at the end of memory and shifted, with every number of sources that has a path.
TEST_P(CombineTest, EveryTailGivesTheReferencesBits) {
  for (size_t count = 0; count <= 70 && !HasFatalFailure(); ++count) {
    for (size_t sources : {1, 2, 3, 4, 5, 6, 7, 9}) {
      const size_t shift = (count + sources) % 5;
      check({sources, count, false, true, false, shift, -1});
      check({sources, count, true, false, true, shift, -1});
      check({sources, count, false, true, true, shift, -1});
    }
  }
}

TEST_P(CombineTest, TilesJoinWithoutASeam) {
  const size_t tile = 4096 / width(true);
  for (size_t count : {tile - 1, tile, tile + 1, 2 * tile + 7}) {
    for (size_t sources : {1, 2, 5, 8}) {
      check({sources, count, false, true, false, 1, -1});
      check({sources, count, true, false, true, 1, -1});
      check({sources, count, false, true, true, 0, -1});
    }
  }
}

TEST_P(CombineTest, DestinationMayBeAnySource) {
  const size_t tile = 4096 / width(true);
  for (size_t count : {size_t{1}, size_t{33}, tile + 5}) {
    for (size_t sources : {1, 2, 3, 4, 5, 8}) {
      for (size_t s = 0; s < sources; ++s) {
        check({sources, count, false, true, false, 1, static_cast<int>(s)});
        check({sources, count, true, false, true, 1, static_cast<int>(s)});
      }
    }
  }
}

TEST_P(CombineTest, AnyNumberOfRanks) {
  for (int ranks : {1, 2, 5, 8, 1000, 65536, 2147483647}) {
    reduction_.ranks = ranks;
    check({2, 67, false, true, false, 1, -1});
    check({3, 67, false, true, true, 1, -1});
  }
}

TEST_P(CombineTest, LoneSourceWithoutFinalizeIsCopiedOrWidened) {
  check({1, 65, false, false, false, 1, -1});
  check({1, 65, true, false, false, 1, -1});
}

using Parameters = std::vector<std::tuple<const char*, hetcclDataType_t, hetcclRedOp_t>>;

Parameters all_cases() {
  Parameters all;
  for (const char* isa : {"portable", "avx2", "avx512"}) {
    for (int t = 0; t < hetcclNumTypes; ++t) {
      for (int o = 0; o < hetcclNumOps; ++o) {
        const auto type = static_cast<DataType>(t);
        const auto op = static_cast<RedOp>(o);
        if (supports(type, op)) all.emplace_back(isa, type, op);
      }
    }
  }
  return all;
}

std::string case_name(const testing::TestParamInfo<Parameters::value_type>& info) {
  return std::string(std::get<0>(info.param)) + "_" +
         std::string(name_of(std::get<1>(info.param))) + "_" +
         std::string(name_of(std::get<2>(info.param)));
}

INSTANTIATE_TEST_SUITE_P(All, CombineTest, testing::ValuesIn(all_cases()), case_name);

}  // namespace
}  // namespace hetccl::device

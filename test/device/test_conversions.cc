// The 16- and 8-bit floats against tables of all their values: every bit pattern read, and every
// rounding boundary written, on every instruction set.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "test/device/reference.h"

namespace hetccl::device {
namespace {

constexpr DataType kTypes[] = {hetcclFloat16, hetcclBfloat16, hetcclFloat8e4m3, hetcclFloat8e5m2};

uint32_t bits_of(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  return bits;
}

float float_of(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
}

// Elements of one or two bytes.
reference::Bytes pack(DataType type, const std::vector<uint32_t>& bits) {
  const size_t size = size_of(type);
  reference::Bytes packed(bits.size() * size);
  for (size_t i = 0; i < bits.size(); ++i) std::memcpy(&packed[i * size], &bits[i], size);
  return packed;
}

uint32_t element(DataType type, const reference::Bytes& packed, size_t i) {
  uint32_t bits = 0;
  std::memcpy(&bits, &packed[i * size_of(type)], size_of(type));
  return bits;
}

std::vector<uint32_t> all_patterns(DataType type) {
  std::vector<uint32_t> all(size_t{1} << (8 * size_of(type)));
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint32_t>(i);
  return all;
}

// Around each value, and around the middle between it and the next: where rounding turns.
std::vector<float> boundaries(DataType type) {
  std::vector<float> all;
  const auto around = [&](double x) {
    const uint32_t bits = bits_of(static_cast<float>(x));
    for (uint32_t b : {bits - 1, bits, bits + 1}) {
      all.push_back(float_of(b));
      all.push_back(-float_of(b));
    }
  };
  for (uint32_t i = 0; std::isfinite(reference::value_of(type, i)); ++i) {
    const double x = reference::value_of(type, i);
    double next = reference::value_of(type, i + 1);
    if (!std::isfinite(next)) next = 2 * x - reference::value_of(type, i - 1);
    around(x);
    around((x + next) / 2);
    around(next);
  }
  for (uint32_t i = 0; i < 1024; ++i) all.push_back(float_of(i));  // float32's own subnormals
  for (float x : {1e30f, 3.4028235e38f, INFINITY, NAN}) {
    all.push_back(x);
    all.push_back(-x);
  }
  std::mt19937 random(7);
  for (int i = 0; i < 200000; ++i) all.push_back(float_of(static_cast<uint32_t>(random())));
  return all;
}

class ConversionTest : public testing::TestWithParam<DataType> {};

TEST_P(ConversionTest, EveryPatternWidensToItsValue) {
  const DataType type = GetParam();
  const std::vector<uint32_t> patterns = all_patterns(type);
  const reference::Bytes packed = pack(type, patterns);
  for (const char* isa : host_isas()) {
    std::vector<float> wide(patterns.size());
    const Source source{packed.data(), false};
    (*host_device(isa))
        ->combine({type, hetcclSum, 1}, {wide.data(), true, false, {&source, 1}, wide.size()});
    for (uint32_t bits : patterns) {
      const double value = reference::value_of(type, bits);
      if (std::isnan(value)) {
        ASSERT_TRUE(std::isnan(wide[bits])) << isa << " " << bits;
      } else {
        ASSERT_EQ(bits_of(wide[bits]), bits_of(static_cast<float>(value))) << isa << " " << bits;
      }
    }
  }
}

TEST_P(ConversionTest, EveryPatternSurvivesTheWayThere) {
  const DataType type = GetParam();
  const std::vector<uint32_t> patterns = all_patterns(type);
  const reference::Bytes packed = pack(type, patterns);
  for (const char* isa : host_isas()) {
    for (RedOp op : {hetcclSum, hetcclProd, hetcclMin, hetcclMax, hetcclAvg}) {
      reference::Bytes result(packed.size());
      const Source source{packed.data(), false};
      (*host_device(isa))
          ->combine({type, op, 1}, {result.data(), false, true, {&source, 1}, patterns.size()});
      for (uint32_t bits : patterns) {
        const double value = reference::value_of(type, bits);
        const uint32_t expected = std::isnan(value) ? reference::nearest(type, NAN) : bits;
        ASSERT_EQ(element(type, result, bits), expected) << isa << " " << name_of(op);
      }
    }
  }
}

TEST_P(ConversionTest, EveryBoundaryRoundsToNearestEven) {
  const DataType type = GetParam();
  const std::vector<float> values = boundaries(type);
  for (const char* isa : host_isas()) {
    reference::Bytes result(values.size() * size_of(type));
    const Source source{values.data(), true};
    (*host_device(isa))
        ->combine({type, hetcclSum, 1}, {result.data(), false, true, {&source, 1}, values.size()});
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(element(type, result, i), reference::nearest(type, values[i]))
          << isa << " of " << values[i];
    }
  }
}

// The quotient is rounded once: a float64 just off a tie must not become the tie on its way.
TEST_P(ConversionTest, AveragesRoundOnce) {
  const DataType type = GetParam();
  std::mt19937 random(11);
  for (int ranks : {3, 7, 10, 1000}) {
    std::vector<uint32_t> bits(4000);
    for (uint32_t& b : bits) b = static_cast<uint32_t>(random());
    const reference::Bytes first = pack(type, bits);
    for (uint32_t& b : bits) b = static_cast<uint32_t>(random());
    const reference::Bytes second = pack(type, bits);
    const Reduction reduction{type, hetcclAvg, ranks};
    const reference::Bytes expected =
        reference::combine(reduction, {{first, false}, {second, false}}, false, true, bits.size());
    for (const char* isa : host_isas()) {
      reference::Bytes result(first.size());
      const Source sources[] = {{first.data(), false}, {second.data(), false}};
      (*host_device(isa))->combine(reduction, {result.data(), false, true, sources, bits.size()});
      EXPECT_EQ(reference::difference(reduction, expected, result.data(), false, false), "") << isa;
    }
  }
}

std::string type_name(const testing::TestParamInfo<DataType>& info) {
  return std::string(name_of(info.param));
}

INSTANTIATE_TEST_SUITE_P(All, ConversionTest, testing::ValuesIn(kTypes), type_name);

// The reference itself, at values that the formats' definitions give.
TEST(ReferenceTest, KnowsTheFormats) {
  EXPECT_EQ(reference::value_of(hetcclFloat16, 0x7bff), 65504.0);
  EXPECT_EQ(reference::value_of(hetcclFloat16, 0x0001), 0x1p-24);
  EXPECT_EQ(reference::value_of(hetcclBfloat16, 0x3f80), 1.0);
  EXPECT_EQ(reference::value_of(hetcclBfloat16, 0x7f7f), 0x1.fep127);
  EXPECT_EQ(reference::value_of(hetcclFloat8e4m3, 0x7e), 448.0);
  EXPECT_TRUE(std::isnan(reference::value_of(hetcclFloat8e4m3, 0xff)));
  EXPECT_EQ(reference::value_of(hetcclFloat8e4m3, 0x01), 0x1p-9);
  EXPECT_EQ(reference::value_of(hetcclFloat8e5m2, 0x7b), 57344.0);
  EXPECT_EQ(reference::value_of(hetcclFloat8e5m2, 0x7c), INFINITY);
  EXPECT_EQ(reference::nearest(hetcclFloat16, 65519.99), 0x7bffu);
  EXPECT_EQ(reference::nearest(hetcclFloat16, 65520.0), 0x7c00u);
  EXPECT_EQ(reference::nearest(hetcclFloat8e4m3, 464.0), 0x7eu);
  EXPECT_EQ(reference::nearest(hetcclFloat8e4m3, -465.0), 0x7fu);
  EXPECT_EQ(reference::nearest(hetcclFloat16, -0.0), 0x8000u);
}

}  // namespace
}  // namespace hetccl::device

// Values that other libraries stumbled over, written out by hand, at every place among the sources
// and at lengths with and without a vector body.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>

#include "test/device/reference.h"

namespace hetccl::device {
namespace {

constexpr size_t kLengths[] = {1, 2, 7, 8, 15, 33, 70};

// Element i of the result for all i, where every source holds one value throughout; checks that
// all instruction sets and lengths agree.
template <typename T>
T reduce(DataType type, RedOp op, const std::vector<T>& values, int ranks = 0) {
  T first{};
  bool any = false;
  for (const char* isa : host_isas()) {
    for (size_t length : kLengths) {
      std::vector<std::vector<T>> data;
      for (T value : values) data.emplace_back(length, value);
      std::vector<Source> sources;
      for (const auto& d : data) sources.push_back({d.data(), false});
      std::vector<T> result(length);
      const int n = ranks != 0 ? ranks : static_cast<int>(values.size());
      (*host_device(isa))->combine({type, op, n}, {result.data(), false, true, sources, length});
      if (!any) first = result[0];
      any = true;
      for (const T& r : result) {
        EXPECT_EQ(std::memcmp(&r, &first, sizeof(T)), 0) << isa << ", length " << length;
      }
    }
  }
  return first;
}

template <typename T>
void expect_bits(T actual, T expected) {
  EXPECT_EQ(std::memcmp(&actual, &expected, sizeof(T)), 0) << actual << ", not " << expected;
}

// Every order of `values` gives `expected`.
template <typename T>
void expect_in_any_order(DataType type, RedOp op, std::vector<T> values, T expected) {
  std::vector<size_t> order(values.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  do {
    std::vector<T> permuted;
    for (size_t i : order) permuted.push_back(values[i]);
    const T result = reduce(type, op, permuted);
    EXPECT_EQ(std::memcmp(&result, &expected, sizeof(T)), 0)
        << name_of(type) << " " << name_of(op) << " starting with source " << order[0];
  } while (std::next_permutation(order.begin(), order.end()));
}

uint16_t half(double x) { return static_cast<uint16_t>(reference::nearest(hetcclFloat16, x)); }
uint16_t brain(double x) { return static_cast<uint16_t>(reference::nearest(hetcclBfloat16, x)); }

TEST(SpecialValues, NanWinsWhereverItIs) {
  for (RedOp op : {hetcclMin, hetcclMax, hetcclSum, hetcclProd, hetcclAvg}) {
    // A negative NaN with a payload: the result is the canonical one.
    uint32_t odd = 0xffc12345;
    float f;
    std::memcpy(&f, &odd, sizeof(f));
    expect_in_any_order<float>(hetcclFloat32, op, {1, f, 3, 4},
                               std::numeric_limits<float>::quiet_NaN());
    expect_in_any_order<double>(hetcclFloat64, op, {1, -NAN, 3, 4},
                                std::numeric_limits<double>::quiet_NaN());
    expect_in_any_order<uint16_t>(hetcclFloat16, op, {half(1), 0xfd01, half(3), half(4)}, 0x7e00);
    expect_in_any_order<uint16_t>(hetcclBfloat16, op, {brain(1), 0xff81, brain(3)}, 0x7fc0);
    expect_in_any_order<uint8_t>(hetcclFloat8e4m3, op, {0x10, 0xff, 0x20}, 0x7f);
    expect_in_any_order<uint8_t>(hetcclFloat8e5m2, op, {0x10, 0xfd, 0x20}, 0x7e);
  }
  expect_bits<float>(reduce<float>(hetcclFloat32, hetcclSum, {INFINITY, -INFINITY}),
                     std::numeric_limits<float>::quiet_NaN());
}

TEST(SpecialValues, MinusZeroIsLessThanZero) {
  expect_in_any_order<float>(hetcclFloat32, hetcclMin, {0.0f, -0.0f, 0.0f}, -0.0f);
  expect_in_any_order<float>(hetcclFloat32, hetcclMax, {0.0f, -0.0f, -0.0f}, 0.0f);
  expect_in_any_order<double>(hetcclFloat64, hetcclMin, {0.0, -0.0}, -0.0);
  expect_in_any_order<double>(hetcclFloat64, hetcclMax, {0.0, -0.0}, 0.0);
  expect_in_any_order<uint16_t>(hetcclFloat16, hetcclMin, {0, 0x8000}, 0x8000);
  expect_in_any_order<uint8_t>(hetcclFloat8e5m2, hetcclMax, {0, 0x80}, 0);
}

TEST(SpecialValues, InfinitiesAreTheExtremes) {
  expect_in_any_order<float>(hetcclFloat32, hetcclMin, {1, -INFINITY, 2}, -INFINITY);
  expect_in_any_order<float>(hetcclFloat32, hetcclMax, {1, INFINITY, 2}, INFINITY);
  expect_in_any_order<uint16_t>(hetcclFloat16, hetcclMax, {half(65504), 0x7c00}, 0x7c00);
}

TEST(SpecialValues, SubnormalsAreKept) {
  const float tiny = std::numeric_limits<float>::denorm_min();
  expect_bits(reduce<float>(hetcclFloat32, hetcclSum, {tiny, tiny}), 2 * tiny);
  const double least = std::numeric_limits<double>::denorm_min();
  expect_bits(reduce<double>(hetcclFloat64, hetcclSum, {least, least, least}), 3 * least);
  expect_bits<uint16_t>(reduce<uint16_t>(hetcclFloat16, hetcclSum, {1, 1}), 2);
  expect_bits<uint16_t>(reduce<uint16_t>(hetcclBfloat16, hetcclSum, {1, 1, 1}), 3);
  expect_bits<uint8_t>(reduce<uint8_t>(hetcclFloat8e4m3, hetcclSum, {1, 1}), 2);
}

TEST(SpecialValues, IntegersWrap) {
  expect_bits<int16_t>(reduce<int16_t>(hetcclInt16, hetcclSum, {16384, 16384}), -32768);
  expect_bits<uint8_t>(reduce<uint8_t>(hetcclUint8, hetcclSum, {200, 100}), 44);
  expect_bits<int8_t>(reduce<int8_t>(hetcclInt8, hetcclSum, {120, 100}), -36);
  expect_bits<uint16_t>(reduce<uint16_t>(hetcclUint16, hetcclProd, {65535, 65535}), 1);
  expect_bits<int64_t>(reduce<int64_t>(hetcclInt64, hetcclSum, {INT64_MAX, 1}), INT64_MIN);
  expect_bits<int32_t>(reduce<int32_t>(hetcclInt32, hetcclProd, {INT32_MIN, -1}), INT32_MIN);
  std::vector<uint8_t> by_forty;
  for (int r = 0; r < 8; ++r) by_forty.push_back(static_cast<uint8_t>(r * 40));
  expect_bits<uint8_t>(reduce(hetcclUint8, hetcclSum, by_forty), 96);
}

TEST(SpecialValues, UnsignedComparesUnsigned) {
  expect_in_any_order<uint64_t>(hetcclUint64, hetcclMin, {UINT64_MAX, 0}, 0);
  expect_in_any_order<uint64_t>(hetcclUint64, hetcclMax, {UINT64_MAX, 0}, UINT64_MAX);
  expect_in_any_order<uint32_t>(hetcclUint32, hetcclMax, {UINT32_MAX, 0}, UINT32_MAX);
  expect_in_any_order<uint16_t>(hetcclUint16, hetcclMin, {65535, 1}, 1);
  expect_in_any_order<uint8_t>(hetcclUint8, hetcclMax, {255, 1}, 255);
}

TEST(SpecialValues, IntegerAverageIsExactAndTruncated) {
  expect_bits<int32_t>(reduce<int32_t>(hetcclInt32, hetcclAvg, {7, 4}), 5);
  expect_bits<int32_t>(reduce<int32_t>(hetcclInt32, hetcclAvg, {-7, -4}), -5);
  expect_bits<uint8_t>(reduce<uint8_t>(hetcclUint8, hetcclAvg, {255, 255, 254}), 254);
  expect_bits<int64_t>(reduce<int64_t>(hetcclInt64, hetcclAvg, {INT64_MAX, INT64_MAX}), INT64_MAX);
  expect_bits<int64_t>(reduce<int64_t>(hetcclInt64, hetcclAvg, {INT64_MIN, INT64_MIN}), INT64_MIN);
  expect_bits<int64_t>(reduce<int64_t>(hetcclInt64, hetcclAvg, {INT64_MIN, INT64_MAX}), 0);
  expect_bits<uint64_t>(reduce<uint64_t>(hetcclUint64, hetcclAvg, {UINT64_MAX, UINT64_MAX, 0}),
                        UINT64_MAX / 3 * 2);
}

TEST(SpecialValues, NarrowAveragesNeitherOverflowNorVanish) {
  const auto avg = [](DataType type, std::vector<uint16_t> v) {
    return reduce<uint16_t>(type, hetcclAvg, std::move(v));
  };
  using Values = std::vector<uint16_t>;
  expect_bits(avg(hetcclFloat16, Values(10, half(60000))), half(60000));
  expect_bits(avg(hetcclFloat16, Values(2, half(65504))), half(65504));
  expect_bits(avg(hetcclFloat16, {half(65504), half(65504), half(-65504), half(-65504)}), half(0));
  expect_bits(avg(hetcclFloat16, Values(10, half(6e-8))), half(6e-8));
  expect_bits(avg(hetcclBfloat16, Values(3, 0x7f7f)), uint16_t{0x7f7f});
  expect_bits(avg(hetcclBfloat16, Values(7, 0x0001)), uint16_t{0x0001});
}

// Any value, averaged over any number of ranks that hold it, is that value.
TEST(SpecialValues, TheAverageOfEqualValuesIsThatValue) {
  for (DataType type : {hetcclFloat16, hetcclBfloat16, hetcclFloat8e4m3, hetcclFloat8e5m2}) {
    const size_t size = size_of(type);
    const size_t count = size_t{1} << (8 * size);
    reference::Bytes data(count * size);
    for (size_t i = 0; i < count; ++i) {
      const bool nan = std::isnan(reference::value_of(type, static_cast<uint32_t>(i)));
      const size_t bits = nan ? 0 : i;
      std::memcpy(&data[i * size], &bits, size);
    }
    for (int ranks : {2, 3, 5, 6, 7, 9, 11, 13, 33, 100}) {
      const std::vector<Source> sources(ranks, Source{data.data(), false});
      for (const char* isa : host_isas()) {
        reference::Bytes result(data.size());
        (*host_device(isa))
            ->combine({type, hetcclAvg, ranks}, {result.data(), false, true, sources, count});
        // Only the sign of zero may go: -0 + -0 is -0, so not even that.
        EXPECT_EQ(result, data) << isa << " " << name_of(type) << " over " << ranks;
      }
    }
  }
}

TEST(SpecialValues, NarrowSumsRoundOnce) {
  std::vector<uint16_t> values(16, brain(1));
  values[0] = brain(256);
  const uint16_t sum = reduce(hetcclBfloat16, hetcclSum, values);
  EXPECT_TRUE(sum == brain(270) || sum == brain(272)) << reference::value_of(hetcclBfloat16, sum);
  expect_bits(reduce<uint16_t>(hetcclFloat16, hetcclSum, {half(65504), half(65504), half(-65504)}),
              half(65504));
}

TEST(SpecialValues, Float8OverflowsAsOcpDoesWithoutSaturation) {
  expect_bits<uint8_t>(reduce<uint8_t>(hetcclFloat8e4m3, hetcclSum, {0x7e, 0x7e}), 0x7f);
  expect_bits<uint8_t>(reduce<uint8_t>(hetcclFloat8e4m3, hetcclSum, {0xfe, 0xfe}), 0x7f);
  expect_bits<uint8_t>(reduce<uint8_t>(hetcclFloat8e5m2, hetcclSum, {0x7b, 0x7b}), 0x7c);
  expect_bits<uint8_t>(reduce<uint8_t>(hetcclFloat8e5m2, hetcclSum, {0xfb, 0xfb}), 0xfc);
}

TEST(SpecialValues, TruthIsZeroOrOne) {
  using V = std::vector<uint8_t>;
  for (DataType type : {hetcclBool, hetcclUint8, hetcclInt8}) {
    expect_bits<uint8_t>(reduce(type, hetcclLOr, V{2, 4}), 1);
    expect_bits<uint8_t>(reduce(type, hetcclLAnd, V{2, 4}), 1);
    expect_bits<uint8_t>(reduce(type, hetcclLXor, V{2, 4}), 0);
    expect_bits<uint8_t>(reduce(type, hetcclLXor, V{2, 0, 0}), 1);
    expect_bits<uint8_t>(reduce(type, hetcclLAnd, V{2}), 1);
  }
  for (RedOp op : {hetcclBAnd, hetcclBOr, hetcclMin, hetcclMax}) {
    expect_bits<uint8_t>(reduce(hetcclBool, op, V{2, 4}), 1);
  }
  expect_bits<uint8_t>(reduce(hetcclBool, hetcclBXor, V{2, 4}), 0);
  expect_bits<uint8_t>(reduce(hetcclByte, hetcclBXor, V{2, 4}), 6);
}

template <typename Value>
struct Pair {
  Value value;
  int index;
};

template <typename Value>
void expect_location(DataType type, RedOp op, std::vector<Pair<Value>> values, int index) {
  // Permuted by hand: Pair has padding, so only its fields are compared.
  std::vector<size_t> order(values.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  do {
    for (const char* isa : host_isas()) {
      std::vector<Source> sources;
      for (size_t i : order) sources.push_back({&values[i], false});
      Pair<Value> result;
      std::memset(&result, 0xff, sizeof(result));
      (*host_device(isa))->combine({type, op, 2}, {&result, false, true, sources, 1});
      EXPECT_EQ(result.index, index) << isa << " " << name_of(type) << " " << name_of(op);
      Pair<Value> clean;
      std::memset(&clean, 0, sizeof(clean));
      clean.value = result.value;
      clean.index = result.index;
      EXPECT_EQ(std::memcmp(&result, &clean, sizeof(clean)), 0) << "padding is not 0";
    }
  } while (std::next_permutation(order.begin(), order.end()));
}

template <typename Value>
void expect_ties(DataType type) {
  expect_location<Value>(type, hetcclMinLoc, {{3, 9}, {1, 7}, {1, 4}, {2, 0}}, 4);
  expect_location<Value>(type, hetcclMaxLoc, {{3, 9}, {1, 7}, {3, 8}, {2, 0}}, 8);
  expect_location<Value>(type, hetcclMaxLoc, {{-3, -2}, {-3, -5}}, -5);
}

TEST(SpecialValues, LocationsTakeTheLowestIndex) {
  expect_ties<float>(hetcclFloatInt);
  expect_ties<double>(hetcclDoubleInt);
  expect_ties<long>(hetcclLongInt);
  expect_ties<short>(hetcclShortInt);
  expect_ties<int>(hetcclTwoInt);
  for (RedOp op : {hetcclMinLoc, hetcclMaxLoc}) {
    expect_location<float>(hetcclFloatInt, op, {{NAN, 5}, {1, 0}, {-NAN, 3}}, 3);
    expect_location<double>(hetcclDoubleInt, op, {{NAN, 5}, {-INFINITY, 0}, {INFINITY, 1}}, 5);
  }
}

TEST(SpecialValues, ComplexProductIsFourProducts) {
  using C = std::complex<float>;
  const C product = reduce<C>(hetcclComplex64, hetcclProd, {C(1, 2), C(3, -4), C(0, 1)});
  EXPECT_EQ(product, C(-2, 11));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const C lost = reduce<C>(hetcclComplex64, hetcclProd, {C(INFINITY, 0), C(0, 1)});
  const C expected(nan, INFINITY);
  EXPECT_EQ(std::memcmp(&lost, &expected, sizeof(C)), 0);
  using D = std::complex<double>;
  EXPECT_EQ(reduce<D>(hetcclComplex128, hetcclAvg, {D(1, 2), D(3, -4)}), D(2, -1));
}

}  // namespace
}  // namespace hetccl::device

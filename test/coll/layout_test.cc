#include "lib/coll/layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace hetccl::coll {
namespace {

// Blocks follow one another from 0 to `count`, with nothing between or over.
void expect_partition(const Layout& layout, size_t count) {
  size_t next = 0;
  for (int b = 0; b < layout.blocks(); ++b) {
    for (const Buffer buffer : {Buffer::kInput, Buffer::kOutput, Buffer::kWork, Buffer::kTemp}) {
      EXPECT_EQ(layout.extent(buffer, b).offset, next);
      EXPECT_EQ(layout.extent(buffer, b).count, layout.count(b));
    }
    next += layout.count(b);
  }
  EXPECT_EQ(next, count);
  EXPECT_EQ(layout.total(), count);
}

TEST(Layout, EqualSharesOfAnyVector) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 5000; ++i) {
    const int blocks = 1 + static_cast<int>(random() % 40);
    const size_t granule = size_t{1} << (random() % 8);
    const size_t count = random() >> (random() % 64);
    const Layout layout = Layout::split(count, blocks, granule);
    ASSERT_EQ(layout.blocks(), blocks);
    expect_partition(layout, count);
    size_t least = count, most = 0;
    for (int b = 0; b < blocks; ++b) {
      least = std::min(least, layout.count(b));
      most = std::max(most, layout.count(b));
    }
    const bool large = count / granule / 64 >= static_cast<size_t>(blocks);
    // Of large vectors the last share may lack a part of a granule more.
    EXPECT_LE(most - least, large ? 2 * granule - 1 : 1);
    for (int b = 0; large && b < blocks; ++b) {
      EXPECT_EQ(layout.extent(Buffer::kInput, b).offset % granule, 0u);
    }
  }
}

TEST(Layout, FewerElementsThanBlocksLeavesSomeEmpty) {
  const Layout layout = Layout::split(2, 5, 16);
  EXPECT_EQ(layout.count(0), 1u);
  EXPECT_EQ(layout.count(1), 1u);
  EXPECT_EQ(layout.count(2), 0u);
  EXPECT_EQ(layout.count(4), 0u);
  expect_partition(Layout::split(0, 5, 16), 0);
}

TEST(Layout, WeightedSharesFollowTheWeights) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 5000; ++i) {
    const int blocks = 1 + static_cast<int>(random() % 20);
    const size_t granule = size_t{1} << (random() % 7);
    const size_t count = random() % (size_t{1} << (random() % 50));
    std::vector<double> weights(blocks);
    double sum = 0;
    for (double& w : weights) sum += w = static_cast<double>(random() % 100);
    const Layout layout = Layout::split(count, blocks, granule, weights);
    expect_partition(layout, count);
    if (sum == 0) continue;
    const bool large = count / granule / 64 >= static_cast<size_t>(blocks);
    const double unit = large ? static_cast<double>(granule) : 1.0;
    for (int b = 0; b < blocks; ++b) {
      const double ideal = static_cast<double>(count) * weights[b] / sum;
      EXPECT_NEAR(static_cast<double>(layout.count(b)), ideal, 2 * unit + ideal * 1e-9);
      if (weights[b] == 0) {
        EXPECT_EQ(layout.count(b), 0u);
      }
    }
  }
}

TEST(Layout, WeightedSharesOfHugeVectorsAreExact) {
  const std::vector<double> weights = {1, 0, 1e-9, 3, 1e9};
  for (const size_t count : {size_t{1} << 62, (size_t{1} << 63) - 1, (size_t{1} << 63) + 12345,
                             std::numeric_limits<size_t>::max()}) {
    for (const size_t granule : {size_t{1}, size_t{64}}) {
      const Layout layout = Layout::split(count, 5, granule, weights);
      expect_partition(layout, count);
      EXPECT_EQ(layout.count(1), 0u);
    }
  }
}

TEST(Layout, EqualWeightsGiveEqualShares) {
  const std::vector<double> weights(7, 3.25);
  for (const size_t count : {0u, 1u, 6u, 7u, 1000u, 1000003u}) {
    const Layout weighted = Layout::split(count, 7, 16, weights);
    const Layout equal = Layout::split(count, 7, 16);
    for (int b = 0; b < 7; ++b) EXPECT_EQ(weighted.count(b), equal.count(b));
  }
}

TEST(Layout, UselessWeightsCountAsNone) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  for (const std::vector<double>& weights :
       {std::vector<double>{0, 0, 0}, {nan, nan, nan}, {-1, -2, 0}}) {
    const Layout layout = Layout::split(9, 3, 1, weights);
    for (int b = 0; b < 3; ++b) EXPECT_EQ(layout.count(b), 3u);
  }
  const Layout layout = Layout::split(9, 3, 1, std::vector<double>{nan, 1, infinity});
  EXPECT_EQ(layout.count(1), 9u);
}

TEST(Layout, FromCounts) {
  const std::vector<size_t> counts = {2, 0, 5, 1};
  const Layout layout = Layout::from_counts(counts);
  ASSERT_EQ(layout.blocks(), 4);
  expect_partition(layout, 8);
  for (int b = 0; b < 4; ++b) EXPECT_EQ(layout.count(b), counts[b]);
}

TEST(Layout, CompactBlockBeginsItsBuffer) {
  Layout layout = Layout::from_counts(std::vector<size_t>{2, 3, 4});
  layout.set_compact(Buffer::kInput, 2);
  EXPECT_EQ(layout.extent(Buffer::kInput, 2).offset, 0u);
  EXPECT_EQ(layout.extent(Buffer::kInput, 2).count, 4u);
  EXPECT_EQ(layout.extent(Buffer::kOutput, 2).offset, 5u);
  EXPECT_EQ(layout.extent(Buffer::kWork, 2).offset, 5u);
  EXPECT_EQ(layout.extent(Buffer::kInput, 1).offset, 2u);
}

TEST(Layout, DisplacementsAreOfOneBuffer) {
  Layout layout = Layout::from_counts(std::vector<size_t>{2, 3, 4});
  layout.set_displacements(Buffer::kOutput, std::vector<size_t>{100, 7, 50});
  layout.set_compact(Buffer::kInput, 1);
  EXPECT_EQ(layout.extent(Buffer::kOutput, 0).offset, 100u);
  EXPECT_EQ(layout.extent(Buffer::kOutput, 1).offset, 7u);
  EXPECT_EQ(layout.extent(Buffer::kOutput, 2).count, 4u);
  EXPECT_EQ(layout.extent(Buffer::kTemp, 2).offset, 5u);
  EXPECT_EQ(layout.extent(Buffer::kInput, 1).offset, 0u);
}

TEST(Layout, InputMayHaveSizesAndPlacesOfItsOwn) {
  Layout layout = Layout::from_counts(std::vector<size_t>{2, 0, 4});
  layout.set_input_counts(std::vector<size_t>{7, 1, 0});
  layout.set_displacements(Buffer::kInput, std::vector<size_t>{30, 20, 10});
  layout.set_displacements(Buffer::kOutput, std::vector<size_t>{5, 0, 9});
  EXPECT_EQ(layout.count(Buffer::kInput, 0), 7u);
  EXPECT_EQ(layout.count(Buffer::kOutput, 0), 2u);
  EXPECT_EQ(layout.count(Buffer::kTemp, 2), 4u);
  EXPECT_EQ(layout.extent(Buffer::kInput, 1).offset, 20u);
  EXPECT_EQ(layout.extent(Buffer::kInput, 1).count, 1u);
  EXPECT_EQ(layout.extent(Buffer::kOutput, 2).offset, 9u);
  EXPECT_EQ(layout.extent(Buffer::kOutput, 2).count, 4u);
  EXPECT_EQ(layout.extent(Buffer::kTemp, 2).offset, 2u);
  EXPECT_EQ(layout.total(), 6u);
}

}  // namespace
}  // namespace hetccl::coll

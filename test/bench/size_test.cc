#include "bench/size.h"

#include <gtest/gtest.h>

namespace hetccl::bench {
namespace {

struct Good {
  const char* text;
  uint64_t bytes;
};
void PrintTo(const Good& g, std::ostream* out) { *out << g.text; }
class GoodSize : public testing::TestWithParam<Good> {};

TEST_P(GoodSize, IsRead) {
  uint64_t bytes = 99;
  std::string why;
  ASSERT_TRUE(parse_size(GetParam().text, &bytes, &why)) << why;
  EXPECT_EQ(bytes, GetParam().bytes);
}
INSTANTIATE_TEST_SUITE_P(Size, GoodSize,
                         testing::Values(Good{"0", 0}, Good{"8", 8}, Good{"64k", 65536},
                                         Good{"64K", 65536}, Good{"2M", 2097152},
                                         Good{"1.5G", 1610612736}, Good{"0.5k", 512},
                                         Good{"3t", 3298534883328}, Good{"1.1k", 1126},
                                         Good{"9007199254740993", 9007199254740993}));

class BadSize : public testing::TestWithParam<const char*> {};

TEST_P(BadSize, IsRefusedWithTheTextAndWhatIsAllowed) {
  uint64_t bytes = 99;
  std::string why;
  EXPECT_FALSE(parse_size(GetParam(), &bytes, &why));
  EXPECT_EQ(bytes, 99u);
  EXPECT_NE(why.find("'" + std::string(GetParam()) + "'"), std::string::npos) << why;
  EXPECT_NE(why.find("allowed"), std::string::npos) << why;
}
INSTANTIATE_TEST_SUITE_P(Size, BadSize,
                         testing::Values("", "abc", "-1", "2x", "16E", "64Q", "1e3", " 8k ", "k",
                                         "1.", ".5k", "8kk", "8kB", "99999999999999999999",
                                         "9000000T", "0.0001k", "+8", "0x10"));

TEST(SizeSteps, FollowTheIncrement) {
  constexpr uint64_t kMi = 1 << 20;
  EXPECT_EQ(size_steps(64 * kMi, 70 * kMi, 4, 2 * kMi),
            (std::vector<uint64_t>{64 * kMi, 66 * kMi, 68 * kMi, 70 * kMi}));
  EXPECT_EQ(size_steps(5, 11, 4, 4), (std::vector<uint64_t>{5, 9}));
}

TEST(SizeSteps, FollowTheFactor) {
  EXPECT_EQ(size_steps(8, 1000, 4, 0), (std::vector<uint64_t>{8, 32, 128, 512}));
  EXPECT_EQ(size_steps(8, 512, 4, 0), (std::vector<uint64_t>{8, 32, 128, 512}));
  EXPECT_EQ(size_steps(0, 8, 2, 0), (std::vector<uint64_t>{0, 1, 2, 4, 8}));
  EXPECT_EQ(size_steps(0, 0, 2, 0), (std::vector<uint64_t>{0}));
}

TEST(SizeSteps, EndNearTheLargestNumber) {
  uint64_t most = UINT64_MAX;
  EXPECT_EQ(size_steps(most - 1, most, 2, 0).size(), 1u);
  EXPECT_EQ(size_steps(most - 1, most, 2, 1).size(), 2u);
}

}  // namespace
}  // namespace hetccl::bench

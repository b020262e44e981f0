// Choosing a host device, and what surrounds its kernels.
#include <gtest/gtest.h>

#include <cfenv>
#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "lib/device/device.h"

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace hetccl::device {
namespace {

TEST(HostDevice, AutoIsTheBestOfTheList) {
  ASSERT_FALSE(host_isas().empty());
  EXPECT_STREQ(host_isas().back(), "portable");
  auto best = host_device("auto");
  ASSERT_TRUE(best.ok());
  EXPECT_EQ(*best, *host_device(host_isas().front()));
  EXPECT_EQ((*best)->description(), std::string("host ") + host_isas().front());
}

TEST(HostDevice, UnknownInstructionSetListsWhatThereIs) {
  for (const char* name : {"", "sse9", "AVX2", "portable "}) {
    const auto none = host_device(name);
    ASSERT_FALSE(none.ok()) << name;
    EXPECT_EQ(none.status().code(), hetcclInvalidArgument);
    const std::string& text = none.status().message();
    EXPECT_NE(text.find("'" + std::string(name) + "'"), std::string::npos) << text;
    for (const char* isa : host_isas()) EXPECT_NE(text.find(isa), std::string::npos) << text;
  }
}

TEST(HostDevice, CopiesBytes) {
  Device* device = *host_device("auto");
  std::vector<unsigned char> from(100003), to(from.size() + 1, 0x5a);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<unsigned char>(i % 251);
  device->copy(to.data(), from.data(), from.size());
  EXPECT_EQ(std::memcmp(to.data(), from.data(), from.size()), 0);
  EXPECT_EQ(to.back(), 0x5a);
  device->copy(nullptr, nullptr, 0);
  device->copy(from.data(), from.data(), from.size());
  EXPECT_EQ(std::memcmp(to.data(), from.data(), from.size()), 0);
}

float sum_of(float a, float b) {
  const Source sources[] = {{&a, false}, {&b, false}};
  float result = -1;
  (*host_device("auto"))
      ->combine({hetcclFloat32, hetcclSum, 2}, {&result, false, true, sources, 1});
  return result;
}

// A program's own rounding direction neither reaches a reduction nor is lost by it.
TEST(HostDevice, RoundsToNearestWhateverTheProgramDoes) {
  const float usual = sum_of(1.0f, 0x1p-25f);
  ASSERT_EQ(std::fesetround(FE_UPWARD), 0);
  const float upward = sum_of(1.0f, 0x1p-25f);
  const int after = std::fegetround();
  std::fesetround(FE_TONEAREST);
  EXPECT_EQ(usual, 1.0f);
  EXPECT_EQ(upward, usual);
  EXPECT_EQ(after, FE_UPWARD);
}

#if defined(__SSE2__)
TEST(HostDevice, KeepsSubnormalsWhereTheProgramFlushesThem) {
  const unsigned before = _mm_getcsr();
  const unsigned flushing = before | 0x8040;
  _mm_setcsr(flushing);
  const float tiny = std::numeric_limits<float>::denorm_min();
  const float sum = sum_of(tiny, tiny);
  const unsigned after = _mm_getcsr();
  _mm_setcsr(before);
  EXPECT_EQ(std::memcmp(&sum, "\x02\0\0\0", 4), 0);
  EXPECT_EQ(after & ~0x3fu, flushing & ~0x3fu);
}

TEST(HostDevice, RaisesNoTrapThatTheProgramAskedFor) {
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before & ~0x1f80u);
  const float sum =
      sum_of(std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity());
  _mm_setcsr(before);
  EXPECT_NE(sum, sum);
}
#endif

TEST(HostDevice, ServesManySourcesAndManyThreads) {
  constexpr int kSources = 100;
  constexpr size_t kCount = 3001;
  const std::vector<int32_t> data(kCount, 7);
  const std::vector<Source> sources(kSources, Source{data.data(), false});
  std::vector<std::vector<int32_t>> results(4, std::vector<int32_t>(kCount));
  std::vector<std::thread> threads;
  for (auto& result : results) {
    threads.emplace_back([&] {
      (*host_device("auto"))
          ->combine({hetcclInt32, hetcclSum, kSources},
                    {result.data(), false, true, sources, kCount});
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& result : results) {
    EXPECT_EQ(result, std::vector<int32_t>(kCount, 7 * kSources));
  }
}

}  // namespace
}  // namespace hetccl::device

// What tools ask of the library, on the simulated devices.
#include "lib/introspect.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

namespace {

constexpr hetcclMemoryKind_t kKinds[] = {hetcclMemorySimCuda, hetcclMemorySimHip};
constexpr size_t kBytes = 100'003;

std::vector<uint8_t> some_bytes() {
  std::vector<uint8_t> bytes(kBytes);
  std::iota(bytes.begin(), bytes.end(), uint8_t{3});
  return bytes;
}

std::string last_error() { return hetcclGetLastError(nullptr); }

TEST(Introspect, DevicesAreListedWithTheirKinds) {
  const auto kinds = nlohmann::json::parse(hetcclInternalDevices());
  ASSERT_EQ(kinds.size(), 4u);
  for (const auto& kind : kinds) {
    EXPECT_NE(kind.contains("absent"), kind.contains("devices")) << kind.dump();
  }
  EXPECT_EQ(kinds[2]["kind"], "sim:cuda");
  EXPECT_EQ(kinds[2]["devices"].size(), 2u);
}

TEST(Introspect, CopiesGoBetweenMemoryOfAnyKinds) {
  const auto sent = some_bytes();
  void *a = nullptr, *b = nullptr;
  ASSERT_EQ(hetcclInternalMemAllocOn(kKinds[0], 1, kBytes, &a), hetcclSuccess) << last_error();
  ASSERT_EQ(hetcclInternalMemAllocOn(kKinds[1], 0, kBytes, &b), hetcclSuccess) << last_error();
  std::vector<uint8_t> got(kBytes);
  EXPECT_EQ(hetcclInternalCopy(a, sent.data(), kBytes), hetcclSuccess) << last_error();
  EXPECT_EQ(hetcclInternalCopy(b, a, kBytes), hetcclSuccess) << last_error();
  EXPECT_EQ(hetcclInternalCopy(got.data(), b, kBytes), hetcclSuccess) << last_error();
  EXPECT_EQ(got, sent);
  EXPECT_EQ(hetcclMemFree(a), hetcclSuccess);
  EXPECT_EQ(hetcclMemFree(b), hetcclSuccess);
}

TEST(Introspect, StreamsCopyInTheBackground) {
  for (const auto kind : kKinds) {
    const auto sent = some_bytes();
    hetcclStream_t stream = nullptr;
    void *memory = nullptr, *pinned = nullptr;
    ASSERT_EQ(hetcclInternalStreamCreate(kind, 0, &stream), hetcclSuccess) << last_error();
    ASSERT_EQ(hetcclInternalMemAllocOn(kind, 0, kBytes, &memory), hetcclSuccess);
    ASSERT_EQ(hetcclInternalHostAlloc(kind, 0, kBytes, &pinned), hetcclSuccess) << last_error();
    ASSERT_EQ(hetcclInternalCopy(memory, sent.data(), kBytes), hetcclSuccess);
    EXPECT_EQ(hetcclInternalStreamCopy(kind, 0, stream, pinned, memory, kBytes), hetcclSuccess);
    EXPECT_EQ(hetcclInternalStreamSynchronize(kind, 0, stream), hetcclSuccess) << last_error();
    const auto* bytes = static_cast<const uint8_t*>(pinned);
    EXPECT_EQ(std::vector<uint8_t>(bytes, bytes + kBytes), sent);
    EXPECT_EQ(hetcclInternalHostFree(kind, 0, pinned), hetcclSuccess);
    EXPECT_EQ(hetcclMemFree(memory), hetcclSuccess);
    EXPECT_EQ(hetcclInternalStreamDestroy(kind, 0, stream), hetcclSuccess);
  }
}

TEST(Introspect, ErrorsHaveACause) {
  void* memory = nullptr;
  EXPECT_EQ(hetcclInternalMemAllocOn(kKinds[0], 99, kBytes, &memory), hetcclInvalidArgument);
  EXPECT_NE(last_error().find("99"), std::string::npos) << last_error();
  EXPECT_EQ(memory, nullptr);
  EXPECT_EQ(hetcclInternalMemAllocOn(kKinds[0], 0, kBytes, nullptr), hetcclInvalidArgument);
  EXPECT_NE(last_error().find("NULL"), std::string::npos) << last_error();
  EXPECT_EQ(hetcclInternalStreamCreate(kKinds[0], 0, nullptr), hetcclInvalidArgument);
  EXPECT_EQ(hetcclInternalHostAlloc(kKinds[0], 0, kBytes, nullptr), hetcclInvalidArgument);
  int not_a_stream = 0;
  EXPECT_EQ(hetcclInternalStreamSynchronize(kKinds[0], 0, &not_a_stream), hetcclInvalidArgument);
  EXPECT_NE(last_error(), "");
  EXPECT_NE(hetcclInternalMemAllocOn(hetcclMemoryHost, 0, kBytes, &memory), hetcclSuccess);
}

}  // namespace

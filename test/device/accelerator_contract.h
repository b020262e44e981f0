// What every accelerator must do, whatever its vendor: tests over a kind of memory. Where the
// kind's back end is absent, they are skipped with its reason.
//
// Thread rule: one thread.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lib/device/accelerator.h"

namespace hetccl::device {

using Bytes = std::vector<uint8_t>;

// Bytes that tell their place, different for each seed.
Bytes pattern(size_t bytes, unsigned seed);

// A device with what most tests of it need.
class AcceleratorTest : public testing::Test {
 protected:
  // Opens the device, or skips the test.
  void open(Kind kind, int ordinal = 0);
  void TearDown() override;

  std::byte* allocate(size_t bytes);       // freed at the end
  std::byte* allocate_host(size_t bytes);  // as well
  std::unique_ptr<Queue> make_queue();
  std::unique_ptr<Event> make_event();
  // Through the test's own queue.
  void upload(void* device, const Bytes& data);
  Bytes download(const void* device, size_t bytes);
  bool done(const Event& event);
  static bool idle(Queue* queue);
  // True once the queue is idle; waits for it, within reason.
  static bool becomes_idle(Queue* queue);

  Backend* backend_ = nullptr;
  Accelerator* device_ = nullptr;
  std::unique_ptr<Queue> queue_;
  std::vector<void*> memory_, host_memory_;
};

class AcceleratorContract : public AcceleratorTest, public testing::WithParamInterface<Kind> {
 protected:
  void SetUp() override { open(GetParam()); }
};

std::string test_name(const testing::TestParamInfo<Kind>& info);  // "sim_cuda"

#define EXPECT_OK(expression) EXPECT_EQ(message_of(expression), "")
#define ASSERT_OK(expression) ASSERT_EQ(message_of(expression), "")

inline std::string message_of(const Status& s) { return s.message(); }
template <typename T>
std::string message_of(const Result<T>& r) {
  return r.status().message();
}

}  // namespace hetccl::device

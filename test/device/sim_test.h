// What tests of the simulated device share.
//
// Thread rule: one thread.
#pragma once

#include <string>

#include "lib/device/sim/sim.h"
#include "test/device/accelerator_contract.h"

namespace hetccl::device {

inline constexpr int kDevices = 4;
inline constexpr size_t kMemory = 64 << 20;

inline SimOptions usual() {
  SimOptions o;
  o.devices = kDevices;
  o.memory = kMemory;
  return o;
}

class SimTest : public AcceleratorTest {
 protected:
  void SetUp() override {
    ASSERT_OK(configure_sim(usual()));
    open(hetcclMemorySimCuda);
  }
  void TearDown() override {
    EXPECT_OK(configure_sim(usual()));
    AcceleratorTest::TearDown();
  }
  // Devices 2 and 3 get lost in tests.
  Accelerator* device(int ordinal) { return *backend_->device(ordinal); }
};

inline bool mentions(const Status& s, const std::string& text) {
  return s.message().find(text) != std::string::npos;
}

}  // namespace hetccl::device

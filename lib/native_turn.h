// A call's place in a native stream: the call starts after the work given to the stream before it,
// and what is given later waits for the call. No thread waits for either.
//
// Thread rule: one thread at a time.
#pragma once

#include <hetccl/hetccl.h>

#include <memory>

#include "lib/base/status.h"
#include "lib/device/accelerator.h"

namespace hetccl {

class NativeTurn {
 public:
  NativeTurn() = default;  // in no stream: has come, and nobody waits
  NativeTurn(NativeTurn&&) = default;
  NativeTurn& operator=(NativeTurn&&) = delete;
  ~NativeTurn() { end(); }

  // The stream's place is taken now; the stream waits until end(), if the device can keep it
  // waiting. hetcclInvalidArgument: no stream of this device. hetcclInvalidUsage: it is being
  // captured.
  static Result<NativeTurn> take(device::Accelerator* accelerator, hetcclStream_t stream);

  bool waits_for_us() const { return gate_ != nullptr; }
  // Whether the work before has run.
  Result<bool> has_come();
  // The stream goes on.
  void end();

 private:
  device::Accelerator* accelerator_ = nullptr;
  std::unique_ptr<device::Queue> queue_;
  std::unique_ptr<device::Event> event_;
  std::unique_ptr<device::Gate> gate_;
};

}  // namespace hetccl

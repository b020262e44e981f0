// What a hetcclComm_t points to. The mark tells a live communicator from garbage.
#pragma once

#include <hetccl/hetccl.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "lib/base/status.h"
#include "lib/communicator.h"

struct hetcclComm {
  static constexpr uint64_t kLive = 0x6865746363636F6Dull;
  uint64_t mark = kLive;
  std::unique_ptr<hetccl::Communicator> communicator;
  std::mutex mutex;
  std::string last_error;  // of a call on it, under `mutex`
};

namespace hetccl {

inline bool is_live(hetcclComm_t comm) {
  return comm != nullptr && comm->mark == hetcclComm::kLive;
}

inline Status check_handle(hetcclComm_t comm) {
  if (comm == nullptr) return invalid_argument("the communicator is NULL");
  if (comm->mark != hetcclComm::kLive) {
    return invalid_argument("the handle is not a communicator, or one that was destroyed");
  }
  return {};
}

}  // namespace hetccl

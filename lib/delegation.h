// Letting the vendor's own library run the calls that it has, where all ranks of a communicator are
// GPUs of that vendor. Whether, and with which version, is agreed when the communicator is made and
// found by trying; which calls, follows from their arguments and the settings alone.
//
// A delegated call is run like any other up to its turn, and begins with a meeting of all ranks
// over the library's own lane, in which their argument lists are compared. Only then is it given to
// the vendor's library: nothing of it runs on a device while a rank is still missing, and ranks
// that disagree never get there.
//
// Thread rule: one thread at a time, the one that runs the communicator's call.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lib/base/status.h"
#include "lib/call.h"
#include "lib/device/accelerator.h"
#include "lib/device/vendor_collectives.h"
#include "lib/device_run.h"
#include "lib/scratch.h"

namespace hetccl {

struct DelegationSearch {
  int rank;
  std::vector<int> kinds;            // of all ranks' devices
  std::vector<std::string> hosts;    // of all ranks
  device::Accelerator* accelerator;  // of this rank; null: none
  std::string setting;               // HETCCL_DELEGATE, equal on all ranks
  bool reproducible;                 // equal on all ranks
  std::string library;               // HETCCL_DELEGATE_LIBRARY, each rank's own
  double limit_s;                    // for the vendor's library to join all ranks
  // Collects a text of every rank, in rank order.
  std::function<Status(std::string mine, std::vector<std::string>* all)> allgather;
  std::function<Status()> failure;  // of the communicator: ends waits
};

class Delegation {
 public:
  // What is plain from `setting` and `kinds`: hetcclInvalidUsage where the former is require and
  // devices are not of one vendor. To be asked before ranks depend on each other.
  static Status check(const std::string& setting, const std::vector<int>& kinds);
  // Collective. Without a library that can be used, an object that takes no call; with
  // HETCCL_DELEGATE=require hetcclInvalidUsage on all ranks.
  static Result<std::unique_ptr<Delegation>> agree(const DelegationSearch& search);
  ~Delegation();

  // "nccl"; null: nothing is delegated.
  const char* name() const { return group_ != nullptr ? library_->name() : nullptr; }
  // For people: to what, or why to nothing. Equal on all ranks.
  const std::string& reason() const { return reason_; }
  // Equal on all ranks. REQUIRES: the call's arguments are sound.
  bool takes(const Call& call) const;

  // What is not this device's memory is copied there: a rank's memory is its own affair.
  Status begin(const Call& call, const Where& where, const Extents& extents);
  // Once all ranks have met. Polled: true when the call has ended.
  Result<bool> finished();
  // Ends what is under way, and the delegation with it.
  void abandon();

 private:
  // Device memory that stands in for a buffer elsewhere.
  struct Copy {
    void* memory = nullptr;
    size_t size = 0;                       // of memory
    bool in_use = false;                   // by the call
    device::Accelerator* owner = nullptr;  // of the buffer; null: host memory
    std::byte* buffer = nullptr;
    size_t bytes = 0;
  };
  enum class Stage { kEntering, kRunning, kLeaving };

  Delegation(const DelegationSearch& search);
  Status find(const DelegationSearch& search);
  Status find_library(const DelegationSearch& search, std::string* id);
  Status join(const DelegationSearch& search, const std::string& id);
  Status join_alone(const DelegationSearch& search, const std::string& id);
  Status try_out(const DelegationSearch& search, std::chrono::steady_clock::time_point end);
  Status make_copy(Copy* copy, device::Accelerator* owner, const void* buffer, size_t bytes);
  Status copy_in();
  Status copy_out();
  Result<bool> step();

  const int ranks_;
  device::Accelerator* const accelerator_;
  const bool all_numbers_;  // also those that differ from ours
  const device::VendorLibrary* library_ = nullptr;
  std::unique_ptr<device::VendorGroup> group_;
  std::string reason_;

  Stage stage_ = Stage::kEntering;
  device::VendorCall call_{};
  Copy send_, recv_;
  std::vector<void*> outgrown_;
  Scratch host_;  // on the way between devices of two vendors
  Status trouble_;
  std::chrono::steady_clock::time_point trouble_since_;
};

}  // namespace hetccl

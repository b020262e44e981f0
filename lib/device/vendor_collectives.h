// The collectives of a GPU vendor's own library, NCCL or RCCL. Both have the same C interface, of
// which the few functions used are declared in vendor_collectives.cc: no header of theirs is
// needed, and the library is loaded when it is first asked for.
//
// Groups are made non-blocking, so that no function waits for another rank: what has been asked for
// is under way until ready() says otherwise.
//
// Thread rule: VendorLibrary: any thread. VendorGroup: one thread at a time.
// Errors: the library's code, where ours has the same meaning, and its text.
#pragma once

#include <hetccl/hetccl.h>

#include <memory>
#include <string>

#include "lib/base/status.h"
#include "lib/device/accelerator.h"

namespace hetccl::device {

// What the library makes of a reduction, compared to ours.
enum class VendorNumbers {
  kNone,   // it has none, or one that gives wrong values
  kOther,  // sums of its own order and rounding, its own way with NaN
  kSame,   // there is one right result
};
VendorNumbers vendor_numbers(hetcclDataType_t type, hetcclRedOp_t op);

// Buffers, counts and root are as in hetccl.h.
struct VendorCall {
  enum class Collective {
    kAllReduce,
    kReduce,
    kReduceScatter,
    kBroadcast,
    kAllGather,
    kAllToAll,  // not in place
  };
  Collective collective;
  const void* send;
  void* recv;
  size_t count;
  hetcclDataType_t type;
  hetcclRedOp_t op;  // of reductions
  int root;
};

struct VendorFunctions;

class VendorLibrary {
 public:
  // Once a path, for the life of the process: such libraries do not bear being unloaded. An empty
  // path: the vendor's, by its usual name. hetcclInvalidUsage: there is none, and why.
  static Result<const VendorLibrary*> load(Kind kind, const std::string& path);

  const char* name() const { return name_; }  // "nccl"
  int version() const { return version_; }    // as the library numbers it
  std::string description() const;            // "nccl 2.28.9"
  // Made by one rank of a group, for all.
  Result<std::string> make_id() const;

 private:
  friend class VendorGroup;
  VendorLibrary(const char* name, const VendorFunctions* functions, int version)
      : name_(name), functions_(*functions), version_(version) {}
  static Result<const VendorLibrary*> open(Kind kind, const std::string& path);

  const char* const name_;
  const VendorFunctions& functions_;
  const int version_;
};

// A communicator of the library's.
class VendorGroup {
 public:
  // Every rank must come with the id, or ready() never says true.
  static Result<std::unique_ptr<VendorGroup>> join(const VendorLibrary* library,
                                                   Accelerator* accelerator, const std::string& id,
                                                   int ranks, int rank);
  ~VendorGroup();  // abandons, unless it was left

  // True: joined, and all calls are in the queue. To be polled after join() and start(). An error
  // of what is under way on the device comes here too.
  Result<bool> ready();
  // Puts the call into the queue; the last one is ready. Pointers are of the group's device.
  Status start(const VendorCall& call);
  Queue& queue() { return *queue_; }

  // Waits, but not longer, until the other ranks have taken what this one gave; then ends.
  void leave(double seconds);
  // Ends at once, in bounded time: nothing of the group runs on the device afterwards, unless the
  // library got stuck.
  void abandon();
  // What it works on must then be kept for ever.
  bool is_stuck() const { return stuck_; }

 private:
  VendorGroup(const VendorLibrary* library, Accelerator* accelerator, int ranks)
      : library_(*library),
        functions_(library->functions_),
        accelerator_(*accelerator),
        ranks_(ranks) {}
  Status open_queue();
  Status failure(const char* function, int code) const;
  int enqueue(const VendorCall& call, const void* send, void* recv) const;
  int exchange(const void* send, void* recv, size_t bytes) const;
  void end_by(int (*function)(void*), const char* name);

  const VendorLibrary& library_;
  const VendorFunctions& functions_;
  Accelerator& accelerator_;
  const int ranks_;
  void* group_ = nullptr;
  hetcclStream_t stream_ = nullptr;
  std::unique_ptr<Queue> queue_;
  bool stuck_ = false;
};

}  // namespace hetccl::device

// The control plane of a session: the ranks that one creation call brought together, in one tree of
// sockets that a thread of each process serves. It carries what the data path must not: deaths,
// aborts, the exchange of cards when communicators are made, and the comparison of argument lists.
// A session outlives its communicators until all its processes have said good-bye, so that
// communicators split from it share its sockets.
//
// Thread rule: any thread. Listeners are called on the control thread and must not block or call
// back into the session except for answer functions that say so.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lib/base/status.h"

namespace hetccl::net {

// Where a rank is. Compared, never resolved.
struct Place {
  std::string node;  // HETCCL_NODE, or boot id and network namespace
  std::string
      shared_memory;  // ranks of equal value can map each other's memory: node and IPC namespace
  std::string host;   // for people
  int pid = 0;
};

struct SessionOptions {
  std::string node_override;  // HETCCL_NODE or hetcclConfig_t::node; empty: found
  std::string interfaces;     // HETCCL_SOCKET_IFNAME
  double timeout_s = 600;     // HETCCL_TIMEOUT; 0: for ever
};

// The caller's exchange: `bytes_each` of every rank, in rank order; 0 on success.
using Allgather = std::function<int(const void* mine, void* all, size_t bytes_each)>;

// What a communicator's rank was asked to do in its k-th collective call.
struct CallRecord {
  uint64_t hash = 0;  // equal iff the argument lists agree
  std::string text;   // "allreduce count=100 type=float32 op=sum"
};

// A communicator, as its session sees it.
class GroupListener {
 public:
  virtual ~GroupListener() = default;
  // A member died, aborted, or all members learn that the ranks disagree. Called once or more.
  virtual void on_failure(const Status& why) = 0;
  // The argument list of call `sequence`; false if this rank has not made it yet.
  virtual bool describe_call(uint64_t sequence, CallRecord* record) = 0;
};

using GroupId = uint64_t;

class Session {
 public:
  // Collective over all ranks of `allgather`, which is called exactly once, with a record of fixed
  // size. Bounded by the time-out. `rank` is the session rank from here on.
  static Result<std::shared_ptr<Session>> create(int ranks, int rank, const Allgather& allgather,
                                                 const SessionOptions& options);
  virtual ~Session() = default;

  virtual int ranks() const = 0;
  virtual int rank() const = 0;
  virtual const Place& place(int rank) const = 0;
  // Whether the rank is known here to have died or left the session. True is for ever, and comes to
  // be known to all; a group with a rank that died has failed before.
  virtual bool is_lost(int rank) const = 0;

  // Makes `members` (session ranks, in the order of their ranks in the group) known under `id`,
  // equal on all members and unique in the session. Deaths that happened before are reported at
  // once. `listener` outlives the registration.
  virtual Status join(GroupId id, std::vector<int> members, GroupListener* listener) = 0;
  virtual void leave(GroupId id) = 0;  // no callback is running or will run after it returns

  // Collects a string of every member of a joined group, in group order. Collective; the k-th call
  // of one member meets the k-th of the others. Fails within the time-out, or when the group fails.
  virtual Status allgather(GroupId id, const std::string& mine, std::vector<std::string>* all,
                           std::chrono::steady_clock::time_point deadline) = 0;

  // Tells all other members that the group is at its end, and why. `code` is what they get.
  virtual void announce_failure(GroupId id, hetcclResult_t code, const std::string& text) = 0;

  // Asks all members for their argument list of call `sequence` and compares. If two differ, every
  // member's on_failure gets hetcclInvalidUsage that names two ranks and both lists. Ranks that
  // have not made the call yet are asked again when asked again. Returns at once.
  virtual void compare_calls(GroupId id, uint64_t sequence) = 0;
};

// --- meeting by a unique id (TCP), for jobs without MPI.
// Starts serving a meeting in this process, on the control thread.
Result<hetcclUniqueId> open_meeting(const SessionOptions& options);
// The exchange that joining the meeting offers; to be handed to Session::create.
Allgather meeting_allgather(const hetcclUniqueId& id, int ranks, int rank,
                            const SessionOptions& options, Status* why);

}  // namespace hetccl::net

// Groups of calls, and the calls that exist outside the collective sequence. A call in a group is
// checked at once and made when the group ends; all calls of a group progress together, so that it
// does not matter in what order the ranks name them, but for collectives of one communicator, whose
// order is what matches them.
//
// Thread rule: a group is its thread's own.
#pragma once

#include <hetccl/hetccl.h>

#include "lib/base/status.h"
#include "lib/call.h"

namespace hetccl {

class Communicator;

class Group {
 public:
  // Whether this thread is in a group.
  static bool open() { return depth_ != 0; }
  static void start() { ++depth_; }
  // Of the outermost: makes the calls, and waits for those that were given no stream.
  static Status end();

  // A collective of the group that is open.
  static Status add(Communicator* communicator, const Call& call, hetcclStream_t stream);

  struct Message {
    bool sends;
    const void* memory;  // only read, if it sends
    size_t count;
    DataType type;
    int peer;
  };
  // Send or Recv, of the group that is open or by itself.
  static Status add(Communicator* communicator, const Message& message, hetcclStream_t stream);

 private:
  static inline thread_local int depth_ = 0;
};

}  // namespace hetccl

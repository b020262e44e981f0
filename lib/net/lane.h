// A lane carries one communicator's messages: for each ordered pair of ranks a stream of messages,
// reliable and in order, the k-th sent received k-th. Messages are small (a chunk at most), so that
// whoever runs a plan overlaps them.
//
// Thread rule: one thread at a time, the one that holds the communicator. Nothing here blocks,
// and after a pair's first use nothing allocates for small messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "lib/base/status.h"

namespace hetccl::net {

class ShmPair;

struct Piece {
  const std::byte* data;
  size_t bytes;
};

// Travels with each message; both ends compare it with their own.
struct Envelope {
  uint64_t signature;  // of the call
  uint32_t form = 0;   // what the bytes are, by agreement of the two users of the lanes; 0: data
};

struct Received {
  const std::byte* data;  // valid until release(); == the posted destination if it landed there
  size_t bytes;
  uint64_t signature;
  uint32_t form = 0;
};

class Lane {
 public:
  virtual ~Lane() = default;

  virtual size_t max_message() const = 0;  // bytes

  // --- sending. False: no credit now, ask again after progress(). True: accepted as the next
  // message to `peer`. `stable`: the pieces stay unchanged until sends_done() counts this message,
  // even if the receiver is slow (so that they may be read in place); otherwise the lane may hold
  // on to them only for as long as this needs no action of the receiver's plan.
  virtual bool try_send(int peer, std::span<const Piece> pieces, Envelope envelope,
                        bool stable) = 0;
  // False: try_send() would refuse now, until the peer releases a message.
  virtual bool has_credit(int peer) = 0;
  // Messages to `peer` that were accepted so far.
  virtual uint64_t sends_accepted(int peer) = 0;
  // Messages to `peer`, counted from the first, whose pieces may be overwritten.
  virtual uint64_t sends_done(int peer) = 0;

  // Messages to `peer`, counted from the first, that its receiver is known to have released.
  virtual uint64_t sends_released(int peer) = 0;

  // --- receiving. Announces where the next message not yet announced from `peer` shall land.
  // destination == nullptr: in memory of the lane's choice. Otherwise `bytes` there are writable
  // from now on, and the lane may put data there or leave it elsewhere. `on_device`: the network
  // reaches the destination, the processor does not. False: no room now.
  // Announcing ahead is optional for peers that share memory.
  virtual bool try_announce(int peer, std::byte* destination, size_t bytes, bool on_device) = 0;
  // False: messages of `peer` need no announcement; try_announce() is then a matter of form.
  virtual bool wants_announcements(int peer) const = 0;
  // The oldest unreleased message plus `ahead`, or false while it has not come.
  virtual bool try_receive(int peer, unsigned ahead, Received* message) = 0;
  // The oldest message of `peer` is no longer needed.
  virtual void release(int peer) = 0;

  // Does the network's work. True if something moved. Failures of a peer come back here or through
  // the control plane, whichever is first.
  virtual Result<bool> progress() = 0;

  // The caller will not call progress() for a while: what is still under way must not depend on it.
  virtual void pause() {}

  // All messages that this rank sent have been consumed, and none is under way to it: the lane can
  // be destroyed with no harm to others.
  virtual bool quiet() = 0;

  // The pair that serves `peer`, for those who cannot spare the virtual calls; null: it shares no
  // memory, or what the lane does is more than the pair does.
  virtual ShmPair* shared_pair(int) { return nullptr; }

  // "shared memory" or "tcp, active messages": for logs and hetccl_info.
  virtual std::string describe(int peer) const = 0;
};

}  // namespace hetccl::net

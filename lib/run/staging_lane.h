// A lane for buffers in device memory, over a lane that knows host memory only. What is sent is
// copied out to a staging block in the background and then given to the lane below; what arrives is
// copied in, to its announced destination or to a slot in device memory. Chunks overlap: while one
// travels, the next is copied out and the one before is copied in and reduced.
//
// Where two ranks' devices reach each other, nothing is staged: within a node a message may name
// device memory, which the receiver's device then reads where it lies; over a network that reaches
// device memory, messages leave from it and land in it.
//
// A message received here has device memory as its data, readable by what the port is given from
// then on, not by the processor. Messages on the wire are those of the lane below: a peer's memory
// makes no difference.
//
// Thread rule: as Lane. The lane below is used through this one until idle() again.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <vector>

#include "lib/net/lane.h"
#include "lib/run/peer_memory.h"
#include "lib/run/port.h"
#include "lib/run/staging_pool.h"

namespace hetccl::run {

// How data in device memory travel between this rank and one other. Agreed by the two.
struct DevicePath {
  bool ipc_out = false;  // the other reads this rank's device memory
  bool ipc_in = false;   // this rank's device reads the other's
  bool direct = false;   // the network reads and writes the device memory of both
};

// The form of a message that names memory (net::Envelope).
inline constexpr uint32_t kNamesMemory = 1;

class StagingLane final : public net::Lane {
 public:
  StagingLane(net::Lane* below, Port* port, PeerMemory* memory, StagingPool* pool,
              std::vector<DevicePath> paths, size_t depth);
  ~StagingLane() override;

  size_t max_message() const override { return below_->max_message(); }
  bool try_send(int peer, std::span<const net::Piece> pieces, net::Envelope envelope,
                bool stable) override;
  bool has_credit(int peer) override { return peers_[peer].out.size() < depth_; }
  uint64_t sends_accepted(int peer) override { return peers_[peer].accepted; }
  uint64_t sends_done(int peer) override;
  uint64_t sends_released(int peer) override;
  bool try_announce(int peer, std::byte* destination, size_t bytes, bool on_device) override;
  bool wants_announcements(int) const override { return true; }
  bool try_receive(int peer, unsigned ahead, net::Received* message) override;
  void release(int peer) override;
  Result<bool> progress() override;
  bool quiet() override { return idle() && below_->quiet(); }
  std::string describe(int peer) const override;

  // Nothing of this lane is under way on this rank.
  bool idle() const { return active_.empty(); }

 private:
  // Goes back to the pool with its last user: messages to several peers share one.
  struct Block {
    StagingPool* pool;
    std::byte* memory;
    size_t bytes;
    bool in_place;  // may be read where it is, in the peers' own time
    ~Block() { pool->give_back(memory, bytes); }
  };
  using BlockPtr = std::shared_ptr<Block>;
  enum class Way : uint8_t { kStaged, kNamed, kDirect };
  struct Outgoing {
    Way way = Way::kStaged;
    std::vector<Port::Part> parts;
    size_t bytes = 0;
    net::Envelope envelope{};
    bool stable = false;
    Port::Mark after;  // the data are there
    BlockPtr block;
    std::string name;  // of its memory
    Port::Mark copied;
    bool in_place = false;  // the peer may read the block where it is, in its own time
    bool staged = false;    // block and mark are set; without bytes there is no block
  };
  // What the lane below may still read.
  struct Lent {
    BlockPtr block;  // null: `name` instead
    std::string name;
    bool in_place;
    uint64_t number;  // of the message below
  };
  // A message that the lane below has accepted.
  struct Sent {
    uint64_t number;  // there
    Way way;
  };
  struct Incoming {
    std::byte* place = nullptr;  // as announced; may be null
    size_t bytes = 0;
    Port::Mark after;            // the place may be written
    std::byte* block = nullptr;  // announced below, or
    bool direct = false;         // `data` is
    // Once the message has come:
    std::byte* data = nullptr;
    bool in_slot = false;
    bool named = false;  // `data` is the sender's memory
    uint64_t held = 0;   // its number among the messages held below
    Port::Mark landed;
    bool waited = false;  // the port's work waits for it
    uint64_t signature = 0;
  };
  // A block that a copy into the device reads.
  struct Landing {
    std::byte* block;
    size_t bytes;
    Port::Mark read;
  };
  // A message below that is not released.
  struct Held {
    Port::Mark read;
    bool in_use;  // until release() here; `read` is not known yet
  };
  struct Peer {
    std::deque<Outgoing> out;
    std::deque<Sent> sent;  // whose parts may still be read
    std::deque<Lent> lent;
    size_t lent_in_place = 0;
    std::deque<Incoming> in;
    size_t announced = 0;  // of `in`, below
    size_t come = 0;       // of `in`
    std::deque<Held> held;
    uint64_t held_before = 0;
    std::deque<Landing> landing;
    uint64_t accepted = 0, done = 0;
    bool active = false;
  };

  // What was copied out lately, for sends of the same data to other peers.
  struct Recent {
    const void* device;
    size_t bytes;
    Port::Mark after;
    std::weak_ptr<Block> block;
    Port::Mark copied;
  };

  void activate(int peer);
  bool stage(Outgoing* message);
  bool share(Outgoing* message);
  bool hand_over(int peer);
  bool try_hand_over(int peer, Outgoing* message);
  bool announce_below(int peer);
  bool announce_one(int peer, Incoming* incoming, bool first);
  bool take_messages(int peer);
  bool land(int peer, Incoming* expected, const net::Received& message);
  void copy_in(Peer* peer, Incoming* expected, const net::Received& message,
               const Port::Mark& after);
  bool stage_waiting(int peer);
  bool release_read(int peer);
  bool take_back_lent(int peer);
  bool revoke(int peer);
  bool may_go(int peer, const Outgoing& message, bool in_place);
  void set_starving(bool starving);

  void choose_way(int peer, Outgoing* message);
  void hold(Peer* peer, Incoming* incoming, const Port::Mark& read, bool in_use);
  bool use_named(int peer, Incoming* expected, const net::Received& message);

  net::Lane* const below_;
  Port* const port_;
  PeerMemory* const memory_;
  StagingPool* const pool_;
  const std::vector<DevicePath> paths_;
  const size_t depth_;
  std::vector<Peer> peers_;
  std::vector<int> active_;
  std::array<Recent, 32> recent_ = {};
  size_t next_recent_ = 0;
  bool starving_ = false;  // as the pool knows
  bool wanting_ = false;   // in this round of progress()
  Status failure_;
};

}  // namespace hetccl::run

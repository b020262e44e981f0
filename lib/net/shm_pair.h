// A pair of ranks that map each other's memory. Small messages are copied into the receiver's
// mailbox; larger ones are read by the receiver where they lie: in library memory of the sender if
// they are there and stay unchanged, else in a chunk of the sender's that they are copied to.
// No system call, lock, allocation or UCX call on the way.
#pragma once

#include <vector>

#include "lib/net/mailbox.h"
#include "lib/net/net_pair.h"
#include "lib/net/shm_peer.h"

namespace hetccl::net {

class ShmPair final : public NetPair {
 public:
  struct Parts {
    MailLayout layout;
    size_t depth;
    size_t chunk_bytes;
    const Arena* arena;
    ShmPeer* peer;
    std::byte* own_slots;      // where the peer's messages arrive
    MailLedger* own_ledger;    // where the peer acknowledges
    std::byte* peer_slots;     // the peer's mailbox for this rank
    MailLedger* peer_ledger;   // the peer's ledger for this rank
    std::byte* chunks;         // depth * chunk_bytes of this rank's arena
    Location chunks_location;  // the same, as the peer finds it
    bool* trouble;             // set when status() is worth asking for
  };
  explicit ShmPair(const Parts& parts);
  // Tells the peer that its region is not touched any more.
  ~ShmPair() override;

  bool try_send(std::span<const Piece> pieces, size_t bytes, Envelope envelope,
                bool stable) override;
  bool has_credit() override;
  uint64_t sends_accepted() const override { return sent_; }
  uint64_t sends_done() override;
  uint64_t sends_released() override;
  bool try_announce(std::byte* destination, size_t bytes, bool on_device) override;
  bool wants_announcements() const override { return false; }
  bool try_receive(unsigned ahead, Received* message) override;
  void release() override;
  bool progress() override { return false; }
  bool quiet() override;
  Status status() const override;
  std::string describe() const override { return "shared memory"; }

 private:
  void place(MailSlot* slot, size_t index, std::span<const Piece> pieces, size_t bytes,
             bool stable);

  Parts p_;
  // A slot's number is its message's modulo the depth, kept because a division costs as much as a
  // small message.
  size_t next_slot(size_t slot) const { return slot + 1 == p_.depth ? 0 : slot + 1; }

  uint64_t sent_ = 0;
  size_t send_slot_ = 0;       // of the next message
  uint64_t acknowledged_ = 0;  // as last read
  uint64_t done_ = 0;
  uint64_t released_ = 0;
  size_t receive_slot_ = 0;  // of the oldest unreleased message
  size_t in_place_count_ = 0;
  bool unmapped_ = false;       // a message could not be reached: see status()
  std::vector<bool> in_place_;  // of the messages that are not acknowledged, by slot
};

}  // namespace hetccl::net

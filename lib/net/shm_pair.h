// A pair of ranks that map each other's memory. Small messages are copied into the receiver's
// mailbox; larger ones are read by the receiver where they lie: in library memory of the sender if
// they are there and stay unchanged, else in chunks of the sender's that they are copied to.
// No system call, lock, allocation or UCX call on the way.
//
// Writing a cache line that the reader still holds costs several times as much as writing one that
// its cache has let go. So chunks go round in a ring larger than a second-level cache; only short
// ones, which the first level holds, come back as soon as they are released. That is known early,
// as every message tells how many of the other direction have been released.
#pragma once

#include <array>
#include <cstring>
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
    const Arena* arena;
    ShmPeer* peer;
    std::byte* own_slots;     // where the peer's messages arrive
    MailLedger* own_ledger;   // where the peer acknowledges
    std::byte* peer_slots;    // the peer's mailbox for this rank
    MailLedger* peer_ledger;  // the peer's ledger for this rank
    std::byte* chunks;        // of this rank's arena: a ring, and the short ones behind it
    size_t ring_bytes;
    Location chunks_location;  // the same, as the peer finds it
    bool* trouble;             // set when status() is worth asking for
  };
  explicit ShmPair(const Parts& parts);
  // How large a ring must and should be, and the whole of the chunks.
  static size_t ring_bytes(size_t depth, size_t chunk_bytes, size_t peers);
  static size_t chunks_bytes(size_t ring) { return ring + kShortChunks * kShortBytes; }
  // Tells the peer that its region is not touched any more.
  ~ShmPair() override;

  bool try_send(std::span<const Piece> pieces, size_t bytes, Envelope envelope,
                bool stable) override;
  bool has_credit() override {
    if (sent_ - acknowledged_ < p_.depth) [[likely]]
      return true;
    acknowledged_ = p_.own_ledger->released.load(std::memory_order_acquire);
    return sent_ - acknowledged_ < p_.depth;
  }
  uint64_t sends_accepted() const override { return sent_; }
  uint64_t sends_done() override { return done_ == sent_ ? done_ : count_done(); }
  uint64_t sends_released() override;
  bool try_announce(std::byte* destination, size_t bytes, bool on_device) override;
  bool wants_announcements() const override { return false; }
  bool try_receive(unsigned ahead, Received* message) override;
  void release() override {
    ++released_;
    receive_slot_ = next_slot(receive_slot_);
    p_.peer_ledger->released.store(released_, std::memory_order_release);
  }

  // The same as the above for one piece and for the oldest message, without a virtual call.
  bool send(const std::byte* data, size_t bytes, Envelope envelope, bool stable) {
    if (!has_credit()) return false;
    if (in_place_count_ != 0) count_acknowledged();  // before their slots are used again
    MailSlot* const slot = p_.layout.slot(p_.peer_slots, send_slot_);
    if (bytes <= kNearBytes) {
      slot->payload = Payload::kNear;
      copy_near(slot->near, data, bytes);
    } else {
      const Piece piece{data, bytes};
      place(slot, send_slot_, {&piece, 1}, bytes, stable);
    }
    post(slot, bytes, envelope);
    return true;
  }
  bool receive(Received* message) {
    MailSlot* const slot = p_.layout.slot(p_.own_slots, receive_slot_);
    if (slot->sequence.load(std::memory_order_acquire) != released_ + 1) return false;
    return open(slot, message);
  }

  bool progress() override { return false; }
  bool quiet() override;
  Status status() const override;
  std::string describe() const override { return "shared memory"; }

 private:
  static constexpr size_t kShortChunks = 3;
  static constexpr size_t kShortBytes = 8 << 10;
  size_t take_chunk(size_t bytes);

  void place(MailSlot* slot, size_t index, std::span<const Piece> pieces, size_t bytes,
             bool stable);
  uint64_t count_done();
  void count_acknowledged();
  const std::byte* elsewhere(const MailSlot* slot);

  // What is placed in the slot of the next message, and is its flag's last.
  void post(MailSlot* slot, size_t bytes, Envelope envelope) {
    slot->signature = envelope.signature;
    slot->form = envelope.form;
    slot->bytes = static_cast<uint32_t>(bytes);
    slot->released = static_cast<uint32_t>(released_);
    ++sent_;
    send_slot_ = next_slot(send_slot_);
    if (in_place_count_ == 0) done_ = sent_;
    slot->sequence.store(sent_, std::memory_order_release);
  }
  // What came in the slot. False: it cannot be reached.
  bool open(MailSlot* slot, Received* message) {
    const std::byte* data = slot->near;
    if (slot->payload == Payload::kInline) {
      data = slot->behind();
    } else if (slot->payload == Payload::kElsewhere) {
      data = elsewhere(slot);
      if (data == nullptr) return false;
    }
    const auto news = static_cast<int32_t>(slot->released - static_cast<uint32_t>(acknowledged_));
    if (news > 0) acknowledged_ += static_cast<uint32_t>(news);
    *message = Received{data, slot->bytes, slot->signature, slot->form};
    return true;
  }
  // Without a call, as the length is not known to the compiler.
  static void copy_near(std::byte* to, const std::byte* from, size_t bytes) {
    if (bytes >= 16) {
      copy_ends<16>(to, from, bytes);
    } else if (bytes >= 8) {
      copy_ends<8>(to, from, bytes);
    } else if (bytes >= 4) {
      copy_ends<4>(to, from, bytes);
    } else {
      for (size_t i = 0; i < bytes; ++i) to[i] = from[i];
    }
  }
  template <size_t kWidth>
  static void copy_ends(std::byte* to, const std::byte* from, size_t bytes) {
    std::array<std::byte, kWidth> first, last;
    std::memcpy(first.data(), from, kWidth);
    std::memcpy(last.data(), from + bytes - kWidth, kWidth);
    std::memcpy(to, first.data(), kWidth);
    std::memcpy(to + bytes - kWidth, last.data(), kWidth);
  }

  Parts p_;
  // A slot's number is its message's modulo the depth, kept because a division costs as much as a
  // small message.
  size_t next_slot(size_t slot) const { return slot + 1 == p_.depth ? 0 : slot + 1; }

  uint64_t sent_ = 0;
  size_t send_slot_ = 0;       // of the next message
  uint64_t acknowledged_ = 0;  // as last heard
  uint64_t done_ = 0;
  uint64_t released_ = 0;
  size_t receive_slot_ = 0;  // of the oldest unreleased message
  size_t in_place_count_ = 0;
  size_t ring_at_ = 0;  // where the next chunk begins
  size_t next_short_ = 0;
  std::array<uint64_t, kShortChunks> short_users_{};  // the last message in each
  bool unmapped_ = false;       // a message could not be reached: see status()
  std::vector<bool> in_place_;  // of the messages that are not acknowledged, by slot
};

}  // namespace hetccl::net

// A mailbox is where messages of one rank arrive from one peer: `depth` slots that are used in
// turn. Message k (counted from 1) goes to slot (k - 1) % depth and is there once the slot's
// sequence is k; so slots need no resetting, only zeroes in the beginning. The sender writes slots,
// the receiver reads them and writes the count of released messages into the sender's own ledger,
// so that each side's last touch is to memory of the other.
//
// Thread rule: one writer and one reader, which share nothing but the flags.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "lib/net/arena.h"

namespace hetccl::net {

inline constexpr size_t kNearBytes = 32;      // payload that shares the flag's cache line
inline constexpr size_t kInlineBytes = 2048;  // payload that travels in the slot

enum class Payload : uint32_t {
  kNear,       // in the header's line
  kInline,     // behind the header
  kElsewhere,  // in the sender's arena, at `near` as a Location
  kLanded,     // at the receiver's announced destination
};

struct alignas(64) MailSlot {
  std::atomic<uint64_t> sequence;
  uint64_t signature;
  uint32_t bytes;
  uint32_t released;  // shared memory: the low half of what the sender's ledger line says as well
  Payload payload;
  uint32_t form;  // of the envelope
  alignas(kNearBytes) std::byte near[kNearBytes];
  std::byte* behind() { return reinterpret_cast<std::byte*>(this) + sizeof(MailSlot); }
};
static_assert(sizeof(MailSlot) == 64);

// What the peer tells the owner about the owner's messages.
struct alignas(64) MailLedger {
  std::atomic<uint64_t> released;  // messages of the owner that the peer no longer needs
  std::atomic<uint64_t> closed;    // not zero: the peer will not touch the owner's region again
};

// Where a peer that puts may put a large message of the owner's. Written by the peer.
struct alignas(64) PutAnnouncement {
  std::atomic<uint64_t> sequence;  // of the message; the flag
  uint64_t address;                // in the peer
  uint64_t bytes;
  uint64_t key_bytes;
  std::array<std::byte, 480> key;
};
static_assert(sizeof(PutAnnouncement) == 512);

// Where things lie in a lane's region, peer by peer: the ledger, the slots of the mailbox, the
// announcements. The same on all ranks.
class MailLayout {
 public:
  MailLayout(size_t ranks, size_t depth, size_t chunk_bytes)
      : depth_(depth),
        inline_bytes_(chunk_bytes < kInlineBytes ? (chunk_bytes + 63) / 64 * 64 : kInlineBytes),
        slot_bytes_(sizeof(MailSlot) + inline_bytes_),
        slots_end_(sizeof(MailLedger) + depth * slot_bytes_),
        peer_bytes_(slots_end_ + depth * sizeof(PutAnnouncement)),
        ranks_(ranks) {}

  size_t inline_bytes() const { return inline_bytes_; }
  size_t slot_bytes() const { return slot_bytes_; }
  size_t region_bytes() const { return ranks_ * peer_bytes_; }
  MailLedger* ledger(std::byte* region, size_t peer) const {
    return reinterpret_cast<MailLedger*>(region + peer * peer_bytes_);
  }
  std::byte* slots(std::byte* region, size_t peer) const {
    return region + peer * peer_bytes_ + sizeof(MailLedger);
  }
  PutAnnouncement* announcements(std::byte* region, size_t peer) const {
    return reinterpret_cast<PutAnnouncement*>(region + peer * peer_bytes_ + slots_end_);
  }
  MailSlot* slot(std::byte* slots, size_t index) const {
    return reinterpret_cast<MailSlot*>(slots + index * slot_bytes_);
  }

  // Zeroes the flags.
  void clear(std::byte* region) const;

 private:
  size_t depth_;
  size_t inline_bytes_;
  size_t slot_bytes_;
  size_t slots_end_;
  size_t peer_bytes_;
  size_t ranks_;
};

}  // namespace hetccl::net

#include "lib/net/shm_pair.h"

#include <algorithm>
#include <cstring>

namespace hetccl::net {

void gather(std::span<const Piece> pieces, std::byte* destination) {
  for (const Piece& piece : pieces) {
    if (piece.bytes == 0) continue;
    std::memcpy(destination, piece.data, piece.bytes);
    destination += piece.bytes;
  }
}

ShmPair::ShmPair(const Parts& parts) : p_(parts), in_place_(parts.depth) {}

ShmPair::~ShmPair() { p_.peer_ledger->closed.store(1, std::memory_order_release); }

bool ShmPair::try_send(std::span<const Piece> pieces, size_t bytes, Envelope envelope,
                       bool stable) {
  if (!has_credit()) return false;
  if (in_place_count_ != 0) count_acknowledged();  // before their slots are used again
  MailSlot* slot = p_.layout.slot(p_.peer_slots, send_slot_);
  place(slot, send_slot_, pieces, bytes, stable);
  post(slot, bytes, envelope);
  return true;
}

void ShmPair::place(MailSlot* slot, size_t index, std::span<const Piece> pieces, size_t bytes,
                    bool stable) {
  if (bytes <= kNearBytes) {
    slot->payload = Payload::kNear;
    gather(pieces, slot->near);
    return;
  }
  if (bytes <= p_.layout.inline_bytes()) {
    slot->payload = Payload::kInline;
    gather(pieces, slot->behind());
    return;
  }
  slot->payload = Payload::kElsewhere;
  Location location;
  if (stable && pieces.size() == 1 && p_.arena->locate(pieces[0].data, bytes, &location)) {
    in_place_[index] = true;
    ++in_place_count_;
  } else {
    const size_t offset = take_chunk(bytes);
    location = p_.chunks_location;
    location.offset += offset;
    gather(pieces, p_.chunks + offset);
  }
  std::memcpy(slot->near, &location, sizeof(location));
}

// Messages that are not acknowledged are at most the depth, and lie in the ring one behind the
// other, but for what is left unused at its end.
size_t ShmPair::ring_bytes(size_t depth, size_t chunk_bytes, size_t peers) {
  constexpr size_t kLargerThanCaches = 2 << 20;
  return std::max((depth + 1) * chunk_bytes, kLargerThanCaches / std::max<size_t>(peers, 1));
}

size_t ShmPair::take_chunk(size_t bytes) {
  if (bytes <= kShortBytes && short_users_[next_short_] <= acknowledged_) {
    const size_t taken = next_short_;
    next_short_ = taken + 1 == kShortChunks ? 0 : taken + 1;
    short_users_[taken] = sent_ + 1;
    return p_.ring_bytes + taken * kShortBytes;
  }
  const size_t taken = (bytes + 63) / 64 * 64;
  if (p_.ring_bytes - ring_at_ < taken) ring_at_ = 0;
  ring_at_ += taken;
  return ring_at_ - taken;
}

uint64_t ShmPair::count_done() {
  count_acknowledged();
  if (in_place_count_ == 0) return done_;
  acknowledged_ = p_.own_ledger->released.load(std::memory_order_acquire);
  count_acknowledged();
  return done_;
}

void ShmPair::count_acknowledged() {
  for (; done_ < sent_; ++done_) {
    const size_t slot = done_ % p_.depth;
    if (!in_place_[slot]) continue;
    if (done_ >= acknowledged_) break;
    in_place_[slot] = false;
    --in_place_count_;
  }
}

uint64_t ShmPair::sends_released() {
  return p_.own_ledger->released.load(std::memory_order_acquire);
}

bool ShmPair::try_announce(std::byte*, size_t, bool) { return true; }

bool ShmPair::try_receive(unsigned ahead, Received* message) {
  if (ahead == 0) return receive(message);
  if (ahead >= p_.depth) return false;
  const uint64_t wanted = released_ + ahead + 1;
  MailSlot* slot = p_.layout.slot(p_.own_slots, (wanted - 1) % p_.depth);
  if (slot->sequence.load(std::memory_order_acquire) != wanted) return false;
  return open(slot, message);
}

const std::byte* ShmPair::elsewhere(const MailSlot* slot) {
  Location location;
  std::memcpy(&location, slot->near, sizeof(location));
  const std::byte* data = p_.peer->map(location);
  if (data == nullptr) unmapped_ = *p_.trouble = true;
  return data;
}

bool ShmPair::quiet() {
  acknowledged_ = p_.own_ledger->released.load(std::memory_order_acquire);
  MailSlot* next = p_.layout.slot(p_.own_slots, released_ % p_.depth);
  return acknowledged_ == sent_ && next->sequence.load(std::memory_order_acquire) != released_ + 1;
}

Status ShmPair::status() const { return unmapped_ ? p_.peer->status() : Status(); }

}  // namespace hetccl::net

#include "lib/run/staging_lane.h"

#include <algorithm>
#include <cstring>

namespace hetccl::run {
namespace {

// Messages a peer that are copied in before their turn; those at the head always are.
constexpr size_t kPrefetch = 4;

}  // namespace

StagingLane::StagingLane(net::Lane* below, Port* port, StagingPool* pool, int ranks, size_t depth)
    : below_(below), port_(port), pool_(pool), depth_(depth), peers_(static_cast<size_t>(ranks)) {}

// Blocks go back once no copy touches them. The lane below is gone by now, or at rest.
StagingLane::~StagingLane() {
  port_->synchronize();
  for (Peer& peer : peers_) {
    for (const Outgoing& o : peer.out) {
      if (o.block != nullptr) pool_->give_back(o.block, o.bytes);
    }
    for (const Lent& l : peer.lent) pool_->give_back(l.block, l.bytes);
    for (size_t k = peer.come; k < peer.in.size(); ++k) {
      if (peer.in[k].block != nullptr) pool_->give_back(peer.in[k].block, peer.in[k].bytes);
    }
    for (const Landing& l : peer.landing) pool_->give_back(l.block, l.bytes);
  }
  set_starving(false);
}

void StagingLane::activate(int peer) {
  if (std::exchange(peers_[peer].active, true)) return;
  active_.push_back(peer);
}

void StagingLane::set_starving(bool starving) {
  if (starving == starving_) return;
  starving_ = starving;
  pool_->starve(starving);
}

// ---- sending

bool StagingLane::try_send(int peer, std::span<const net::Piece> pieces, net::Envelope envelope,
                           bool stable) {
  Peer& p = peers_[peer];
  if (p.out.size() >= depth_) return false;
  Outgoing& message = p.out.emplace_back();
  for (const net::Piece& piece : pieces) {
    if (piece.bytes == 0) continue;
    message.parts.push_back({piece.data, piece.bytes});
    message.bytes += piece.bytes;
  }
  message.envelope = envelope;
  message.stable = stable;
  message.after = port_->mark();
  ++p.accepted;
  activate(peer);
  // Not before those that wait for a block.
  if (p.out.size() == 1 || p.out[p.out.size() - 2].staged) stage(&message);
  return true;
}

bool StagingLane::stage(Outgoing* message) {
  if (message->staged) return true;
  if (message->bytes != 0) {
    message->block = pool_->take(message->bytes);
    if (message->block == nullptr) return false;
    message->copied = port_->copy_out(message->block, message->parts, message->after);
  }
  message->staged = true;
  return true;
}

bool StagingLane::hand_over(int peer) {
  Peer& p = peers_[peer];
  bool moved = false;
  while (!p.out.empty()) {
    Outgoing& message = p.out.front();
    if (!message.staged || !port_->passed(message.copied)) break;
    const net::Piece piece{message.block, message.bytes};
    // A block that a peer reads in place comes back when the peer has read it. Where few are left,
    // the lane below had better copy.
    const bool stable = message.stable && !pool_->is_scarce();
    p.stuck =
        !below_->try_send(peer, {&piece, message.bytes != 0 ? 1u : 0u}, message.envelope, stable);
    if (p.stuck) break;
    if (message.block != nullptr) {
      p.lent.push_back({message.block, message.bytes, below_->sends_accepted(peer)});
    }
    p.out.pop_front();
    ++p.done;
    moved = true;
  }
  if (p.stuck && pool_->starving()) {
    revoke(&p);
  } else {
    moved |= stage_waiting(&p);
  }
  return moved;
}

bool StagingLane::stage_waiting(Peer* peer) {
  bool moved = false;
  for (Outgoing& message : peer->out) {
    if (message.staged) continue;
    if (!stage(&message)) {
      wanting_ = true;
      break;
    }
    moved = true;
  }
  return moved;
}

// Somebody has no block: what this peer has no credit for can be copied out again later.
void StagingLane::revoke(Peer* peer) {
  for (Outgoing& message : peer->out) {
    if (message.block == nullptr || !port_->passed(message.copied)) continue;
    pool_->give_back(message.block, message.bytes);
    message.block = nullptr;
    message.copied = nullptr;
    message.staged = false;
  }
}

bool StagingLane::take_back_lent(int peer) {
  Peer& p = peers_[peer];
  if (p.lent.empty()) return false;
  const uint64_t done = below_->sends_done(peer);
  bool moved = false;
  for (; !p.lent.empty() && p.lent.front().number <= done; p.lent.pop_front()) {
    pool_->give_back(p.lent.front().block, p.lent.front().bytes);
    moved = true;
  }
  return moved;
}

// ---- receiving

bool StagingLane::try_announce(int peer, std::byte* destination, size_t bytes) {
  Peer& p = peers_[peer];
  if (p.in.size() >= depth_) return false;
  Incoming incoming;
  incoming.place = destination;
  incoming.bytes = bytes;
  if (below_->wants_announcements(peer)) {
    // Held until the sender comes: never one of the last.
    if (bytes != 0 && !pool_->is_scarce()) incoming.block = pool_->take(bytes);
    if (!below_->try_announce(peer, incoming.block, bytes)) {
      if (incoming.block != nullptr) pool_->give_back(incoming.block, bytes);
      return false;
    }
  }
  if (destination != nullptr) incoming.after = port_->mark();
  p.in.push_back(std::move(incoming));
  activate(peer);
  return true;
}

bool StagingLane::take_messages(int peer) {
  Peer& p = peers_[peer];
  bool moved = false;
  net::Received message;
  while (p.come < p.in.size() && p.come < kPrefetch &&
         below_->try_receive(peer, static_cast<unsigned>(p.held.size()), &message)) {
    if (!land(&p, &p.in[p.come], message)) break;
    ++p.come;
    moved = true;
  }
  return moved;
}

bool StagingLane::land(Peer* peer, Incoming* expected, const net::Received& message) {
  if (message.bytes != 0 && message.bytes == expected->bytes) {
    Port::Mark after = expected->after;
    std::byte* to = expected->place;
    if (to == nullptr) {
      to = port_->take_slot(peer->come == 0, &after);
      if (to == nullptr) return false;
      expected->in_slot = true;
    }
    expected->data = to;
    copy_in(peer, expected, message, after);
  } else {
    if (expected->block != nullptr) pool_->give_back(expected->block, expected->bytes);
    peer->held.push_back(nullptr);
  }
  expected->bytes = message.bytes;
  expected->signature = message.signature;
  expected->block = nullptr;
  return true;
}

// From the lane's memory by way of a block, which frees the message at once. Where there is no
// block, straight from there: the copy may then wait for itself, but for no other rank.
void StagingLane::copy_in(Peer* peer, Incoming* expected, const net::Received& message,
                          const Port::Mark& after) {
  const bool landed_in_block = expected->block != nullptr && message.data == expected->block;
  std::byte* block = expected->block;
  if (block == nullptr) block = pool_->take(message.bytes);
  if (block != nullptr && !landed_in_block) std::memcpy(block, message.data, message.bytes);
  expected->landed =
      port_->copy_in(expected->data, block != nullptr ? block : message.data, message.bytes, after);
  if (block != nullptr) peer->landing.push_back({block, message.bytes, expected->landed});
  peer->held.push_back(block != nullptr && !landed_in_block ? nullptr : expected->landed);
}

bool StagingLane::try_receive(int peer, unsigned ahead, net::Received* message) {
  Peer& p = peers_[peer];
  if (ahead >= p.come) return false;
  Incoming& found = p.in[ahead];
  if (!std::exchange(found.waited, true)) port_->wait(found.landed);
  *message = {found.data, found.bytes, found.signature};
  return true;
}

void StagingLane::release(int peer) {
  Peer& p = peers_[peer];
  if (p.in.front().in_slot) port_->give_slot(p.in.front().data);
  p.in.pop_front();
  --p.come;
}

bool StagingLane::release_read(int peer) {
  Peer& p = peers_[peer];
  bool moved = false;
  for (; !p.held.empty() && port_->passed(p.held.front()); p.held.pop_front()) {
    below_->release(peer);
    moved = true;
  }
  for (; !p.landing.empty() && port_->passed(p.landing.front().read); p.landing.pop_front()) {
    pool_->give_back(p.landing.front().block, p.landing.front().bytes);
  }
  return moved;
}

// ---- both

Result<bool> StagingLane::progress() {
  bool moved = false;
  wanting_ = false;
  for (size_t k = 0; k < active_.size();) {
    const int peer = active_[k];
    Peer& p = peers_[peer];
    moved |= take_back_lent(peer);
    moved |= hand_over(peer);
    moved |= release_read(peer);
    moved |= take_messages(peer);
    if (p.out.empty() && p.lent.empty() && p.in.empty() && p.held.empty() && p.landing.empty()) {
      p.active = false;
      active_[k] = active_.back();
      active_.pop_back();
    } else {
      ++k;
    }
  }
  set_starving(wanting_);
  if (!port_->status().ok()) return port_->status();
  Result<bool> below = below_->progress();
  if (!below.ok()) return below;
  return *below || moved;
}

std::string StagingLane::describe(int peer) const {
  return below_->describe(peer) + ", staged through host memory";
}

}  // namespace hetccl::run

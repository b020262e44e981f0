#include "lib/run/staging_lane.h"

#include <algorithm>
#include <cstring>

namespace hetccl::run {
namespace {

// Messages a peer that are copied in before their turn; those at the head always are.
constexpr size_t kPrefetch = 4;
// Messages a peer that are copied out before their turn. Few, since the copies to all peers share a
// queue, and a receiver waits for the slowest of its senders.
constexpr size_t kStageAhead = 3;
// Smaller messages travel faster by the host.
constexpr size_t kLeastNamed = 4 << 10;
constexpr size_t kLeastDirect = 16 << 10;

}  // namespace

StagingLane::StagingLane(net::Lane* below, Port* port, PeerMemory* memory, StagingPool* pool,
                         std::vector<DevicePath> paths, size_t depth)
    : below_(below),
      port_(port),
      memory_(memory),
      pool_(pool),
      paths_(std::move(paths)),
      depth_(depth),
      peers_(paths_.size()) {}

// Blocks go back once no copy touches them. The lane below is gone by now, or at rest.
StagingLane::~StagingLane() {
  port_->synchronize();
  for (Peer& peer : peers_) {
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
  choose_way(peer, &message);
  ++p.accepted;
  activate(peer);
  stage_waiting(peer);
  return true;
}

// What is not copied stays in use until the receiver has taken it, which only plans that do not
// rely on buffers may wait for.
void StagingLane::choose_way(int peer, Outgoing* message) {
  const DevicePath& path = paths_[peer];
  if (!message->stable || message->parts.size() != 1) return;
  if (path.ipc_out && message->bytes >= kLeastNamed) {
    message->name = memory_->describe(message->parts[0].device, message->bytes);
    if (!message->name.empty()) message->way = Way::kNamed;
  } else if (path.direct && message->bytes >= kLeastDirect) {
    message->way = Way::kDirect;
  }
}

// The same place at the same moment of the port's work holds the same data.
bool StagingLane::share(Outgoing* message) {
  if (message->parts.size() != 1 || !message->stable) return false;
  for (const Recent& recent : recent_) {
    if (recent.device != message->parts[0].device || recent.bytes != message->bytes ||
        recent.after != message->after) {
      continue;
    }
    message->block = recent.block.lock();
    if (message->block == nullptr) continue;
    message->copied = recent.copied;
    message->in_place = message->block->in_place;
    return true;
  }
  return false;
}

bool StagingLane::stage(Outgoing* message) {
  if (message->staged || message->way != Way::kStaged) return true;
  if (message->bytes != 0 && !share(message)) {
    message->in_place = message->stable && pool_->has_plenty(message->bytes);
    std::byte* const memory = pool_->take(message->bytes);
    if (memory == nullptr) return false;
    message->block.reset(new Block{pool_, memory, message->bytes, message->in_place});
    message->copied = port_->copy_out(memory, message->parts, message->after);
    if (message->parts.size() == 1 && message->stable) {
      recent_[next_recent_++ % recent_.size()] = {message->parts[0].device, message->bytes,
                                                  message->after, message->block, message->copied};
    }
  }
  message->staged = true;
  return true;
}

bool StagingLane::try_hand_over(int peer, Outgoing* message) {
  switch (message->way) {
    case Way::kStaged: {
      const net::Piece piece{message->block != nullptr ? message->block->memory : nullptr,
                             message->bytes};
      return below_->try_send(peer, {&piece, message->bytes != 0 ? 1u : 0u}, message->envelope,
                              message->in_place);
    }
    case Way::kNamed: {
      const net::Piece piece{reinterpret_cast<const std::byte*>(message->name.data()),
                             message->name.size()};
      return below_->try_send(peer, {&piece, 1}, {message->envelope.signature, kNamesMemory},
                              false);
    }
    case Way::kDirect: {
      void* memory = const_cast<void*>(message->parts[0].device);
      const net::Piece piece{
          static_cast<const std::byte*>(port_->accelerator().network_address(memory)),
          message->bytes};
      return below_->try_send(peer, {&piece, 1}, message->envelope, true);
    }
  }
  return false;
}

bool StagingLane::hand_over(int peer) {
  Peer& p = peers_[peer];
  bool moved = false;
  while (!p.out.empty()) {
    Outgoing& message = p.out.front();
    const bool staged = message.way == Way::kStaged;
    if ((staged && !message.staged) || !port_->passed(staged ? message.copied : message.after)) {
      break;
    }
    if (staged && !may_go(peer, message, message.in_place)) break;
    if (!try_hand_over(peer, &message)) break;
    const uint64_t number = below_->sends_accepted(peer);
    if (message.block != nullptr || !message.name.empty()) {
      p.lent.push_back(
          {std::move(message.block), std::move(message.name), message.in_place, number});
      p.lent_in_place += message.in_place ? 1 : 0;
    }
    p.sent.push_back({number, message.way});
    p.out.pop_front();
    moved = true;
  }
  if (pool_->starving()) moved |= revoke(peer);
  return stage_waiting(peer) || moved;
}

// A copied message is known to be copied only when those before it have been read, so that it must
// not follow one that is read in place: its block would be held as long.
bool StagingLane::may_go(int peer, const Outgoing& message, bool in_place) {
  if (!below_->has_credit(peer)) return false;
  return message.bytes == 0 || in_place || peers_[peer].lent_in_place == 0;
}

// A block for the first message as soon as it can go; for later ones while there are plenty.
bool StagingLane::stage_waiting(int peer) {
  Peer& p = peers_[peer];
  bool moved = false;
  for (size_t k = 0; k < std::min(p.out.size(), kStageAhead); ++k) {
    Outgoing& message = p.out[k];
    if (message.staged || message.way != Way::kStaged) continue;
    const bool plenty = pool_->has_plenty(message.bytes);
    if (k == 0 ? !may_go(peer, message, message.stable && plenty) : !plenty || pool_->starving()) {
      break;
    }
    if (!stage(&message)) {
      wanting_ |= k == 0;
      break;
    }
    moved = true;
  }
  return moved;
}

// Somebody has no block: what cannot go at once is copied out again later.
bool StagingLane::revoke(int peer) {
  Peer& p = peers_[peer];
  bool moved = false;
  for (size_t k = 0; k < p.out.size(); ++k) {
    Outgoing& message = p.out[k];
    if (k == 0 && may_go(peer, message, message.in_place)) continue;
    if (message.block == nullptr || !port_->passed(message.copied)) continue;
    message.block = nullptr;
    message.copied = nullptr;
    message.staged = false;
    moved = true;
  }
  return moved;
}

uint64_t StagingLane::sends_done(int peer) {
  Peer& p = peers_[peer];
  for (; !p.sent.empty(); p.sent.pop_front()) {
    const Sent& first = p.sent.front();
    if (first.way == Way::kNamed && first.number > below_->sends_released(peer)) break;
    if (first.way == Way::kDirect && first.number > below_->sends_done(peer)) break;
    ++p.done;
  }
  return p.done;
}

// Those not handed over are not released, and neither are the last ones below.
uint64_t StagingLane::sends_released(int peer) {
  const uint64_t below = below_->sends_accepted(peer) - below_->sends_released(peer);
  return peers_[peer].accepted -
         std::min<uint64_t>(peers_[peer].accepted, peers_[peer].out.size() + below);
}

bool StagingLane::take_back_lent(int peer) {
  Peer& p = peers_[peer];
  if (p.lent.empty()) return false;
  const uint64_t done = below_->sends_done(peer);
  bool moved = false;
  for (; !p.lent.empty() && p.lent.front().number <= done; p.lent.pop_front()) {
    p.lent_in_place -= p.lent.front().in_place ? 1 : 0;
    moved = true;
  }
  return moved;
}

// ---- receiving

bool StagingLane::try_announce(int peer, std::byte* destination, size_t bytes, bool) {
  Peer& p = peers_[peer];
  if (p.in.size() >= depth_) return false;
  Incoming& incoming = p.in.emplace_back();
  incoming.place = destination;
  incoming.bytes = bytes;
  if (destination != nullptr) incoming.after = port_->mark();
  activate(peer);
  announce_below(peer);
  return true;
}

bool StagingLane::announce_below(int peer) {
  Peer& p = peers_[peer];
  if (!below_->wants_announcements(peer)) {
    p.announced = p.in.size();
    return false;
  }
  bool moved = false;
  while (p.announced < p.in.size()) {
    if (!announce_one(peer, &p.in[p.announced], p.announced == 0)) break;
    ++p.announced;
    moved = true;
  }
  return moved;
}

bool StagingLane::announce_one(int peer, Incoming* incoming, bool first) {
  const size_t bytes = incoming->bytes;
  if (paths_[peer].direct && bytes >= kLeastDirect && incoming->data == nullptr) {
    incoming->data = incoming->place;
    if (incoming->place == nullptr) {
      incoming->data = port_->take_slot(first, &incoming->after);
      incoming->in_slot = incoming->data != nullptr;
    }
    incoming->direct = incoming->data != nullptr;
  }
  if (incoming->direct) {
    // The network writes without asking the device's queues.
    if (!port_->passed(incoming->after)) return false;
    void* at = port_->accelerator().network_address(incoming->data);
    return below_->try_announce(peer, static_cast<std::byte*>(at), bytes, true);
  }
  // A block is held until the sender comes: never one of the last.
  if (incoming->block == nullptr && bytes != 0 && pool_->has_plenty(bytes)) {
    incoming->block = pool_->take(bytes);
  }
  return below_->try_announce(peer, incoming->block, bytes, false);
}

bool StagingLane::take_messages(int peer) {
  Peer& p = peers_[peer];
  bool moved = false;
  net::Received message;
  while (p.come < p.announced && p.come < kPrefetch &&
         below_->try_receive(peer, static_cast<unsigned>(p.held.size()), &message)) {
    if (!land(peer, &p.in[p.come], message)) break;
    ++p.come;
    moved = true;
  }
  return moved;
}

void StagingLane::hold(Peer* peer, Incoming* incoming, const Port::Mark& read, bool in_use) {
  incoming->held = peer->held_before + peer->held.size();
  peer->held.push_back({read, in_use});
}

bool StagingLane::land(int peer, Incoming* expected, const net::Received& message) {
  Peer& p = peers_[peer];
  if (message.form == kNamesMemory) return use_named(peer, expected, message);
  const bool fits = message.bytes != 0 && message.bytes == expected->bytes;
  if (fits && expected->direct &&
      message.data == port_->accelerator().network_address(expected->data)) {
    hold(&p, expected, nullptr, false);
  } else if (fits) {
    Port::Mark after = expected->after;
    if (expected->data == nullptr) expected->data = expected->place;
    if (expected->data == nullptr) {
      expected->data = port_->take_slot(p.come == 0, &after);
      if (expected->data == nullptr) return false;
      expected->in_slot = true;
    }
    copy_in(&p, expected, message, after);
  } else {
    if (expected->block != nullptr) pool_->give_back(expected->block, expected->bytes);
    hold(&p, expected, nullptr, false);
  }
  expected->bytes = message.bytes;
  expected->signature = message.signature;
  expected->block = nullptr;
  return true;
}

bool StagingLane::use_named(int peer, Incoming* expected, const net::Received& message) {
  const auto mapped = memory_->map(peer, {message.data, message.bytes});
  if (!mapped.ok()) {
    failure_ = mapped.status();
    return false;
  }
  if (expected->block != nullptr) pool_->give_back(expected->block, expected->bytes);
  if (expected->in_slot) port_->give_slot(expected->data);
  expected->block = nullptr;
  expected->in_slot = false;
  // Only read: the interpreter writes to no message.
  expected->data = const_cast<std::byte*>(mapped->data);
  expected->bytes = mapped->bytes;
  expected->signature = message.signature;
  expected->named = true;
  hold(&peers_[peer], expected, nullptr, true);
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
  const bool free_now = block != nullptr && !landed_in_block;
  hold(peer, expected, free_now ? nullptr : expected->landed, false);
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
  const Incoming& first = p.in.front();
  if (first.in_slot) port_->give_slot(first.data);
  if (first.named) p.held[first.held - p.held_before] = {port_->mark(), false};
  p.in.pop_front();
  --p.come;
  --p.announced;
}

bool StagingLane::release_read(int peer) {
  Peer& p = peers_[peer];
  bool moved = false;
  for (; !p.held.empty(); p.held.pop_front()) {
    if (p.held.front().in_use || !port_->passed(p.held.front().read)) break;
    below_->release(peer);
    ++p.held_before;
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
    moved |= announce_below(peer);
    moved |= take_messages(peer);
    sends_done(peer);
    if (p.out.empty() && p.sent.empty() && p.lent.empty() && p.in.empty() && p.held.empty() &&
        p.landing.empty()) {
      p.active = false;
      active_[k] = active_.back();
      active_.pop_back();
    } else {
      ++k;
    }
  }
  set_starving(wanting_);
  if (!failure_.ok()) return failure_;
  if (!port_->status().ok()) return port_->status();
  Result<bool> below = below_->progress();
  if (!below.ok()) return below;
  return *below || moved;
}

std::string StagingLane::describe(int peer) const {
  const DevicePath& path = paths_[peer];
  return below_->describe(peer) + (path.ipc_out || path.ipc_in
                                       ? ", devices read each other's memory"
                                   : path.direct ? ", the network reaches device memory"
                                                 : ", staged through host memory");
}

}  // namespace hetccl::run

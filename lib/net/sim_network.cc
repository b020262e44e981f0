#include "lib/net/sim_network.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <mutex>
#include <random>

#include "lib/net/net_pair.h"

namespace hetccl::net {
namespace {

enum class Holding { kCopied, kCopiedLater, kInPlace };

struct SimMessage {
  std::vector<Piece> pieces;
  std::unique_ptr<std::byte[]> copy;
  const std::byte* data = nullptr;  // as the receiver sees it
  size_t bytes = 0;
  uint64_t signature = 0;
  uint32_t form = 0;
  Holding holding = Holding::kCopied;
  bool may_land = false;
  bool arrived = false;
  uint64_t arrives_at = 0;
  uint64_t copied_at = 0;  // no later than arrives_at
};

struct SimAnnouncement {
  std::byte* destination;
  size_t bytes;
};

// The stream from one rank to another.
struct SimStream {
  std::deque<std::unique_ptr<SimMessage>> open;  // sent, not released
  std::deque<SimAnnouncement> announcements;     // of messages released_ + 1 on
  std::deque<uint64_t> acknowledgements_at;      // ticks at which releases reach the sender
  // For each message that the sender has no acknowledgement of: whether its pieces are in use.
  std::deque<bool> in_use;
  uint64_t acknowledged = 0;
  uint64_t sent = 0;
  uint64_t released = 0;
  uint64_t last_arrival = 0;
};

class SimNetwork {
 public:
  SimNetwork(int ranks, const SimOptions& options)
      : ranks_(ranks),
        options_(options),
        random_(options.seed),
        streams_(ranks * ranks),
        operations_(ranks) {}

  size_t chunk_bytes() const { return options_.chunk_bytes; }
  int ranks() const { return ranks_; }

  bool try_send(int from, int to, std::span<const Piece> pieces, Envelope envelope, bool stable);
  bool has_credit(int from, int to);
  uint64_t sends_accepted(int from, int to);
  uint64_t sends_done(int from, int to);
  uint64_t sends_released(int from, int to);
  bool try_announce(int from, int to, std::byte* destination, size_t bytes);
  bool try_receive(int from, int to, unsigned ahead, Received* message);
  void release(int from, int to);
  Result<bool> progress(int rank);
  bool quiet(int rank);

 private:
  SimStream& stream(int from, int to) { return streams_[from * ranks_ + to]; }
  uint64_t delay() { return random_() % (options_.longest_delay + 1); }
  bool alive(int rank) const { return !(rank == options_.lost_rank && lost_); }
  bool noticed() const { return lost_ && now_ >= noticed_at_; }
  bool count_operation(int rank);
  void lose(int rank);
  bool advance(SimStream* s);
  bool arrive(SimStream* s, size_t index);
  // To `destination`, or to memory of the message's own.
  static void copy(SimMessage* message, std::byte* destination);

  const int ranks_;
  const SimOptions options_;
  std::mutex mutex_;
  std::mt19937_64 random_;
  std::vector<SimStream> streams_;
  std::vector<uint64_t> operations_;
  uint64_t now_ = 0;
  bool lost_ = false;
  uint64_t noticed_at_ = 0;
};

// True if the rank lives to do it. Once the others know of a death, nothing happens any more: they
// end their calls one after the other, and their buffers with them.
bool SimNetwork::count_operation(int rank) {
  if (!alive(rank) || noticed()) return false;
  if (++operations_[rank] != options_.lost_at || rank != options_.lost_rank) return true;
  lose(rank);
  return false;
}

// What has not left the rank is lost; what the others can see already stays, apart from its memory.
void SimNetwork::lose(int rank) {
  lost_ = true;
  noticed_at_ = now_ + delay();
  for (int peer = 0; peer < ranks_; ++peer) {
    SimStream& s = stream(rank, peer);
    while (!s.open.empty() && !s.open.back()->arrived) s.open.pop_back();
    for (auto& message : s.open) {
      if (message->holding == Holding::kInPlace) copy(message.get(), nullptr);
    }
  }
}

bool SimNetwork::try_send(int from, int to, std::span<const Piece> pieces, Envelope envelope,
                          bool stable) {
  std::lock_guard lock(mutex_);
  SimStream& s = stream(from, to);
  if (s.sent - s.acknowledged >= options_.depth) return false;
  if (!count_operation(from)) return false;
  auto message = std::make_unique<SimMessage>();
  message->pieces.assign(pieces.begin(), pieces.end());
  message->bytes = bytes_of(pieces);
  message->signature = envelope.signature;
  message->form = envelope.form;
  message->may_land = random_() % 2 == 0;
  s.last_arrival = std::max(s.last_arrival, now_ + delay());
  message->arrives_at = s.last_arrival;
  message->copied_at = std::min(now_ + delay(), message->arrives_at);
  uint64_t choice = random_() % 3;
  if (choice == 0 && stable && pieces.size() == 1) {
    message->holding = Holding::kInPlace;
  } else if (choice == 1) {
    message->holding = Holding::kCopiedLater;
  } else {
    copy(message.get(), nullptr);
  }
  s.in_use.push_back(message->holding != Holding::kCopied);
  s.open.push_back(std::move(message));
  ++s.sent;
  return true;
}

void SimNetwork::copy(SimMessage* message, std::byte* destination) {
  if (destination == nullptr) {
    message->copy = std::make_unique<std::byte[]>(message->bytes + 1);
    destination = message->copy.get();
  }
  if (message->data != nullptr) {
    if (message->bytes != 0) std::memmove(destination, message->data, message->bytes);
  } else {
    gather(message->pieces, destination);
  }
  message->data = destination;
  message->holding = Holding::kCopied;
}

bool SimNetwork::arrive(SimStream* s, size_t index) {
  SimMessage* message = s->open[index].get();
  bool announced = index < s->announcements.size();
  if (announced && message->may_land) {
    const SimAnnouncement& place = s->announcements[index];
    if (place.destination != nullptr && message->bytes <= place.bytes) {
      copy(message, place.destination);
    }
  }
  if (message->holding == Holding::kCopiedLater) copy(message, nullptr);
  if (message->holding == Holding::kInPlace) message->data = message->pieces[0].data;
  message->arrived = true;
  return message->holding == Holding::kInPlace;
}

// Lets happen to a stream what is due by now. True if something did.
bool SimNetwork::advance(SimStream* s) {
  bool moved = false;
  // in_use begins with the first message that is not acknowledged, `open` with the first that is
  // not released.
  size_t lag = s->released - s->acknowledged;
  for (size_t i = 0; i < s->open.size(); ++i) {
    SimMessage* message = s->open[i].get();
    if (message->arrived) continue;
    if (message->holding == Holding::kCopiedLater && message->copied_at <= now_) {
      copy(message, nullptr);
      s->in_use[lag + i] = false;
      moved = true;
    }
    if (message->arrives_at > now_) continue;
    s->in_use[lag + i] = arrive(s, i);
    moved = true;
  }
  while (!s->acknowledgements_at.empty() && s->acknowledgements_at.front() <= now_) {
    s->acknowledgements_at.pop_front();
    s->in_use.pop_front();
    ++s->acknowledged;
    moved = true;
  }
  return moved;
}

bool SimNetwork::has_credit(int from, int to) {
  std::lock_guard lock(mutex_);
  const SimStream& s = stream(from, to);
  return s.sent - s.acknowledged < options_.depth;
}

uint64_t SimNetwork::sends_accepted(int from, int to) {
  std::lock_guard lock(mutex_);
  const SimStream& s = stream(from, to);
  return s.acknowledged + s.in_use.size();
}

uint64_t SimNetwork::sends_done(int from, int to) {
  std::lock_guard lock(mutex_);
  const SimStream& s = stream(from, to);
  auto first = std::find(s.in_use.begin(), s.in_use.end(), true);
  return s.acknowledged + (first - s.in_use.begin());
}

uint64_t SimNetwork::sends_released(int from, int to) {
  std::lock_guard lock(mutex_);
  return stream(from, to).acknowledged;
}

bool SimNetwork::try_announce(int from, int to, std::byte* destination, size_t bytes) {
  std::lock_guard lock(mutex_);
  SimStream& s = stream(from, to);
  if (s.announcements.size() >= options_.depth || !count_operation(to)) return false;
  s.announcements.push_back(SimAnnouncement{destination, bytes});
  return true;
}

bool SimNetwork::try_receive(int from, int to, unsigned ahead, Received* message) {
  std::lock_guard lock(mutex_);
  SimStream& s = stream(from, to);
  if (ahead >= s.open.size() || !s.open[ahead]->arrived || !count_operation(to)) return false;
  const SimMessage& found = *s.open[ahead];
  *message = Received{found.data, found.bytes, found.signature, found.form};
  return true;
}

void SimNetwork::release(int from, int to) {
  std::lock_guard lock(mutex_);
  SimStream& s = stream(from, to);
  if (s.open.empty() || !count_operation(to)) return;
  s.open.pop_front();
  if (!s.announcements.empty()) s.announcements.pop_front();
  ++s.released;
  uint64_t at = now_ + delay();
  if (!s.acknowledgements_at.empty()) at = std::max(at, s.acknowledgements_at.back());
  s.acknowledgements_at.push_back(at);
}

Result<bool> SimNetwork::progress(int rank) {
  std::lock_guard lock(mutex_);
  ++now_;
  if (!alive(rank)) return system_error("rank " + std::to_string(rank) + " is lost (simulated)");
  if (noticed()) {
    return remote_error("rank " + std::to_string(options_.lost_rank) + " is lost (simulated)");
  }
  bool moved = false;
  for (int from = 0; from < ranks_; ++from) {
    for (int to = 0; to < ranks_; ++to) {
      if (alive(from) && alive(to)) moved |= advance(&stream(from, to));
    }
  }
  return moved;
}

bool SimNetwork::quiet(int rank) {
  std::lock_guard lock(mutex_);
  bool all = true;
  for (int peer = 0; peer < ranks_; ++peer) {
    all &= stream(rank, peer).acknowledged == stream(rank, peer).sent;
    all &= stream(peer, rank).open.empty();
  }
  return all;
}

class SimLane final : public Lane {
 public:
  SimLane(std::shared_ptr<SimNetwork> network, int rank)
      : network_(std::move(network)), rank_(rank) {}

  size_t max_message() const override { return network_->chunk_bytes(); }
  bool try_send(int peer, std::span<const Piece> pieces, Envelope envelope, bool stable) override {
    if (bytes_of(pieces) > max_message()) {
      misuse_ = internal_error("a message exceeds the simulated lane's chunk");
      return false;
    }
    return network_->try_send(rank_, peer, pieces, envelope, stable);
  }
  bool has_credit(int peer) override { return network_->has_credit(rank_, peer); }
  uint64_t sends_accepted(int peer) override { return network_->sends_accepted(rank_, peer); }
  uint64_t sends_done(int peer) override { return network_->sends_done(rank_, peer); }
  uint64_t sends_released(int peer) override { return network_->sends_released(rank_, peer); }
  bool wants_announcements(int) const override { return true; }
  bool try_announce(int peer, std::byte* destination, size_t bytes, bool) override {
    return network_->try_announce(peer, rank_, destination, bytes);
  }
  bool try_receive(int peer, unsigned ahead, Received* message) override {
    return network_->try_receive(peer, rank_, ahead, message);
  }
  void release(int peer) override { network_->release(peer, rank_); }
  Result<bool> progress() override {
    if (!misuse_.ok()) return misuse_;
    return network_->progress(rank_);
  }
  bool quiet() override { return network_->quiet(rank_); }
  std::string describe(int) const override { return "simulated"; }

 private:
  std::shared_ptr<SimNetwork> network_;
  int rank_;
  Status misuse_;
};

}  // namespace

std::vector<std::unique_ptr<Lane>> open_sim_lanes(int ranks, const SimOptions& options) {
  auto network = std::make_shared<SimNetwork>(ranks, options);
  std::vector<std::unique_ptr<Lane>> lanes;
  for (int rank = 0; rank < ranks; ++rank) {
    lanes.push_back(std::make_unique<SimLane>(network, rank));
  }
  return lanes;
}

}  // namespace hetccl::net

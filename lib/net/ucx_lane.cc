#include "lib/net/ucx_lane.h"

#include <unistd.h>

#include <limits>

namespace hetccl::net {
namespace {

// From what both ends know: their choices, and the transports between them, which are the same
// seen from either end.
bool chooses_put(PutChoice one, PutChoice other, bool native) {
  if (one == PutChoice::kNo || other == PutChoice::kNo) return false;
  return native || one == PutChoice::kYes || other == PutChoice::kYes;
}

}  // namespace

UcxLane::UcxLane(Parts parts) : p_(std::move(parts)) {}

UcxLane::~UcxLane() {
  p_.hub->close_inbox(p_.inbox);
  p_.shm_pairs.clear();
  p_.shm_peers.clear();
  p_.hub->retire(std::move(p_.region));
}

bool UcxLane::try_send(int peer, std::span<const Piece> pieces, Envelope envelope, bool stable) {
  size_t bytes = bytes_of(pieces);
  if (bytes > p_.chunk_bytes) [[unlikely]] {
    misuse_ = internal_error("a message of " + std::to_string(bytes) +
                             " bytes exceeds the lane's " + std::to_string(p_.chunk_bytes));
    return false;
  }
  return p_.pairs[peer]->try_send(pieces, bytes, envelope, stable);
}

Result<bool> UcxLane::progress() {
  if (!misuse_.ok()) [[unlikely]]
    return misuse_;
  bool moved = !p_.networked.empty() && p_.hub->progress();
  for (NetPair* pair : p_.networked) moved |= pair->progress();
  if (*p_.trouble) [[unlikely]] {
    for (NetPair* pair : p_.pairs) {
      Status status = pair->status();
      if (!status.ok()) return status;
    }
  }
  return moved;
}

bool UcxLane::quiet() {
  bool all = true;
  for (NetPair* pair : p_.pairs) all &= pair->quiet();
  return all;
}

Result<std::unique_ptr<LaneSetup>> UcxLaneSetup::create(UcxHub* hub, int ranks, int rank,
                                                        const LaneOptions& options, PutChoice put) {
  if (ranks < 1 || rank < 0 || rank >= ranks || options.depth < 1 || options.chunk_bytes < 1 ||
      options.chunk_bytes > std::numeric_limits<uint32_t>::max()) {
    return invalid_argument(
        "a lane needs at least one rank, one message in flight and chunks of 1 "
        "byte to 4 GiB");
  }
  hub->sweep();
  std::unique_ptr<UcxLaneSetup> setup(new UcxLaneSetup(hub, ranks, rank, options));
  Result<std::byte*> region = hub->arena().allocate(setup->layout_.region_bytes(), false);
  if (!region.ok()) return region.status();
  setup->region_ = *region;
  setup->layout_.clear(*region);
  Card& card = setup->card_;
  card.process = hub->token();
  card.pid = static_cast<uint64_t>(getpid());
  card.full_address = hub->worker().full_address();
  card.network_address = hub->worker().network_address();
  card.table_key = hub->arena().table_key();
  card.table_address = reinterpret_cast<uint64_t>(hub->arena().table());
  if (!hub->arena().locate(*region, setup->layout_.region_bytes(), &card.region)) {
    return internal_error("a lane's region is not in the arena");
  }
  const SegmentRow& row = hub->arena().table()[card.region.segment];
  card.region_address = reinterpret_cast<uint64_t>(*region);
  card.region_key.assign(reinterpret_cast<const char*>(row.key.data()), row.key_bytes.load());
  setup->inbox_ =
      std::make_shared<UcxInbox>(&hub->worker(), ranks, rank, options.depth, options.chunk_bytes);
  card.lane = hub->open_inbox(setup->inbox_);
  card.ranks = static_cast<uint32_t>(ranks);
  card.chunk_bytes = options.chunk_bytes;
  card.depth = options.depth;
  card.put = put;
  setup->card_text_ = write_card(card);
  return std::unique_ptr<LaneSetup>(std::move(setup));
}

// A region whose card went out without a lane being made stays as it is: who has the card may have
// connected, and write to it at any time.
UcxLaneSetup::~UcxLaneSetup() {
  bool unused = inbox_ != nullptr;
  inbox_ = nullptr;
  if (unused) hub_->close_inbox(card_.lane);
}

Result<std::vector<Card>> UcxLaneSetup::read_cards(const std::vector<std::string>& texts) const {
  if (texts.size() != static_cast<size_t>(ranks_)) {
    return internal_error(std::to_string(texts.size()) + " cards for " + std::to_string(ranks_) +
                          " ranks");
  }
  std::vector<Card> cards;
  for (int rank = 0; rank < ranks_; ++rank) {
    Result<Card> card = read_card(texts[rank]);
    if (!card.ok())
      return Status(card.status().code(),
                    "rank " + std::to_string(rank) + ": " + card.status().message());
    if (card->ranks != card_.ranks || card->chunk_bytes != card_.chunk_bytes ||
        card->depth != card_.depth) {
      return invalid_usage("ranks " + std::to_string(rank_) + " and " + std::to_string(rank) +
                           " have other chunk sizes or depths: give all ranks the same settings");
    }
    cards.push_back(std::move(*card));
  }
  return cards;
}

Status UcxLaneSetup::connect_local(const std::vector<Card>& cards, const std::vector<bool>& local,
                                   UcxLane::Parts* parts) {
  size_t peers = 0;
  for (bool is_local : local) peers += is_local;
  size_t chunk_stride = (options_.chunk_bytes + 63) / 64 * 64;
  const size_t ring_bytes = ShmPair::ring_bytes(options_.depth, chunk_stride, peers - 1);
  const size_t chunks_bytes = ShmPair::chunks_bytes(ring_bytes);
  Result<std::byte*> chunks = hub_->arena().allocate(peers * chunks_bytes, false);
  if (!chunks.ok()) return chunks.status();
  parts->region.chunks = *chunks;
  Location chunks_at{};
  (void)hub_->arena().locate(*chunks, peers * chunks_bytes, &chunks_at);
  for (int rank = 0; rank < ranks_; ++rank) {
    if (!local[rank]) continue;
    Result<std::shared_ptr<ShmPeer>> peer = hub_->shm_peer(cards[rank]);
    if (!peer.ok()) return peer.status();
    std::byte* peer_region = (*peer)->map(cards[rank].region);
    if (peer_region == nullptr) return (*peer)->status();
    parts->region.users.push_back(RegionUser{layout_.ledger(region_, rank), nullptr});
    auto pair = std::make_unique<ShmPair>(ShmPair::Parts{
        .layout = layout_,
        .depth = options_.depth,
        .arena = &hub_->arena(),
        .peer = peer->get(),
        .own_slots = layout_.slots(region_, rank),
        .own_ledger = layout_.ledger(region_, rank),
        .peer_slots = layout_.slots(peer_region, rank_),
        .peer_ledger = layout_.ledger(peer_region, rank_),
        .chunks = parts->region.chunks + (parts->region.users.size() - 1) * chunks_bytes,
        .ring_bytes = ring_bytes,
        .chunks_location = chunks_at,
        .trouble = parts->trouble.get(),
    });
    parts->pairs[rank] = parts->shared[rank] = pair.get();
    parts->shm_pairs.push_back(std::move(pair));
    parts->shm_peers.push_back(std::move(*peer));
    chunks_at.offset += chunks_bytes;
  }
  return {};
}

Status UcxLaneSetup::connect_remote(const std::vector<Card>& cards, const std::vector<bool>& local,
                                    UcxLane::Parts* parts) {
  for (int rank = 0; rank < ranks_; ++rank) {
    if (local[rank]) continue;
    Result<std::shared_ptr<UcxRemote>> remote = hub_->remote(cards[rank]);
    if (!remote.ok()) {
      return Status(remote.status().code(),
                    "rank " + std::to_string(rank) + ": " + remote.status().message());
    }
    std::lock_guard lock(hub_->worker().mutex());
    AmPair* pair = inbox_->pair(rank);
    pair->connect(*remote, cards[rank].lane, parts->trouble.get());
    parts->pairs[rank] = pair;
    parts->networked.push_back(pair);
    bool native = (*remote)->lanes().native_put;
    if (!chooses_put(card_.put, cards[rank].put, native)) continue;
    Status put = connect_put(cards[rank], rank, *remote, parts);
    if (!put.ok()) return put;
  }
  return {};
}

// Under the worker's lock.
Status UcxLaneSetup::connect_put(const Card& card, int rank,
                                 const std::shared_ptr<UcxRemote>& remote, UcxLane::Parts* parts) {
  if (remote->failed())
    return remote_error("rank " + std::to_string(rank) + ": " + remote->reason());
  AmPair* pair = inbox_->pair(rank);
  auto* peer_region = reinterpret_cast<std::byte*>(card.region_address);
  Result<std::unique_ptr<UcxPut>> put = UcxPut::create(UcxPut::Parts{
      .worker = &hub_->worker(),
      .arena = &hub_->arena(),
      .remote = remote.get(),
      .layout = layout_,
      .depth = options_.depth,
      .own_slots = layout_.slots(region_, rank),
      .own_announcements = layout_.announcements(region_, rank),
      .peer_slots = reinterpret_cast<uint64_t>(layout_.slots(peer_region, rank_)),
      .peer_ledger = reinterpret_cast<uint64_t>(layout_.ledger(peer_region, rank_)),
      .peer_announcements = reinterpret_cast<uint64_t>(layout_.announcements(peer_region, rank_)),
      .peer_key = card.region_key,
      .requests = pair->request_count(),
  });
  if (!put.ok()) return put.status();
  pair->connect_put(std::move(*put));
  parts->region.users.push_back(RegionUser{layout_.ledger(region_, rank), remote});
  return {};
}

Result<std::unique_ptr<Lane>> UcxLaneSetup::connect(const std::vector<std::string>& cards,
                                                    const std::vector<bool>& shares_memory) {
  Result<std::vector<Card>> read = read_cards(cards);
  if (!read.ok()) return read.status();
  UcxLane::Parts parts;
  parts.hub = hub_;
  parts.chunk_bytes = options_.chunk_bytes;
  parts.region.region = region_;
  parts.trouble = std::make_unique<bool>(false);
  parts.pairs.resize(ranks_);
  parts.shared.resize(ranks_);
  std::vector<bool> local = shares_memory;
  local.resize(ranks_);
  local[rank_] = true;
  Status connected = connect_local(*read, local, &parts);
  if (connected.ok()) connected = connect_remote(*read, local, &parts);
  if (!connected.ok()) {
    // Nothing was sent, so nobody reads the chunks.
    if (parts.region.chunks != nullptr) (void)hub_->arena().free(parts.region.chunks).ok();
    return connected;
  }
  parts.inbox = card_.lane;
  inbox_ = nullptr;  // it is the lane's now
  return std::unique_ptr<Lane>(std::make_unique<UcxLane>(std::move(parts)));
}

}  // namespace hetccl::net

#include "bench/call.h"

#include <algorithm>
#include <cstring>

namespace hetccl::bench {

Call::Call(Kind kind, DataType type, RedOp op, int root, Shape shape, bool in_place, Place place,
           std::byte* send, std::byte* recv, const Mover* mover)
    : kind_(kind),
      type_(type),
      op_(op),
      root_(root),
      shape_(shape),
      in_place_(in_place),
      place_(place),
      send_(send),
      recv_(recv),
      base_(recv),
      mover_(mover) {
  lay_out();
  if (in_place) place_in_one_buffer();
  if (kind == Kind::kBarrier) return;
  for (int rank = 0; rank < place.ranks; ++rank) {
    inputs_.push_back(!knows_input_of(rank) ? Pattern()
                      : reduces(kind)       ? contribution(type, op, place.ranks, rank)
                                            : moved(type, rank));
  }
  if (!reduces(kind)) return;
  const int prefix = kind == Kind::kScan ? place.rank + 1 : place.rank;
  const bool scans = kind == Kind::kScan || kind == Kind::kExscan;
  if (has_output()) result_.push_back(reduced(type, op, place.ranks, scans ? prefix : place.ranks));
}

bool Call::knows_input_of(int rank) const {
  switch (kind_) {
    case Kind::kAllGather:
    case Kind::kAllGatherv:
    case Kind::kAllToAll:
    case Kind::kAllToAllv:
      return true;
    case Kind::kGather:
    case Kind::kGatherv:
      return at_root() || rank == place_.rank;
    default:
      return rank == place_.rank || rank == root_;
  }
}

namespace {

Call::Blocks one_after_the_other(std::vector<size_t> counts) {
  Call::Blocks blocks{std::move(counts), {}, 0};
  for (size_t count : blocks.counts) {
    blocks.displacements.push_back(blocks.total);
    blocks.total += count;
  }
  return blocks;
}

}  // namespace

void Call::lay_out() {
  std::vector<size_t> pairs, all;
  for (int r = 0; r < place_.ranks; ++r) {
    pairs.push_back(block_of_pair(shape_, place_.ranks, place_.rank, r));
    all.push_back(block_of_rank(shape_, place_.ranks, r));
  }
  const size_t mine = all[static_cast<size_t>(place_.rank)];
  const Blocks of_all = one_after_the_other(all), single = one_after_the_other({mine});
  switch (kind_) {
    case Kind::kAllToAll:
    case Kind::kAllToAllv:
      sent_ = received_ = one_after_the_other(pairs);
      break;
    case Kind::kReduceScatter:
    case Kind::kReduceScatterv:
    case Kind::kScatter:
    case Kind::kScatterv:
      sent_ = of_all;
      received_ = single;
      break;
    case Kind::kAllGather:
    case Kind::kAllGatherv:
    case Kind::kGather:
    case Kind::kGatherv:
      sent_ = single;
      received_ = of_all;
      break;
    default:
      sent_ = received_ = one_after_the_other({shape_.count});
      break;
  }
}

void Call::place_in_one_buffer() {
  const auto own = [&](const Blocks& blocks) {
    return base_ + blocks.displacements[static_cast<size_t>(place_.rank)] * size_of(type_);
  };
  send_ = recv_ = base_;
  switch (kind_) {
    case Kind::kGather:
    case Kind::kGatherv:
      if (at_root()) send_ = own(received_);
      break;
    case Kind::kAllGather:
    case Kind::kAllGatherv:
      send_ = own(received_);
      break;
    case Kind::kScatter:
    case Kind::kScatterv:
      if (at_root()) recv_ = own(sent_);
      break;
    case Kind::kReduceScatter:
    case Kind::kReduceScatterv:
      recv_ = own(sent_);
      break;
    default:
      break;
  }
}

bool Call::has_input() const {
  const bool of_root =
      kind_ == Kind::kBroadcast || kind_ == Kind::kScatter || kind_ == Kind::kScatterv;
  return kind_ != Kind::kBarrier && (!of_root || at_root());
}
bool Call::has_output() const {
  const bool of_root = kind_ == Kind::kReduce || kind_ == Kind::kGather || kind_ == Kind::kGatherv;
  if (kind_ == Kind::kExscan) return place_.rank > 0;
  return kind_ != Kind::kBarrier && (!of_root || at_root());
}

void Call::write_input() const {
  if (!has_input()) return;
  const Pattern& own = inputs_[static_cast<size_t>(place_.rank)];
  if (mover_ == nullptr) {
    own.fill(const_cast<std::byte*>(send_), sent_.total, 0);
    return;
  }
  std::vector<std::byte> filled(sent_.total * size_of(type_));
  own.fill(filled.data(), sent_.total, 0);
  (*mover_)(const_cast<std::byte*>(send_), filled.data(), filled.size());
}

const std::byte* Call::readable(const std::byte* data, size_t count,
                                std::vector<std::byte>* copy) const {
  if (mover_ == nullptr) return data;
  copy->resize(count * size_of(type_));
  (*mover_)(copy->data(), data, copy->size());
  return copy->data();
}

void Call::spoil_output() const {
  if (!has_output()) return;
  constexpr int kSpoilt = 0xA5;
  // In place the input is written afterwards, over this.
  const size_t bytes = received_.total * size_of(type_);
  if (mover_ == nullptr) {
    std::memset(recv_, kSpoilt, bytes);
    return;
  }
  const std::vector<std::byte> spoilt(bytes, std::byte{kSpoilt});
  (*mover_)(recv_, spoilt.data(), bytes);
}

std::vector<Call::Segment> Call::expected() const {
  const auto me = static_cast<size_t>(place_.rank);
  const size_t mine = received_.total;
  switch (kind_) {
    case Kind::kAllReduce:
    case Kind::kReduce:
    case Kind::kScan:
    case Kind::kExscan:
      return {{0, &result_[0], 0, mine}};
    case Kind::kReduceScatter:
    case Kind::kReduceScatterv:
      return {{0, &result_[0], sent_.displacements[me], mine}};
    case Kind::kBroadcast:
      return {{0, &inputs_[static_cast<size_t>(root_)], 0, mine}};
    case Kind::kScatter:
    case Kind::kScatterv:
      return {{0, &inputs_[static_cast<size_t>(root_)], sent_.displacements[me], mine}};
    case Kind::kBarrier:
      return {};
    default:
      break;
  }
  // A block of every rank.
  std::vector<Segment> segments;
  for (size_t r = 0; r < inputs_.size(); ++r) {
    uint64_t first = 0;  // of the block in the other's buffer
    if (kind_ == Kind::kAllToAll || kind_ == Kind::kAllToAllv) {
      for (int to = 0; to < place_.rank; ++to) {
        first += block_of_pair(shape_, place_.ranks, static_cast<int>(r), to);
      }
    }
    segments.push_back({received_.displacements[r], &inputs_[r], first, received_.counts[r]});
  }
  return segments;
}

uint64_t Call::count_wrong_at(const std::byte* recv_at) const {
  if (!has_output()) return 0;
  uint64_t wrong = 0;
  std::vector<std::byte> copy;
  const std::byte* data = readable(recv_at, received_.total, &copy);
  for (const Segment& s : expected()) {
    wrong += s.pattern->count_wrong(data + s.offset * size_of(type_), s.count, s.first);
  }
  return wrong;
}

uint64_t Call::count_wrong() const {
  uint64_t wrong = count_wrong_at(recv_);
  if (!in_place_ && has_input()) {
    std::vector<std::byte> copy;
    const std::byte* data = readable(send_, sent_.total, &copy);
    wrong += inputs_[static_cast<size_t>(place_.rank)].count_wrong(data, sent_.total, 0);
  }
  return wrong;
}

}  // namespace hetccl::bench

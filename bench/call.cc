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
  if (in_place) {
    size_t own_block = static_cast<size_t>(place.rank) * shape.count * size_of(type);
    send_ = kind == Kind::kAllGather ? base_ + own_block : base_;
    recv_ = kind == Kind::kReduceScatter ? base_ + own_block : base_;
  }
  if (kind == Kind::kBarrier) return;
  for (int rank = 0; rank < place.ranks; ++rank) {
    bool known =
        rank == place.rank || rank == root || kind == Kind::kAllGather || kind == Kind::kAllToAll;
    inputs_.push_back(!known          ? Pattern()
                      : reduces(kind) ? contribution(type, op, place.ranks, rank)
                                      : moved(type, rank));
  }
  if (reduces(kind)) result_.push_back(reduced(type, op, place.ranks));
}

bool Call::has_input() const {
  return kind_ != Kind::kBarrier && (kind_ != Kind::kBroadcast || place_.rank == root_);
}
bool Call::has_output() const {
  return kind_ != Kind::kBarrier && (kind_ != Kind::kReduce || place_.rank == root_);
}

void Call::write_input() const {
  if (!has_input()) return;
  const Pattern& own = inputs_[static_cast<size_t>(place_.rank)];
  if (mover_ == nullptr) {
    own.fill(const_cast<std::byte*>(send_), shape_.send_elements, 0);
    return;
  }
  std::vector<std::byte> filled(shape_.send_elements * size_of(type_));
  own.fill(filled.data(), shape_.send_elements, 0);
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
  const size_t bytes = shape_.recv_elements * size_of(type_);
  if (mover_ == nullptr) {
    std::memset(recv_, kSpoilt, bytes);
    return;
  }
  const std::vector<std::byte> spoilt(bytes, std::byte{kSpoilt});
  (*mover_)(recv_, spoilt.data(), bytes);
}

std::vector<Call::Segment> Call::expected() const {
  uint64_t own = static_cast<uint64_t>(place_.rank) * shape_.count;
  std::vector<Segment> segments;
  switch (kind_) {
    case Kind::kAllReduce:
    case Kind::kReduce:
      segments.push_back({0, &result_[0], 0});
      break;
    case Kind::kReduceScatter:
      segments.push_back({0, &result_[0], own});
      break;
    case Kind::kBroadcast:
      segments.push_back({0, &inputs_[static_cast<size_t>(root_)], 0});
      break;
    case Kind::kAllGather:
    case Kind::kAllToAll:
      for (size_t r = 0; r < inputs_.size(); ++r) {
        segments.push_back({r * shape_.count, &inputs_[r], kind_ == Kind::kAllToAll ? own : 0});
      }
      break;
    case Kind::kBarrier:
      break;
  }
  return segments;
}

uint64_t Call::count_wrong_at(const std::byte* recv_at) const {
  if (!has_output()) return 0;
  uint64_t wrong = 0;
  std::vector<std::byte> copy;
  const std::byte* data = readable(recv_at, shape_.recv_elements, &copy);
  for (const Segment& s : expected()) {
    wrong += s.pattern->count_wrong(data + s.offset * size_of(type_), shape_.count, s.first);
  }
  return wrong;
}

uint64_t Call::count_wrong() const {
  uint64_t wrong = count_wrong_at(recv_);
  if (!in_place_ && has_input()) {
    std::vector<std::byte> copy;
    const std::byte* data = readable(send_, shape_.send_elements, &copy);
    wrong += inputs_[static_cast<size_t>(place_.rank)].count_wrong(data, shape_.send_elements, 0);
  }
  return wrong;
}

}  // namespace hetccl::bench

#include "lib/call.h"

#include <algorithm>

#include "lib/base/hash.h"

namespace hetccl {
namespace {

using coll::Collective;

constexpr size_t kMaxBytes = size_t{1} << 63;

bool multiply_overflows(size_t a, size_t b, size_t* product) {
  return __builtin_mul_overflow(a, b, product) || *product > kMaxBytes;
}

std::string name(const Call& call) { return std::string(coll::name_of(call.collective)); }

// Elements of the whole symbolic vector, or an error where bytes leave 63 bits.
Result<size_t> total_elements(const Call& call, int ranks) {
  size_t total = call.count, bytes;
  if (call.counts != nullptr) {
    total = 0;
    for (int r = 0; r < ranks; ++r) {
      if (__builtin_add_overflow(total, call.counts[r], &total)) total = SIZE_MAX;
    }
  } else if (call.collective == Collective::kAllGather ||
             call.collective == Collective::kReduceScatter ||
             call.collective == Collective::kAllToAll) {
    if (__builtin_mul_overflow(call.count, static_cast<size_t>(ranks), &total)) total = SIZE_MAX;
  }
  if (multiply_overflows(total, size_of(call.type), &bytes)) {
    return invalid_argument(name(call) + ": the count makes more than 2^63 bytes");
  }
  return total;
}

size_t block_offset(const Call& call, int rank) {
  if (call.counts == nullptr) return call.count * static_cast<size_t>(rank);
  if (call.displacements != nullptr) return call.displacements[rank];
  size_t offset = 0;
  for (int r = 0; r < rank; ++r) offset += call.counts[r];
  return offset;
}

size_t block_count(const Call& call, int rank) {
  return call.counts != nullptr ? call.counts[rank] : call.count;
}

// Elements that the displaced blocks of an allgatherv reach to.
Result<size_t> displaced_end(const Call& call, int ranks) {
  size_t end = 0;
  std::vector<std::pair<size_t, size_t>> blocks;
  for (int r = 0; r < ranks; ++r) {
    if (call.counts[r] == 0) continue;
    size_t to, bytes;
    if (__builtin_add_overflow(call.displacements[r], call.counts[r], &to) ||
        multiply_overflows(to, size_of(call.type), &bytes)) {
      return invalid_argument(name(call) + ": recvdispls[" + std::to_string(r) +
                              "] reaches beyond 2^63 bytes");
    }
    end = std::max(end, to);
    blocks.emplace_back(call.displacements[r], to);
  }
  std::sort(blocks.begin(), blocks.end());
  for (size_t k = 1; k < blocks.size(); ++k) {
    if (blocks[k].first < blocks[k - 1].second) {
      return invalid_argument(name(call) + ": blocks of recvbuff overlap; check recvdispls");
    }
  }
  return end;
}

Status check_extents(const Call& call, int ranks, int rank, Extents* extents) {
  const size_t width = size_of(call.type);
  const size_t whole = extents->total_elements * width;
  const bool at_root = rank == call.root;
  switch (call.collective) {
    case Collective::kAllReduce:
    case Collective::kAllToAll:
      extents->send_bytes = extents->recv_bytes = whole;
      break;
    case Collective::kReduce:
      extents->send_bytes = whole;
      extents->recv_bytes = at_root ? whole : 0;
      break;
    case Collective::kBroadcast:
      extents->send_bytes = at_root ? whole : 0;
      extents->recv_bytes = whole;
      break;
    case Collective::kReduceScatter:
      extents->send_bytes = whole;
      extents->recv_bytes = block_count(call, rank) * width;
      break;
    case Collective::kAllGather:
      extents->send_bytes = block_count(call, rank) * width;
      extents->recv_bytes = whole;
      if (call.displacements != nullptr) {
        Result<size_t> end = displaced_end(call, ranks);
        if (!end.ok()) return end.status();
        extents->recv_bytes = *end * width;
      }
      break;
    case Collective::kBarrier:
      break;
  }
  return {};
}

// In place as the collective defines it, or apart.
Status check_overlap(const Call& call, int rank, const Extents& extents) {
  if (extents.send_bytes == 0 || extents.recv_bytes == 0) return {};
  const auto send = reinterpret_cast<uintptr_t>(call.send);
  const auto recv = reinterpret_cast<uintptr_t>(call.recv);
  if (send + extents.send_bytes <= recv || recv + extents.recv_bytes <= send) return {};
  const size_t own = block_offset(call, rank) * size_of(call.type);
  bool in_place = send == recv;
  if (call.collective == Collective::kAllGather) in_place = send == recv + own;
  if (call.collective == Collective::kReduceScatter) in_place = recv == send + own;
  if (in_place) return {};
  return invalid_argument(name(call) +
                          ": sendbuff and recvbuff overlap in another way than in place");
}

}  // namespace

bool Call::reduces() const {
  return collective == Collective::kAllReduce || collective == Collective::kReduce ||
         collective == Collective::kReduceScatter;
}

bool Call::rooted() const {
  return collective == Collective::kReduce || collective == Collective::kBroadcast;
}

Result<Extents> check_arguments(const Call& call, int ranks, int rank) {
  if (!is_valid(call.type)) {
    return invalid_argument(name(call) + ": unknown data type " + std::to_string(call.type));
  }
  if (call.reduces() && !is_builtin(call.op)) {
    return invalid_argument(name(call) + ": unknown operator " + std::to_string(call.op));
  }
  if (call.reduces() && !supports(call.type, call.op)) {
    return invalid_argument(name(call) + ": operator " + std::string(name_of(call.op)) +
                            " is not defined for type " + std::string(name_of(call.type)));
  }
  if (call.rooted() && (call.root < 0 || call.root >= ranks)) {
    return invalid_argument(name(call) + ": root " + std::to_string(call.root) +
                            " is not a rank of 0 to " + std::to_string(ranks - 1));
  }
  Extents extents;
  Result<size_t> total = total_elements(call, ranks);
  if (!total.ok()) return total.status();
  extents.total_elements = *total;
  if (Status s = check_extents(call, ranks, rank, &extents); !s.ok()) return s;
  return extents;
}

Status check_buffers(const Call& call, int rank, const Extents& extents) {
  if (call.send == nullptr && extents.send_bytes != 0) {
    return invalid_argument(name(call) + ": sendbuff is NULL and the count is not 0");
  }
  if (call.recv == nullptr && extents.recv_bytes != 0) {
    return invalid_argument(name(call) + ": recvbuff is NULL and the count is not 0");
  }
  return check_overlap(call, rank, extents);
}

uint64_t hash_of(const Call& call, int ranks) {
  uint64_t h =
      hash_mix(static_cast<uint64_t>(call.collective) + 1, static_cast<uint64_t>(call.type));
  h = hash_mix(h, call.reduces() ? static_cast<uint64_t>(call.op) : 99);
  h = hash_mix(h, call.rooted() ? static_cast<uint64_t>(call.root) : 0);
  if (call.counts == nullptr) return hash_mix(h, call.count);
  for (int r = 0; r < ranks; ++r) h = hash_mix(h, call.counts[r]);
  return hash_mix(h, 1);
}

std::string text_of(const Call& call, int ranks) {
  std::string text = name(call);
  if (call.collective == Collective::kBarrier) return text;
  if (call.counts == nullptr) {
    text += " count=" + std::to_string(call.count);
  } else {
    text += "v counts=";
    for (int r = 0; r < std::min(ranks, 16); ++r) {
      text += (r == 0 ? "" : ",") + std::to_string(call.counts[r]);
    }
    if (ranks > 16) text += ",...";
  }
  text += " type=" + std::string(name_of(call.type));
  if (call.reduces()) text += " op=" + std::string(name_of(call.op));
  if (call.rooted()) text += " root=" + std::to_string(call.root);
  return text;
}

coll::Layout layout_of(const Call& call, const coll::Algorithm& algorithm, int ranks, int rank) {
  const bool by_rank = call.collective == Collective::kAllGather ||
                       call.collective == Collective::kReduceScatter ||
                       call.collective == Collective::kAllToAll;
  if (!by_rank) {
    const size_t granule = std::max<size_t>(1, 64 / size_of(call.type));
    return coll::Layout::split(call.count, algorithm.blocks(ranks), granule);
  }
  std::vector<size_t> counts(static_cast<size_t>(ranks), call.count);
  if (call.counts != nullptr) counts.assign(call.counts, call.counts + ranks);
  coll::Layout layout = coll::Layout::from_counts(counts);
  if (call.collective == Collective::kAllGather) {
    layout.set_compact(coll::Buffer::kInput, rank);
    if (call.displacements != nullptr) {
      layout.set_displacements(coll::Buffer::kOutput,
                               {call.displacements, static_cast<size_t>(ranks)});
    }
  } else if (call.collective == Collective::kReduceScatter) {
    layout.set_compact(coll::Buffer::kOutput, rank);
  }
  return layout;
}

}  // namespace hetccl

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

std::string name(const Call& call) {
  return std::string(coll::name_of(call.collective)) + (call.has_lists() ? "v" : "");
}

size_t sum_of(const size_t* counts, int ranks) {
  size_t total = 0;
  for (int r = 0; r < ranks; ++r) {
    if (__builtin_add_overflow(total, counts[r], &total)) total = SIZE_MAX;
  }
  return total;
}

// Elements of all blocks that this rank knows, or an error where bytes leave 63 bits.
Result<size_t> total_elements(const Call& call, int ranks) {
  size_t total = call.count, bytes;
  if (call.counts != nullptr) {
    total = sum_of(call.counts, ranks);
    if (call.send_counts != nullptr) total = std::max(total, sum_of(call.send_counts, ranks));
  } else if (coll::block_per_rank(call.collective) && !call.own_counts) {
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
  return call.counts != nullptr && !call.own_counts ? call.counts[rank] : call.count;
}

// The displaced blocks of one of a rank's buffers.
struct Displaced {
  const size_t* counts;
  const size_t* displacements;  // nullptr: not displaced
};
Displaced sent_blocks(const Call& call) {
  if (call.collective == Collective::kScatter) return {call.counts, call.displacements};
  return {call.send_counts, call.send_displacements};
}
Displaced received_blocks(const Call& call) {
  if (call.collective == Collective::kScatter) return {nullptr, nullptr};
  return {call.counts, call.displacements};
}

using Interval = std::pair<size_t, size_t>;  // elements from, to

// Those of the blocks that are not empty, ascending.
std::vector<Interval> intervals(const Displaced& blocks, int ranks) {
  std::vector<Interval> found;
  for (int r = 0; r < ranks; ++r) {
    if (blocks.counts[r] == 0) continue;
    found.emplace_back(blocks.displacements[r], blocks.displacements[r] + blocks.counts[r]);
  }
  std::sort(found.begin(), found.end());
  return found;
}

// Bytes that the blocks reach to. `what`: "recvdispls".
Result<size_t> displaced_end(const Call& call, const Displaced& blocks, int ranks,
                             const char* what) {
  size_t end = 0;
  for (int r = 0; r < ranks; ++r) {
    if (blocks.counts[r] == 0) continue;
    size_t to, bytes;
    if (__builtin_add_overflow(blocks.displacements[r], blocks.counts[r], &to) ||
        multiply_overflows(to, size_of(call.type), &bytes)) {
      return invalid_argument(name(call) + ": " + what + "[" + std::to_string(r) +
                              "] reaches beyond 2^63 bytes");
    }
    end = std::max(end, bytes);
  }
  return end;
}

Status check_displaced(const Call& call, int ranks, Extents* extents) {
  if (const Displaced sent = sent_blocks(call); sent.displacements != nullptr) {
    const Result<size_t> end = displaced_end(call, sent, ranks, "senddispls");
    if (!end.ok()) return end.status();
    extents->send_bytes = *end;
  }
  if (const Displaced received = received_blocks(call); received.displacements != nullptr) {
    const Result<size_t> end = displaced_end(call, received, ranks, "recvdispls");
    if (!end.ok()) return end.status();
    extents->recv_bytes = *end;
    const std::vector<Interval> blocks = intervals(received, ranks);
    for (size_t k = 1; k < blocks.size(); ++k) {
      if (blocks[k].first < blocks[k - 1].second) {
        return invalid_argument(name(call) + ": blocks of recvbuff overlap; check recvdispls");
      }
    }
  }
  return {};
}

// What a rank sends to itself is one number, given twice.
Status check_own_block(const Call& call, int rank) {
  if (call.counts == nullptr || !call.own_counts) return {};
  const bool scatter = call.collective == Collective::kScatter;
  const bool all = call.collective == Collective::kAllToAll;
  const size_t single = all ? call.send_counts[rank] : call.count;
  if (single == call.counts[rank]) return {};
  const std::string index = "[" + std::to_string(rank) + "]";
  return invalid_argument(name(call) + ": " +
                          (all       ? "sendcounts" + index
                           : scatter ? "recvcount"
                                     : "sendcount") +
                          " is " + std::to_string(single) + ", but " +
                          (scatter ? "sendcounts" : "recvcounts") + index + " of this rank is " +
                          std::to_string(call.counts[rank]));
}

void set_extents(const Call& call, int rank, Extents* extents) {
  const size_t width = size_of(call.type);
  const size_t whole = extents->total_elements * width;
  const size_t block = block_count(call, rank) * width;
  const bool at_root = rank == call.root;
  switch (call.collective) {
    case Collective::kAllReduce:
    case Collective::kAllToAll:
    case Collective::kScan:
      extents->send_bytes = extents->recv_bytes = whole;
      break;
    case Collective::kExscan:
      extents->send_bytes = whole;
      extents->recv_bytes = rank > 0 ? whole : 0;
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
      extents->recv_bytes = block;
      break;
    case Collective::kAllGather:
      extents->send_bytes = block;
      extents->recv_bytes = whole;
      break;
    case Collective::kGather:
      extents->send_bytes = block;
      extents->recv_bytes = at_root ? whole : 0;
      break;
    case Collective::kScatter:
      extents->send_bytes = at_root ? whole : 0;
      extents->recv_bytes = block;
      break;
    case Collective::kBarrier:
      break;
  }
}

// Whether blocks of the one buffer reach into the other's: gaps between blocks are nobody's.
bool blocks_overlap(const Call& call, int ranks, const Extents& extents) {
  const size_t width = size_of(call.type);
  const auto bytes_of = [&](const void* buffer, const Displaced& blocks, size_t bytes) {
    const auto base = reinterpret_cast<uintptr_t>(buffer);
    if (blocks.displacements == nullptr) return std::vector<Interval>{{base, base + bytes}};
    std::vector<Interval> list = intervals(blocks, ranks);
    for (Interval& i : list) i = {base + i.first * width, base + i.second * width};
    return list;
  };
  const auto sent = bytes_of(call.send, sent_blocks(call), extents.send_bytes);
  const auto received = bytes_of(call.recv, received_blocks(call), extents.recv_bytes);
  // Blocks received are apart from one another; those sent may not be.
  for (const Interval& s : sent) {
    const auto next =
        std::upper_bound(received.begin(), received.end(), Interval{s.first, SIZE_MAX});
    if (next != received.end() && next->first < s.second) return true;
    if (next != received.begin() && std::prev(next)->second > s.first) return true;
  }
  return false;
}

// In place as the collective defines it, or apart.
Status check_overlap(const Call& call, int ranks, int rank, const Extents& extents) {
  if (extents.send_bytes == 0 || extents.recv_bytes == 0) return {};
  const auto send = reinterpret_cast<uintptr_t>(call.send);
  const auto recv = reinterpret_cast<uintptr_t>(call.recv);
  if (send + extents.send_bytes <= recv || recv + extents.recv_bytes <= send) return {};
  const size_t own = block_offset(call, rank) * size_of(call.type);
  bool in_place = send == recv;
  if (call.collective == Collective::kAllGather || call.collective == Collective::kGather) {
    in_place = send == recv + own;
  }
  if (call.collective == Collective::kReduceScatter || call.collective == Collective::kScatter) {
    in_place = recv == send + own;
  }
  if (call.apart(ranks)) in_place = false;
  if (in_place || !blocks_overlap(call, ranks, extents)) return {};
  return invalid_argument(name(call) +
                          ": sendbuff and recvbuff overlap in another way than in place");
}

}  // namespace

bool Call::apart(int ranks) const {
  return collective == Collective::kAllToAll && own_counts &&
         !(std::equal(counts, counts + ranks, send_counts) &&
           std::equal(displacements, displacements + ranks, send_displacements));
}

Result<Extents> check_arguments(const Call& call, int ranks, int rank, const Operators& operators) {
  if (!is_valid(call.type)) {
    return invalid_argument(name(call) + ": unknown data type " + std::to_string(call.type));
  }
  if (call.reduces()) {
    const Status s = operators.check(call.op, call.type);
    if (!s.ok()) return Status(s.code(), name(call) + ": " + s.message());
  }
  if (call.rooted() && (call.root < 0 || call.root >= ranks)) {
    return invalid_argument(name(call) + ": root " + std::to_string(call.root) +
                            " is not a rank of 0 to " + std::to_string(ranks - 1));
  }
  const bool prefix =
      call.collective == Collective::kScan || call.collective == Collective::kExscan;
  if (prefix && call.op == hetcclAvg) {
    return invalid_argument(name(call) + ": operator avg is not defined for a prefix of the ranks");
  }
  if (Status s = check_own_block(call, rank); !s.ok()) return s;
  Extents extents;
  Result<size_t> total = total_elements(call, ranks);
  if (!total.ok()) return total.status();
  extents.total_elements = *total;
  set_extents(call, rank, &extents);
  if (Status s = check_displaced(call, ranks, &extents); !s.ok()) return s;
  return extents;
}

Status check_buffers(const Call& call, int ranks, int rank, const Extents& extents) {
  if (call.send == nullptr && extents.send_bytes != 0) {
    return invalid_argument(name(call) + ": sendbuff is NULL and the count is not 0");
  }
  if (call.recv == nullptr && extents.recv_bytes != 0) {
    return invalid_argument(name(call) + ": recvbuff is NULL and the count is not 0");
  }
  return check_overlap(call, ranks, rank, extents);
}

uint64_t hash_of(const Call& call, int ranks) {
  uint64_t h =
      hash_mix(static_cast<uint64_t>(call.collective) + 1, static_cast<uint64_t>(call.type));
  h = hash_mix(h, call.reduces() ? static_cast<uint64_t>(call.op) : 99);
  h = hash_mix(h, call.rooted() ? static_cast<uint64_t>(call.root) : 0);
  if (call.own_counts) return hash_mix(h, 2);
  if (call.counts == nullptr) return hash_mix(h, call.count);
  for (int r = 0; r < ranks; ++r) h = hash_mix(h, call.counts[r]);
  return hash_mix(h, 1);
}

static std::string list_of(const char* label, const size_t* counts, int ranks) {
  std::string text = label;
  for (int r = 0; r < std::min(ranks, 16); ++r) {
    text += (r == 0 ? "" : ",") + std::to_string(counts[r]);
  }
  return ranks > 16 ? text + ",..." : text;
}

std::string text_of(const Call& call, int ranks) {
  std::string text = name(call);
  if (call.collective == Collective::kBarrier) return text;
  if (!call.own_counts) {
    text += call.counts == nullptr ? " count=" + std::to_string(call.count)
                                   : list_of(" counts=", call.counts, ranks);
  } else if (call.collective == Collective::kAllToAll) {
    text += list_of(" sendcounts=", call.send_counts, ranks) +
            list_of(" recvcounts=", call.counts, ranks);
  } else {
    const bool scatter = call.collective == Collective::kScatter;
    text += (scatter ? " recvcount=" : " sendcount=") + std::to_string(call.count);
    if (call.counts != nullptr) {
      text += list_of(scatter ? " sendcounts=" : " recvcounts=", call.counts, ranks);
    }
  }
  text += " type=" + std::string(name_of(call.type));
  if (call.reduces()) {
    text += " op=" + (is_builtin(call.op) ? std::string(name_of(call.op))
                                          : "made" + std::to_string(call.op - hetcclNumOps));
  }
  if (call.rooted()) text += " root=" + std::to_string(call.root);
  return text;
}

coll::Layout layout_of(const Call& call, const coll::Algorithm& algorithm, int ranks, int rank) {
  const auto n = static_cast<size_t>(ranks);
  if (!coll::block_per_rank(call.collective)) {
    const size_t granule = std::max<size_t>(1, 64 / size_of(call.type));
    return coll::Layout::split(call.count, algorithm.blocks(ranks), granule);
  }
  std::vector<size_t> counts(n, call.own_counts ? 0 : call.count);
  if (call.counts != nullptr) counts.assign(call.counts, call.counts + n);
  // What this rank does not know, it does not use.
  if (call.counts == nullptr && call.own_counts) counts[static_cast<size_t>(rank)] = call.count;
  coll::Layout layout = coll::Layout::from_counts(counts);
  switch (call.collective) {
    case Collective::kAllGather:
    case Collective::kGather:
      layout.set_compact(coll::Buffer::kInput, rank);
      break;
    case Collective::kReduceScatter:
    case Collective::kScatter:
      layout.set_compact(coll::Buffer::kOutput, rank);
      break;
    default:
      break;
  }
  if (call.send_counts != nullptr) layout.set_input_counts({call.send_counts, n});
  if (const size_t* at = sent_blocks(call).displacements; at != nullptr) {
    layout.set_displacements(coll::Buffer::kInput, {at, n});
  }
  if (const size_t* at = received_blocks(call).displacements; at != nullptr) {
    layout.set_displacements(coll::Buffer::kOutput, {at, n});
  }
  return layout;
}

}  // namespace hetccl

#include "bench/collective.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>

namespace hetccl::bench {
namespace {

struct Row {
  Kind kind;
  const char* name;
  bool reduces, has_root;
  bool blocks_sent, blocks_received;  // a buffer of one block a rank
  bool has_counts = false;
};
constexpr std::array<Row, 16> kRows = {{
    {Kind::kAllReduce, "allreduce", true, false, false, false},
    {Kind::kReduce, "reduce", true, true, false, false},
    {Kind::kReduceScatter, "reducescatter", true, false, true, false},
    {Kind::kReduceScatterv, "reducescatterv", true, false, true, false, true},
    {Kind::kBroadcast, "broadcast", false, true, false, false},
    {Kind::kAllGather, "allgather", false, false, false, true},
    {Kind::kAllGatherv, "allgatherv", false, false, false, true, true},
    {Kind::kAllToAll, "alltoall", false, false, true, true},
    {Kind::kAllToAllv, "alltoallv", false, false, true, true, true},
    {Kind::kGather, "gather", false, true, false, true},
    {Kind::kGatherv, "gatherv", false, true, false, true, true},
    {Kind::kScatter, "scatter", false, true, true, false},
    {Kind::kScatterv, "scatterv", false, true, true, false, true},
    {Kind::kScan, "scan", true, false, false, false},
    {Kind::kExscan, "exscan", true, false, false, false},
    {Kind::kBarrier, "barrier", false, false, false, false},
}};
constexpr std::array<std::string_view, 3> kSkews = {"even", "skewed", "zero"};

const Row& row(Kind kind) { return kRows[static_cast<size_t>(kind)]; }

// The k-th of n blocks that have `count` elements where they are even.
size_t uneven(Skew skew, size_t count, int n, int k) {
  const auto ranks = static_cast<size_t>(n), place = static_cast<size_t>(k);
  switch (skew) {
    case Skew::kEven:
      return count;
    case Skew::kSkewed:
      return count / (ranks + 1) * 2 * (place + 1) +
             count % (ranks + 1) * 2 * (place + 1) / (ranks + 1);
    case Skew::kZero:
      return place % 4 == 0 ? count : 0;
  }
  return 0;
}

}  // namespace

std::string_view name_of(Kind kind) { return row(kind).name; }

bool parse_kind(std::string_view text, Kind* kind) {
  std::string plain;
  for (char c : text) {
    if (c != '_' && c != '-') plain += static_cast<char>(std::tolower(c));
  }
  for (const Row& r : kRows) {
    if (plain != r.name) continue;
    *kind = r.kind;
    return true;
  }
  return false;
}

std::string collective_names() {
  std::string names;
  for (const Row& r : kRows) names += (names.empty() ? "" : ", ") + std::string(r.name);
  return names;
}

std::string type_names() {
  std::string names;
  for (int t = 0; t < hetcclNumTypes; ++t) {
    names += (t == 0 ? "" : ", ") + std::string(hetccl::name_of(static_cast<DataType>(t)));
  }
  return names;
}

std::string op_names() {
  std::string names;
  for (int op = 0; op < hetcclNumOps; ++op) {
    names += (op == 0 ? "" : ", ") + std::string(hetccl::name_of(static_cast<RedOp>(op)));
  }
  return names;
}

bool reduces(Kind kind) { return row(kind).reduces; }
bool has_root(Kind kind) { return row(kind).has_root; }
bool has_counts(Kind kind) { return row(kind).has_counts; }

std::string_view plain_name_of(Kind kind) {
  std::string_view name = name_of(kind);
  if (has_counts(kind)) name.remove_suffix(1);
  return name;
}

bool allows(Kind kind, DataType type, RedOp op) {
  const bool prefix = kind == Kind::kScan || kind == Kind::kExscan;
  return !reduces(kind) || (supports(type, op) && !(prefix && op == hetcclAvg));
}

bool parse_skew(std::string_view text, Skew* skew) {
  for (size_t i = 0; i < kSkews.size(); ++i) {
    if (kSkews[i] != text) continue;
    *skew = static_cast<Skew>(i);
    return true;
  }
  return false;
}
std::string_view name_of(Skew skew) { return kSkews[static_cast<size_t>(skew)]; }

size_t block_of_pair(const Shape& shape, int ranks, int from, int to) {
  // Alike in both directions, so that it may be in place.
  return uneven(shape.skew, shape.count, ranks, (from + to) % ranks);
}
size_t block_of_rank(const Shape& shape, int ranks, int rank) {
  return uneven(shape.skew, shape.count, ranks, rank);
}

Shape shape_of_count(Kind kind, DataType type, int ranks, size_t count, Skew skew) {
  if (kind == Kind::kBarrier) return {};
  const Row& r = row(kind);
  Shape shape;
  shape.count = count;
  shape.skew = r.has_counts ? skew : Skew::kEven;
  size_t block = 0, all = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    block = std::max(block, block_of_rank(shape, ranks, rank));
    size_t sum = 0;
    for (int to = 0; kind == Kind::kAllToAllv && to < ranks; ++to) {
      sum += block_of_pair(shape, ranks, rank, to);
    }
    all = kind == Kind::kAllToAllv ? std::max(all, sum) : all + block_of_rank(shape, ranks, rank);
  }
  shape.send_elements = r.blocks_sent ? all : block;
  shape.recv_elements = r.blocks_received ? all : block;
  shape.bytes = uint64_t{std::max(shape.send_elements, shape.recv_elements)} * size_of(type);
  return shape;
}

Shape shape_of_size(Kind kind, DataType type, int ranks, uint64_t bytes, Skew skew) {
  const Row& r = row(kind);
  uint64_t elements = bytes / size_of(type);
  bool by_blocks = r.blocks_sent || r.blocks_received;
  return shape_of_count(kind, type, ranks, by_blocks ? elements / ranks : elements, skew);
}

double bus_factor(Kind kind, int ranks) {
  if (kind == Kind::kBarrier) return 0;
  double others = static_cast<double>(ranks - 1) / ranks;
  if (kind == Kind::kAllReduce) return 2 * others;
  return row(kind).blocks_sent || row(kind).blocks_received ? others : 1;
}

}  // namespace hetccl::bench

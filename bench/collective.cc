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
};
constexpr std::array<Row, 7> kRows = {{
    {Kind::kAllReduce, "allreduce", true, false, false, false},
    {Kind::kReduce, "reduce", true, true, false, false},
    {Kind::kReduceScatter, "reducescatter", true, false, true, false},
    {Kind::kBroadcast, "broadcast", false, true, false, false},
    {Kind::kAllGather, "allgather", false, false, false, true},
    {Kind::kAllToAll, "alltoall", false, false, true, true},
    {Kind::kBarrier, "barrier", false, false, false, false},
}};

const Row& row(Kind kind) { return kRows[static_cast<size_t>(kind)]; }

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

Shape shape_of_count(Kind kind, DataType type, int ranks, size_t count) {
  if (kind == Kind::kBarrier) return {};
  const Row& r = row(kind);
  size_t n = static_cast<size_t>(ranks);
  Shape shape;
  shape.count = count;
  shape.send_elements = r.blocks_sent ? count * n : count;
  shape.recv_elements = r.blocks_received ? count * n : count;
  shape.bytes = uint64_t{std::max(shape.send_elements, shape.recv_elements)} * size_of(type);
  return shape;
}

Shape shape_of_size(Kind kind, DataType type, int ranks, uint64_t bytes) {
  const Row& r = row(kind);
  uint64_t elements = bytes / size_of(type);
  bool by_blocks = r.blocks_sent || r.blocks_received;
  return shape_of_count(kind, type, ranks, by_blocks ? elements / ranks : elements);
}

double bus_factor(Kind kind, int ranks) {
  double others = static_cast<double>(ranks - 1) / ranks;
  switch (kind) {
    case Kind::kAllReduce:
      return 2 * others;
    case Kind::kReduceScatter:
    case Kind::kAllGather:
    case Kind::kAllToAll:
      return others;
    case Kind::kReduce:
    case Kind::kBroadcast:
      return 1;
    case Kind::kBarrier:
      return 0;
  }
  return 0;
}

}  // namespace hetccl::bench

// The collectives as the tools see them: names, how a size in bytes becomes a count, and the factor
// between algorithm and bus bandwidth. Constant data; no library call.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "lib/base/types.h"

namespace hetccl::bench {

using hetccl::name_of;

enum class Kind {
  kAllReduce,
  kReduce,
  kReduceScatter,
  kBroadcast,
  kAllGather,
  kAllToAll,
  kBarrier,
};

std::string_view name_of(Kind kind);  // "allreduce"
// Also takes "all_reduce", "reduce-scatter" and the like, in either case.
bool parse_kind(std::string_view text, Kind* kind);
std::string collective_names();  // "allreduce, reduce, ..."
std::string type_names();
std::string op_names();

bool reduces(Kind kind);
bool has_root(Kind kind);

// One call: `count` is what the API takes, `bytes` what nccl-tests calls the size: the larger of a
// rank's two buffers.
struct Shape {
  size_t count = 0;
  size_t send_elements = 0, recv_elements = 0;
  uint64_t bytes = 0;
};
// The call of the largest size not above `bytes`. Movement of blocks needs a multiple of the ranks.
Shape shape_of_size(Kind kind, DataType type, int ranks, uint64_t bytes);
Shape shape_of_count(Kind kind, DataType type, int ranks, size_t count);

// bus bandwidth = algorithm bandwidth * factor: what the links carry. 0 where nothing moves.
double bus_factor(Kind kind, int ranks);

}  // namespace hetccl::bench

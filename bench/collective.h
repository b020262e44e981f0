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
  kReduceScatterv,
  kBroadcast,
  kAllGather,
  kAllGatherv,
  kAllToAll,
  kAllToAllv,
  kGather,
  kGatherv,
  kScatter,
  kScatterv,
  kScan,
  kExscan,
  kBarrier,
};

// How the blocks of a v-form differ: not, in proportion to 1, 2, ..., n, or all but every fourth
// empty.
enum class Skew { kEven, kSkewed, kZero };

std::string_view name_of(Kind kind);  // "allreduce"
// Also takes "all_reduce", "reduce-scatter" and the like, in either case.
bool parse_kind(std::string_view text, Kind* kind);
std::string collective_names();  // "allreduce, reduce, ..."
std::string type_names();
std::string op_names();

bool reduces(Kind kind);
bool has_root(Kind kind);
bool has_counts(Kind kind);  // a v-form
// The same without the v, as HETCCL_ALGO knows it: "gather" of gatherv.
std::string_view plain_name_of(Kind kind);
// Whether the operator means something in it: a prefix has no average.
bool allows(Kind kind, DataType type, RedOp op);
bool parse_skew(std::string_view text, Skew* skew);
std::string_view name_of(Skew skew);  // "even"

// One call: `count` is what the API takes (of a v-form: what all blocks had if they were even),
// `bytes` what nccl-tests calls the size: the larger of a rank's two buffers. Of calls in which
// ranks differ, all of this is of the rank with the most.
struct Shape {
  size_t count = 0;
  size_t send_elements = 0, recv_elements = 0;
  uint64_t bytes = 0;
  Skew skew = Skew::kEven;
};
// The call of the largest size not above `bytes`, if blocks are even. Movement of blocks needs a
// multiple of the ranks.
Shape shape_of_size(Kind kind, DataType type, int ranks, uint64_t bytes, Skew skew = Skew::kEven);
Shape shape_of_count(Kind kind, DataType type, int ranks, size_t count, Skew skew = Skew::kEven);

// Elements of the block that goes from one rank to another, where blocks belong to ranks: of
// all-to-all to this pair, of the others to the rank whose block it is.
size_t block_of_pair(const Shape& shape, int ranks, int from, int to);
size_t block_of_rank(const Shape& shape, int ranks, int rank);

// bus bandwidth = algorithm bandwidth * factor: what the links carry. 0 where nothing moves.
double bus_factor(Kind kind, int ranks);

}  // namespace hetccl::bench

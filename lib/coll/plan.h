// A plan is what one rank does in a collective: an immutable list of steps over symbolic blocks,
// with no pointer, byte or device in it. Whoever runs it binds blocks to bytes by a Layout.
//
// Two kinds of steps are enough:
//   send     the blocks [first, first+count) of a local buffer to a peer
//   combine  operands, left to right, into the same blocks of a local buffer; an operand is a local
//            buffer or the next message of a peer. One operand: a receive or a copy. Several: a
//            reduction.
// Messages from one rank to another match in plan order, the k-th sent with the k-th received.
//
// Steps run as soon as what they depend on has run, not in list order: the builder infers the
// dependencies from the buffers. They hold chunk by chunk: every block is cut into chunks alike on
// all ranks, and chunk c of a step waits for chunk c of the steps that it depends on. The chunks of
// a step over several blocks are those of its blocks, in order; a step has at least one chunk, even
// if its blocks are empty.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace hetccl::coll {

enum class Collective : uint8_t {
  kAllReduce,
  kReduce,
  kReduceScatter,
  kBroadcast,
  kAllGather,
  kAllToAll,
  kGather,
  kScatter,
  kScan,
  kExscan,
  kBarrier,
};
inline constexpr int kCollectives = 11;

// Whether it combines contributions, and whether one rank's part differs from the others'.
constexpr bool reduces(Collective c) {
  return c == Collective::kAllReduce || c == Collective::kReduce ||
         c == Collective::kReduceScatter || c == Collective::kScan || c == Collective::kExscan;
}
constexpr bool rooted(Collective c) {
  return c == Collective::kReduce || c == Collective::kBroadcast || c == Collective::kGather ||
         c == Collective::kScatter;
}
// Whether a rank's buffers hold a block for each rank, or its own of them.
constexpr bool block_per_rank(Collective c) {
  return c == Collective::kReduceScatter || c == Collective::kAllGather ||
         c == Collective::kAllToAll || c == Collective::kGather || c == Collective::kScatter;
}
// Contributions to the result of `rank`.
constexpr int contributions(Collective c, int ranks, int rank) {
  return c == Collective::kScan ? rank + 1 : c == Collective::kExscan ? rank : ranks;
}

// Where a block lives. Input, output and temp hold elements; work holds accumulators (partial
// results), which may be wider. Block b of input and of output may be the same memory, and where
// accumulator and element are one type, block b of work and of output too; so equal blocks of these
// three count as one place. Temp is apart.
enum class Buffer : uint8_t { kInput, kOutput, kWork, kTemp };
inline constexpr int kBuffers = 4;

// Blocks first, first+1, ... modulo the number of blocks of the plan.
struct BlockRange {
  int32_t first = 0;
  int32_t count = 1;
};

enum class StepKind : uint8_t { kSend, kCombine };

struct Operand {
  int32_t peer = -1;               // -1: local
  Buffer buffer = Buffer::kInput;  // local: which buffer
  int32_t first = 0;               // local: first block, which may differ from the step's
  bool wide = false;               // message: it carries accumulators (sent from kWork)
};

struct Dependency {
  uint32_t step;  // an earlier step of this plan
  bool whole;     // all of it, instead of chunk by chunk: order of messages to or from one peer, or
                  // blocks that do not line up
};

struct Step {
  StepKind kind = StepKind::kSend;
  Buffer buffer = Buffer::kInput;  // send: source; combine: destination
  bool finalize = false;  // combine: contributions or partials become the result (see device.h)
  bool fan_out = false;   // send: same source blocks as the send before it, to another peer
  int32_t peer = -1;      // send: to whom
  BlockRange blocks;
  uint32_t operands_begin = 0, operands_end = 0;          // into Plan::operands
  uint32_t dependencies_begin = 0, dependencies_end = 0;  // into Plan::dependencies
};

struct Plan {
  Collective collective;
  std::string algorithm;  // the registry's name
  int ranks = 0, rank = 0, root = 0;
  int blocks = 0;  // the blocks of the symbolic space, equal on all ranks
  std::vector<Step> steps;
  std::vector<Operand> operands;
  std::vector<Dependency> dependencies;
  bool uses_work = false, uses_temp = false;
  // For calls whose input and output cannot be one place (AllToAllv with other counts or
  // displacements on its two sides): then their blocks may differ in size, and nothing waits for
  // the one because of the other.
  bool apart = false;
};

// Which buffers' equal blocks count as one place: those of one group. An exclusive scan must keep
// the partial that it got beside the one that it hands on, so its work is apart from its output.
constexpr int place_group(const Plan& plan, Buffer buffer) {
  if (buffer == Buffer::kTemp) return 1;
  if (buffer == Buffer::kWork && plan.collective == Collective::kExscan) return 2;
  if (buffer == Buffer::kInput && plan.apart) return 3;
  return 0;
}
inline constexpr int kPlaceGroups = 4;

// Whether the step copies blocks of input to the same blocks of output: nothing to do where the two
// are one place, and hence no hazard to steps that read the input.
bool copies_input(const Plan& plan, const Step& step);

// For people: "3 combine output[2] <- input[2] + message(1)  after 0,2*", where * marks a
// dependency on the whole step. A combine that finalizes reads "finalize".
std::string to_text(const Plan& plan, size_t step);
std::string to_text(const Plan& plan);  // one line a step

}  // namespace hetccl::coll

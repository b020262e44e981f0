// One collective call as the user made it, its checks, and what of it all ranks must agree on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lib/base/status.h"
#include "lib/base/types.h"
#include "lib/coll/layout.h"
#include "lib/coll/registry.h"
#include "lib/operators.h"

namespace hetccl {

struct Call {
  coll::Collective collective;
  const void* send = nullptr;
  void* recv = nullptr;
  size_t count = 0;  // as the user gave it: of the vector, or of a block
  DataType type = hetcclByte;
  RedOp op = hetcclSum;  // of reductions
  int root = 0;
  // v-forms: of the blocks received (Scatterv: sent), one a rank. Gatherv, Scatterv: of the root
  // only. Displacements are in elements.
  const size_t* counts = nullptr;
  const size_t* displacements = nullptr;
  // AllToAllv: of the blocks sent.
  const size_t* send_counts = nullptr;
  const size_t* send_displacements = nullptr;
  // AllToAllv, Gatherv, Scatterv: a rank knows the counts of what it sends and receives itself.
  bool own_counts = false;

  bool reduces() const { return coll::reduces(collective); }
  bool rooted() const { return coll::rooted(collective); }
  bool has_lists() const { return counts != nullptr || own_counts; }
  // Whether the two buffers cannot be one: AllToAllv whose sides differ.
  bool apart(int ranks) const;
};

// What this rank's buffers are in a call: where, and how long.
struct Extents {
  size_t send_bytes = 0, recv_bytes = 0;
  size_t total_elements = 0;  // of all blocks
};

// Refuse what this rank can see is wrong; nothing has been sent yet. What check_arguments() finds
// depends on the shape of the call alone, so that it is asked once a shape; check_buffers() looks
// at the pointers.
Result<Extents> check_arguments(const Call& call, int ranks, int rank,
                                const Operators& operators = {});
Status check_buffers(const Call& call, int ranks, int rank, const Extents& extents);

// Equal on two ranks iff they make the same call, but for collisions of 64 bits. Counts that not
// all ranks know are left out: each message names its own.
uint64_t hash_of(const Call& call, int ranks);
// "allreduce count=100 type=float32 op=sum".
std::string text_of(const Call& call, int ranks);

// How the call's elements lie in the blocks of an algorithm.
coll::Layout layout_of(const Call& call, const coll::Algorithm& algorithm, int ranks, int rank);

}  // namespace hetccl

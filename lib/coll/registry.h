// Every algorithm the library has, one row each. Selection, hetccl_info, the documentation and the
// tests iterate these rows, so an algorithm that is registered is verified, listed and measured.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/status.h"
#include "lib/coll/builder.h"
#include "lib/coll/plan.h"

namespace hetccl::coll {

struct Algorithm {
  Collective collective;
  const char* name;  // "ring"; unique within the collective
  const char* help;  // one line: what it does and where it is from
  void (*emit)(Builder&);
  // Blocks of the symbolic space for n ranks: n where block_per_rank(collective).
  int (*blocks)(int ranks);
  // Contributions are combined in rank order (0 op 1 op 2 ...): needed by operators that do not
  // commute, and such sums do not depend on the size of blocks.
  bool rank_order;
  // Correct even if a send completes only when its receiver has consumed it; so messages may be
  // read from, and put into, the user's buffers. verify() checks this claim.
  bool unbuffered;
  // A rank needs the sizes of its own blocks only, and they may all differ: AllToAllv, Gatherv and
  // Scatterv, whose counts no rank knows all of.
  bool own_counts = false;
  // Ranks hold blocks of others in memory of their own on the way: chosen for small vectors only.
  bool stages = false;
};

std::span<const Algorithm> algorithms();
const Algorithm* find(Collective collective, std::string_view name);
std::string_view name_of(Collective collective);  // "allreduce"
std::optional<Collective> parse_collective(std::string_view name);

// `apart`: see Plan; only for algorithms of own_counts.
// REQUIRES: 0 <= rank < ranks, 0 <= root < ranks.
Plan make_plan(const Algorithm& algorithm, int ranks, int rank, int root, bool apart = false);

}  // namespace hetccl::coll

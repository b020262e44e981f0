// Whether the ranks may run their plans step by step, each waiting for what the step at hand needs,
// instead of whatever step is ready: that is the fastest way for steps of one message each.
#pragma once

#include <cstddef>

#include "lib/coll/registry.h"

namespace hetccl::coll {

// True if all ranks come to their end so, with `depth` unreleased messages on the way between any
// two. Of algorithms that are not buffered, a step that overwrites what was sent waits until the
// receiver has taken it. False above some number of ranks, where finding out would take long.
bool runs_in_order(const Algorithm& algorithm, int ranks, int root, size_t depth);

}  // namespace hetccl::coll

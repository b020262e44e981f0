// A recorded list of collective calls, one a line: "collective count type op [root]". The operator
// of calls that only move data may be left out or be "none". '#' begins a comment.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bench/collective.h"

namespace hetccl::bench {

struct WorkloadCall {
  Kind kind = Kind::kAllReduce;
  size_t count = 0;
  DataType type = hetcclFloat32;
  RedOp op = hetcclSum;
  int root = 0;
};

// False: `error` is "name:line: what is wrong; what is allowed".
bool parse_workload(std::string_view text, const std::string& name,
                    std::vector<WorkloadCall>* calls, std::string* error);

}  // namespace hetccl::bench

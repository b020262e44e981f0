// The MPI library's own collectives, on the same buffers: what hetccl is compared with.
#pragma once

#include <string>

#include "bench/call.h"

namespace hetccl::bench {

// "" where MPI has the call, else why not.
std::string mpi_lacks(Kind kind, DataType type, RedOp op, const Shape& shape);

// REQUIRES: mpi_lacks() is "". False: MPI failed.
bool run_mpi(const Call& call);

// Where MPI leaves the result of a call.
const std::byte* mpi_result(const Call& call);

}  // namespace hetccl::bench

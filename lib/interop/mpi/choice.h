// HETCCL_MPI=auto: which calls on host memory are worth taking. Constant data.
#pragma once

#include "lib/interop/mpi/collectives.h"
#include "lib/interop/mpi/report.h"

namespace hetccl::mpi {

// From what all ranks know alike. `asked` is one that could be taken.
bool is_worth_it(const Channel& channel, Id id, bool blocking, const Ask& asked);

}  // namespace hetccl::mpi

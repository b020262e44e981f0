// What became of the program's collectives, for HETCCL_MPI_REPORT=1. Any thread.
#pragma once

#include <cstddef>
#include <string>

#include "lib/interop/mpi/collectives.h"

namespace hetccl::mpi {

enum class Id {
#define COLLECTIVE(Name, Iname, parameters, arguments) k##Name,
#include "lib/interop/mpi/functions.inc"
#undef COLLECTIVE
  kCount
};

void count_call(Id id, Pass pass, size_t bytes);
// A line a collective: calls, how many ours, bytes, and why the others went to MPI. Empty: none.
std::string report_text();
// At the end of the program, where asked for; rank 0 of the world writes it to standard error.
void write_report();

}  // namespace hetccl::mpi

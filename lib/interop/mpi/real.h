// The MPI library's own functions, under those of ours that have their names. Any thread.
//
// MPI_X and PMPI_X are both taken over: Open MPI's Fortran bindings call PMPI_X with everything
// converted to C, so that one set of wrappers serves C and the three Fortran bindings.
#pragma once

#include <mpi.h>

namespace hetccl::mpi {

#define HETCCL_WITH_COMMA(...) __VA_ARGS__ __VA_OPT__(, )

struct Real {
#define COLLECTIVE(Name, Iname, parameters, arguments)               \
  int (*Name)(HETCCL_WITH_COMMA parameters MPI_Comm comm) = nullptr; \
  int (*Iname)(HETCCL_WITH_COMMA parameters MPI_Comm comm, MPI_Request * request) = nullptr;
#include "lib/interop/mpi/functions.inc"
#undef COLLECTIVE
#define COMPLETION(Name, parameters, arguments) int(*Name) parameters = nullptr;
#include "lib/interop/mpi/completions.inc"
#undef COMPLETION
  int (*Finalize)() = nullptr;
};

const Real& real();

}  // namespace hetccl::mpi

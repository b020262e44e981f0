// Errors of ours as MPI's: a code whose class says what kind, and a text. Any thread, while MPI
// runs.
#pragma once

#include <hetccl/hetccl.h>

#include <string>

namespace hetccl::mpi {

// The text is that of the last error with this result.
int error_code(hetcclResult_t result, const std::string& text);

}  // namespace hetccl::mpi

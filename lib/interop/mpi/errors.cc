#include "lib/interop/mpi/errors.h"

#include <mpi.h>

#include <array>
#include <mutex>

namespace hetccl::mpi {
namespace {

// Classes that MPI has, so that programs can tell what happened.
int class_of(hetcclResult_t result) {
  switch (result) {
    case hetcclInvalidArgument:
      return MPI_ERR_ARG;
    case hetcclInvalidUsage:
      return MPI_ERR_TRUNCATE;
    case hetcclInternalError:
      return MPI_ERR_INTERN;
    default:
      return MPI_ERR_OTHER;
  }
}

}  // namespace

int error_code(hetcclResult_t result, const std::string& text) {
  static std::mutex mutex;
  static std::array<int, 16> codes;  // 0: not made yet
  const std::lock_guard lock(mutex);
  int& code = codes[static_cast<size_t>(result) % codes.size()];
  if (code == 0 && PMPI_Add_error_code(class_of(result), &code) != MPI_SUCCESS) {
    code = 0;
    return class_of(result);
  }
  std::string line = std::string("hetccl: ") + hetcclGetErrorString(result) + ": " + text;
  if (line.size() >= MPI_MAX_ERROR_STRING) line.resize(MPI_MAX_ERROR_STRING - 1);
  PMPI_Add_error_string(code, line.c_str());
  return code;
}

}  // namespace hetccl::mpi

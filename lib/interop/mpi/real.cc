#include "lib/interop/mpi/real.h"

#include <dlfcn.h>

namespace hetccl::mpi {
namespace {

// The next library in the order of search: whatever MPI the program runs with.
template <typename Function>
void find(const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

Real load() {
  Real r;
#define COLLECTIVE(Name, Iname, parameters, arguments) \
  find("PMPI_" #Name, &r.Name);                        \
  find("PMPI_" #Iname, &r.Iname);
#include "lib/interop/mpi/functions.inc"
#undef COLLECTIVE
#define COMPLETION(Name, parameters, arguments) find("PMPI_" #Name, &r.Name);
#include "lib/interop/mpi/completions.inc"
#undef COMPLETION
  find("PMPI_Finalize", &r.Finalize);
  return r;
}

}  // namespace

const Real& real() {
  static const Real loaded = load();
  return loaded;
}

}  // namespace hetccl::mpi

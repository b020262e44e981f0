// The functions of MPI's names. A call goes to our library or, with its arguments untouched, to the
// MPI library.
#include "lib/interop/mpi/collectives.h"

namespace hetccl::mpi {
namespace {

#define COLLECTIVE(Name, parameters, arguments)                                         \
  int call_##Name(HETCCL_WITH_COMMA parameters MPI_Comm comm) {                         \
    Channel* const channel = Inside::now() ? nullptr : Channel::of(comm);               \
    if (channel == nullptr || !channel->is_ours() ||                                    \
        ask(tag::Name(), *channel HETCCL_AFTER_COMMA arguments).pass != Pass::kTaken || \
        channel->comm() == nullptr) {                                                   \
      const Inside inside;                                                              \
      return real().Name(HETCCL_WITH_COMMA arguments comm);                             \
    }                                                                                   \
    Job job(channel, nullptr);                                                          \
    const Inside inside;                                                                \
    return job.finish(issue(tag::Name(), job HETCCL_AFTER_COMMA arguments));            \
  }
#include "lib/interop/mpi/functions.inc"
#undef COLLECTIVE

int call_Finalize() {
  Channel::end_all();
  return real().Finalize();
}

}  // namespace
}  // namespace hetccl::mpi

#define HETCCL_EXPORT extern "C" __attribute__((visibility("default")))

#define COLLECTIVE(Name, parameters, arguments)                               \
  HETCCL_EXPORT int MPI_##Name(HETCCL_WITH_COMMA parameters MPI_Comm comm) {  \
    return hetccl::mpi::call_##Name(HETCCL_WITH_COMMA arguments comm);        \
  }                                                                           \
  HETCCL_EXPORT int PMPI_##Name(HETCCL_WITH_COMMA parameters MPI_Comm comm) { \
    return hetccl::mpi::call_##Name(HETCCL_WITH_COMMA arguments comm);        \
  }
#include "lib/interop/mpi/functions.inc"
#undef COLLECTIVE

HETCCL_EXPORT int MPI_Finalize() { return hetccl::mpi::call_Finalize(); }
HETCCL_EXPORT int PMPI_Finalize() { return hetccl::mpi::call_Finalize(); }

// Each collective twice: ask() says whether it is ours, from what all ranks know alike; issue()
// hands it to our library, its buffers made dense. Overloads are told apart by the tag of the
// collective. Threads: as MPI's.
#pragma once

#include <hetccl/hetccl.h>
#include <mpi.h>

#include <cstddef>

#include "lib/interop/mpi/channel.h"
#include "lib/interop/mpi/job.h"
#include "lib/interop/mpi/real.h"

namespace hetccl::mpi {

// Why a call goes to the MPI library.
enum class Pass {
  kTaken,     // it does not
  kChannel,   // the communicator is not ours: an inter-communicator, one rank, switched off
  kInvalid,   // MPI says what is wrong with the arguments
  kEmpty,     // no data
  kOperator,  // an operator or a data type that we do not combine
  kFaster,    // MPI is faster at it
  kEarly,     // non-blocking, before a blocking call on the communicator was ours
  kInside,    // MPI, or a callback of its, makes the call
  kCount
};

struct Ask {
  Pass pass = Pass::kTaken;
  // The call's size, as all ranks know it; of v-forms, what this rank sends, for the report only.
  size_t bytes = 0;
};

namespace tag {
#define COLLECTIVE(Name, Iname, parameters, arguments) \
  struct Name {};
#include "lib/interop/mpi/functions.inc"
#undef COLLECTIVE
}  // namespace tag

#define HETCCL_AFTER_COMMA(...) __VA_OPT__(, ) __VA_ARGS__
#define COLLECTIVE(Name, Iname, parameters, arguments)                      \
  Ask ask(tag::Name, const Channel& channel HETCCL_AFTER_COMMA parameters); \
  hetcclResult_t issue(tag::Name, Job& job HETCCL_AFTER_COMMA parameters);
#include "lib/interop/mpi/functions.inc"
#undef COLLECTIVE

}  // namespace hetccl::mpi

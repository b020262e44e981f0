#include "lib/interop/mpi/choice.h"

#include <cstdint>

namespace hetccl::mpi {
namespace {

// The least size, in bytes of the whole vector, at which hetccl was measured to be clearly ahead: 2
// ranks on 2 cores of one node, ordinary memory, taking turns with Open MPI 4.1.4 in one run. Its
// time was, of Open MPI's:
//
//                     512 B   8 KiB  32 KiB   2 MiB  32 MiB
//   all-reduce         0.66    0.33    0.40    0.48    0.36 (16 MiB)
//   reduce-scatter     0.97            0.32    0.05    0.16
//   broadcast          0.87            0.40    0.40    0.38
//   all-gather         0.96            0.57    0.69    0.87
//   all-to-all         0.93            0.57    0.69    0.95
//
// Below 512 B an all-reduce takes 0.9 to 1.0, which a look at the communicator's attribute eats up.
// What is not in the table was not measured and is MPI's, and so are non-blocking calls: their gain
// depends on cores that the program leaves free.
uint64_t least_bytes(Id id) {
  switch (id) {
    case Id::kAllreduce:
      return 512;
    case Id::kReduce_scatter:
    case Id::kReduce_scatter_block:
    case Id::kBcast:
    case Id::kAllgather:
    case Id::kAlltoall:
      return 32 << 10;
    default:
      return UINT64_MAX;
  }
}

}  // namespace

bool is_worth_it(const Channel& channel, Id id, bool blocking, const Ask& asked) {
  if (channel.mode() == Channel::Mode::kAll || channel.devices()) return true;
  return blocking && asked.bytes >= least_bytes(id);
}

}  // namespace hetccl::mpi

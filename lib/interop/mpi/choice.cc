#include "lib/interop/mpi/choice.h"

namespace hetccl::mpi {

bool is_worth_it(const Channel& channel, Id id, bool blocking, const Ask& asked) {
  if (channel.mode() == Channel::Mode::kAll || channel.devices()) return true;
  return blocking && id == Id::kAllreduce && asked.bytes >= 4096;
}

}  // namespace hetccl::mpi

// The C API of messages between two ranks, and of groups.
#include "lib/group.h"

#include "lib/handle.h"
#include "lib/last_error.h"

using hetccl::check_handle;
using hetccl::Group;
using hetccl::guarded;
using hetccl::Status;

namespace {

hetcclResult_t pass(const Group::Message& message, hetcclComm_t comm, hetcclStream_t stream) {
  return guarded([&]() -> Status {
    if (Status s = check_handle(comm); !s.ok()) return s;
    Status s = Group::add(comm->communicator.get(), message, stream);
    // Other errors are the communicator's own, which an abort may have freed by now.
    if (s.code() == hetcclInvalidArgument) {
      std::lock_guard lock(comm->mutex);
      comm->last_error = s.message();
    }
    return s;
  });
}

}  // namespace

extern "C" {

hetcclResult_t hetcclSend(const void* send, size_t count, hetcclDataType_t type, int peer,
                          hetcclComm_t comm, hetcclStream_t stream) {
  return pass({true, send, count, type, peer}, comm, stream);
}

hetcclResult_t hetcclRecv(void* recv, size_t count, hetcclDataType_t type, int peer,
                          hetcclComm_t comm, hetcclStream_t stream) {
  return pass({false, recv, count, type, peer}, comm, stream);
}

hetcclResult_t hetcclGroupStart(void) {
  Group::start();
  return hetcclSuccess;
}

hetcclResult_t hetcclGroupEnd(void) {
  return guarded([] { return Group::end(); });
}

}  // extern "C"

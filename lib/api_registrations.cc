// The C API of memory registrations.
#include "lib/handle.h"
#include "lib/last_error.h"

using hetccl::check_handle;
using hetccl::guarded;
using hetccl::invalid_argument;
using hetccl::Status;

extern "C" {

hetcclResult_t hetcclCommRegister(hetcclComm_t comm, void* buffer, size_t bytes, void** handle) {
  return guarded([&]() -> Status {
    if (Status s = check_handle(comm); !s.ok()) return s;
    if (handle == nullptr) return invalid_argument("the pointer to the handle is NULL");
    const hetccl::Result<void*> added = comm->communicator->registrations().add(buffer, bytes);
    if (!added.ok()) return added.status();
    *handle = *added;
    return {};
  });
}

hetcclResult_t hetcclCommDeregister(hetcclComm_t comm, void* handle) {
  return guarded([&]() -> Status {
    if (Status s = check_handle(comm); !s.ok()) return s;
    return comm->communicator->registrations().remove(handle);
  });
}

}  // extern "C"

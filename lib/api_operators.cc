// The C API of operators that are made at run time.
#include "lib/handle.h"
#include "lib/last_error.h"
#include "lib/operators.h"

using hetccl::check_handle;
using hetccl::guarded;
using hetccl::invalid_argument;
using hetccl::MadeOperator;
using hetccl::Result;
using hetccl::Status;

namespace {

// `make` is called on sound arguments only, and its result kept in the communicator.
template <typename Make>
hetcclResult_t create(hetcclRedOp_t* op, hetcclComm_t comm, Make make) {
  return guarded([&]() -> Status {
    if (Status s = check_handle(comm); !s.ok()) return s;
    if (op == nullptr) return invalid_argument("the pointer to the operator is NULL");
    Result<std::shared_ptr<const MadeOperator>> made = make();
    if (!made.ok()) return made.status();
    const Result<hetcclRedOp_t> added = comm->communicator->add_operator(std::move(*made));
    if (!added.ok()) return added.status();
    *op = *added;
    return {};
  });
}

}  // namespace

extern "C" {

hetcclResult_t hetcclRedOpCreatePreMulSum(hetcclRedOp_t* op, const void* scalar,
                                          hetcclDataType_t type, hetcclComm_t comm) {
  return create(op, comm, [&] { return hetccl::make_premulsum(scalar, type); });
}

hetcclResult_t hetcclRedOpCreateUser(hetcclRedOp_t* op,
                                     void (*fn)(const void*, void*, size_t, hetcclDataType_t,
                                                void*),
                                     void* ctx, int commutative, hetcclComm_t comm) {
  return create(op, comm, [&] { return hetccl::make_user_operator(fn, ctx, commutative != 0); });
}

hetcclResult_t hetcclRedOpDestroy(hetcclRedOp_t op, hetcclComm_t comm) {
  return guarded([&]() -> Status {
    if (Status s = check_handle(comm); !s.ok()) return s;
    return comm->communicator->remove_operator(op);
  });
}

}  // extern "C"

// The functions of MPI's names. A call goes to our library or, with its arguments untouched, to the
// MPI library.
#include "lib/interop/mpi/choice.h"
#include "lib/interop/mpi/collectives.h"
#include "lib/interop/mpi/report.h"
#include "lib/interop/mpi/requests.h"

namespace hetccl::mpi {
namespace {

enum class Form { kBlocking, kNonBlocking };

// The channel of a call that is ours; NULL: it is MPI's. `ask` is called where the communicator
// takes calls at all.
template <typename Asking>
Channel* taker(Id id, Form form, MPI_Comm comm, Asking asking) {
  if (Inside::now()) {
    count_call(id, Pass::kInside, 0);
    return nullptr;
  }
  const bool blocking = form == Form::kBlocking;
  Channel* const channel = blocking ? Channel::of(comm) : Channel::find(comm);
  Ask asked{Pass::kChannel};
  if (channel != nullptr && channel->is_ours()) {
    asked = asking(*channel);
    if (asked.pass == Pass::kTaken && !is_worth_it(*channel, id, blocking, asked)) {
      asked.pass = Pass::kFaster;
    }
    if (asked.pass == Pass::kTaken && !blocking && !channel->has_comm()) asked.pass = Pass::kEarly;
    if (asked.pass == Pass::kTaken && channel->comm() == nullptr) asked.pass = Pass::kChannel;
  }
  if (channel == nullptr && !blocking) asked.pass = Pass::kEarly;
  count_call(id, asked.pass, asked.bytes);
  return asked.pass == Pass::kTaken ? channel : nullptr;
}

#define COLLECTIVE(Name, Iname, parameters, arguments)                                            \
  int call_##Name(HETCCL_WITH_COMMA parameters MPI_Comm comm) {                                   \
    Channel* const channel = taker(Id::k##Name, Form::kBlocking, comm, [&](const Channel& c) {    \
      return ask(tag::Name(), c HETCCL_AFTER_COMMA arguments);                                    \
    });                                                                                           \
    const Inside inside;                                                                          \
    if (channel == nullptr) return real().Name(HETCCL_WITH_COMMA arguments comm);                 \
    Job job(channel, nullptr);                                                                    \
    return job.finish(issue(tag::Name(), job HETCCL_AFTER_COMMA arguments));                      \
  }                                                                                               \
  int call_##Iname(HETCCL_WITH_COMMA parameters MPI_Comm comm, MPI_Request* request) {            \
    Channel* const channel = taker(Id::k##Name, Form::kNonBlocking, comm, [&](const Channel& c) { \
      return ask(tag::Name(), c HETCCL_AFTER_COMMA arguments);                                    \
    });                                                                                           \
    const Inside inside;                                                                          \
    if (channel == nullptr) return real().Iname(HETCCL_WITH_COMMA arguments comm, request);       \
    const hetcclStream_t stream = take_stream();                                                  \
    if (stream == nullptr) return channel->raise(hetcclSystemError, hetcclGetLastError(nullptr)); \
    auto job = std::make_unique<Job>(channel, stream);                                            \
    const hetcclResult_t result = issue(tag::Name(), *job HETCCL_AFTER_COMMA arguments);          \
    return begin_request(std::move(job), result, request);                                        \
  }
#include "lib/interop/mpi/functions.inc"
#undef COLLECTIVE

int call_Finalize() {
  Channel::end_all();
  write_report();
  return real().Finalize();
}

}  // namespace
}  // namespace hetccl::mpi

#define HETCCL_EXPORT extern "C" __attribute__((visibility("default")))

#define COLLECTIVE(Name, Iname, parameters, arguments)                                         \
  HETCCL_EXPORT int MPI_##Name(HETCCL_WITH_COMMA parameters MPI_Comm comm) {                   \
    return hetccl::mpi::call_##Name(HETCCL_WITH_COMMA arguments comm);                         \
  }                                                                                            \
  HETCCL_EXPORT int PMPI_##Name(HETCCL_WITH_COMMA parameters MPI_Comm comm) {                  \
    return hetccl::mpi::call_##Name(HETCCL_WITH_COMMA arguments comm);                         \
  }                                                                                            \
  HETCCL_EXPORT int MPI_##Iname(HETCCL_WITH_COMMA parameters MPI_Comm comm, MPI_Request* r) {  \
    return hetccl::mpi::call_##Iname(HETCCL_WITH_COMMA arguments comm, r);                     \
  }                                                                                            \
  HETCCL_EXPORT int PMPI_##Iname(HETCCL_WITH_COMMA parameters MPI_Comm comm, MPI_Request* r) { \
    return hetccl::mpi::call_##Iname(HETCCL_WITH_COMMA arguments comm, r);                     \
  }
#include "lib/interop/mpi/functions.inc"
#undef COLLECTIVE

HETCCL_EXPORT int MPI_Finalize() { return hetccl::mpi::call_Finalize(); }
HETCCL_EXPORT int PMPI_Finalize() { return hetccl::mpi::call_Finalize(); }

// Wait and Test, and their kin. Arrays that hold none of our requests go straight to MPI. For the
// others MPI's own Test forms decide what is complete, in a loop that lets both libraries move;
// what failed of ours is put into what MPI reported.
#include <sched.h>

#include <vector>

#include "lib/interop/mpi/real.h"
#include "lib/interop/mpi/requests.h"

namespace hetccl::mpi {
namespace {

// Turns until `done` says so.
template <typename Done>
int until(Done done) {
  for (;;) {
    end_what_is_done();
    int code = MPI_SUCCESS;
    if (done(&code)) return code;
    sched_yield();
  }
}

// The handles before MPI makes null ones of those that are complete.
std::vector<MPI_Request> copy_of(const MPI_Request* requests, int count) {
  if (!any_failures() || requests == nullptr || count <= 0) return {};
  return {requests, requests + count};
}

int with_failure(int code, const std::vector<MPI_Request>& before, int index) {
  if (before.empty() || index < 0 || static_cast<size_t>(index) >= before.size()) return code;
  const int failure = take_failure(before[static_cast<size_t>(index)]);
  return failure == MPI_SUCCESS ? code : failure;
}

// `index(k)`: which request the k-th status is of.
template <typename Index>
int with_failures(int code, const std::vector<MPI_Request>& before, int completed,
                  MPI_Status* statuses, Index index) {
  if (before.empty()) return code;
  std::vector<int> failures(static_cast<size_t>(completed), MPI_SUCCESS);
  bool any = false;
  for (int k = 0; k < completed; ++k) {
    const int failure = take_failure(before[static_cast<size_t>(index(k))]);
    failures[static_cast<size_t>(k)] = failure;
    any = any || failure != MPI_SUCCESS;
  }
  if (!any) return code;
  if (statuses == MPI_STATUSES_IGNORE) return MPI_ERR_IN_STATUS;
  for (int k = 0; k < completed; ++k) {
    const int failure = failures[static_cast<size_t>(k)];
    if (failure != MPI_SUCCESS || code == MPI_SUCCESS) statuses[k].MPI_ERROR = failure;
  }
  return MPI_ERR_IN_STATUS;
}

int same(int k) { return k; }

}  // namespace

namespace completion {

int Test(MPI_Request* request, int* flag, MPI_Status* status) {
  end_what_is_done();
  const auto before = copy_of(request, 1);
  const int code = real().Test(request, flag, status);
  return code == MPI_SUCCESS && *flag ? with_failure(code, before, 0) : code;
}

int Wait(MPI_Request* request, MPI_Status* status) {
  if (!any_of_ours(request, 1) && !any_failures()) return real().Wait(request, status);
  return until([&](int* code) {
    int flag = 0;
    *code = Test(request, &flag, status);
    return *code != MPI_SUCCESS || flag != 0;
  });
}

int Testall(int count, MPI_Request* requests, int* flag, MPI_Status* statuses) {
  end_what_is_done();
  const auto before = copy_of(requests, count);
  const int code = real().Testall(count, requests, flag, statuses);
  if (before.empty() || *flag == 0) return code;
  return with_failures(code, before, count, statuses, same);
}

int Waitall(int count, MPI_Request* requests, MPI_Status* statuses) {
  if (!any_of_ours(requests, count) && !any_failures()) {
    return real().Waitall(count, requests, statuses);
  }
  return until([&](int* code) {
    int flag = 0;
    *code = Testall(count, requests, &flag, statuses);
    return *code != MPI_SUCCESS || flag != 0;
  });
}

int Testany(int count, MPI_Request* requests, int* index, int* flag, MPI_Status* status) {
  end_what_is_done();
  const auto before = copy_of(requests, count);
  const int code = real().Testany(count, requests, index, flag, status);
  return code == MPI_SUCCESS && *flag ? with_failure(code, before, *index) : code;
}

int Waitany(int count, MPI_Request* requests, int* index, MPI_Status* status) {
  if (!any_of_ours(requests, count) && !any_failures()) {
    return real().Waitany(count, requests, index, status);
  }
  return until([&](int* code) {
    int flag = 0;
    *code = Testany(count, requests, index, &flag, status);
    return *code != MPI_SUCCESS || flag != 0;
  });
}

int Testsome(int incount, MPI_Request* requests, int* outcount, int* indices,
             MPI_Status* statuses) {
  end_what_is_done();
  const auto before = copy_of(requests, incount);
  const int code = real().Testsome(incount, requests, outcount, indices, statuses);
  if (before.empty() || *outcount == MPI_UNDEFINED) return code;
  return with_failures(code, before, *outcount, statuses, [&](int k) { return indices[k]; });
}

int Waitsome(int incount, MPI_Request* requests, int* outcount, int* indices,
             MPI_Status* statuses) {
  if (!any_of_ours(requests, incount) && !any_failures()) {
    return real().Waitsome(incount, requests, outcount, indices, statuses);
  }
  return until([&](int* code) {
    *code = Testsome(incount, requests, outcount, indices, statuses);
    return *code != MPI_SUCCESS || *outcount != 0;  // MPI_UNDEFINED: none is active
  });
}

int Request_get_status(MPI_Request request, int* flag, MPI_Status* status) {
  end_what_is_done();
  return real().Request_get_status(request, flag, status);
}

}  // namespace completion
}  // namespace hetccl::mpi

#define HETCCL_EXPORT extern "C" __attribute__((visibility("default")))

// Called by MPI itself, from inside one of its collectives, they are its own.
#define COMPLETION(Name, parameters, arguments)      \
  HETCCL_EXPORT int MPI_##Name parameters {          \
    using namespace hetccl::mpi;                     \
    if (Inside::now()) return real().Name arguments; \
    return completion::Name arguments;               \
  }                                                  \
  HETCCL_EXPORT int PMPI_##Name parameters {         \
    using namespace hetccl::mpi;                     \
    if (Inside::now()) return real().Name arguments; \
    return completion::Name arguments;               \
  }
#include "lib/interop/mpi/completions.inc"
#undef COMPLETION

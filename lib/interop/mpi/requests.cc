#include "lib/interop/mpi/requests.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

namespace hetccl::mpi {
namespace {

struct Pending {
  MPI_Request request;
  std::unique_ptr<Job> job;
};
struct Failed {
  MPI_Request request;
  int code;
};

std::mutex mutex;
std::vector<Pending>& pending() {
  static auto& all =
      *new std::vector<Pending>;  // MPI may be finalized by a destructor that runs late
  return all;
}
std::vector<Failed>& failed() {
  static auto& all = *new std::vector<Failed>;
  return all;
}
std::vector<hetcclStream_t>& idle_streams() {
  static auto& all = *new std::vector<hetcclStream_t>;
  return all;
}
std::atomic<size_t> pending_count{0}, failed_count{0};

int query(void*, MPI_Status* status) {
  PMPI_Status_set_elements(status, MPI_BYTE, 0);
  PMPI_Status_set_cancelled(status, 0);
  status->MPI_SOURCE = MPI_UNDEFINED;
  status->MPI_TAG = MPI_UNDEFINED;
  return MPI_SUCCESS;
}
int release(void*) { return MPI_SUCCESS; }
int cancel(void*, int) { return MPI_SUCCESS; }  // collectives cannot be cancelled: they go on

// Takes those out of the list whose streams are idle.
std::vector<Pending> take_done() {
  std::vector<Pending> done;
  const std::lock_guard lock(mutex);
  auto& all = pending();
  for (size_t i = 0; i < all.size();) {
    if (hetcclStreamQuery(all[i].job->stream()) == hetcclInProgress) {
      ++i;
      continue;
    }
    done.push_back(std::move(all[i]));
    all.erase(all.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return done;
}

// Outside of the lock: an error handler of the program's may be called, and MPI.
void end_one(Pending* p) {
  const hetcclStream_t stream = p->job->stream();
  const int code = p->job->finish(hetcclStreamSynchronize(stream));
  return_stream(stream);
  if (code != MPI_SUCCESS) {
    const std::lock_guard lock(mutex);
    failed().push_back({p->request, code});
    failed_count.fetch_add(1);
  }
  PMPI_Grequest_complete(p->request);
  p->job->channel().open_calls().fetch_sub(1);
  pending_count.fetch_sub(1);
}

bool has_calls(Channel* channel) {
  return channel == nullptr ? pending_count.load() > 0 : channel->open_calls().load() > 0;
}

}  // namespace

hetcclStream_t take_stream() {
  {
    const std::lock_guard lock(mutex);
    auto& idle = idle_streams();
    if (!idle.empty()) {
      const hetcclStream_t stream = idle.back();
      idle.pop_back();
      return stream;
    }
  }
  hetcclStream_t stream = nullptr;
  return hetcclStreamCreate(&stream) == hetcclSuccess ? stream : nullptr;
}

void return_stream(hetcclStream_t stream) {
  const std::lock_guard lock(mutex);
  idle_streams().push_back(stream);
}

int begin_request(std::unique_ptr<Job> job, hetcclResult_t result, MPI_Request* request) {
  if (result != hetcclSuccess) {
    return_stream(job->stream());
    return job->finish(result);
  }
  MPI_Request made = MPI_REQUEST_NULL;
  const int code = PMPI_Grequest_start(query, release, cancel, nullptr, &made);
  if (code != MPI_SUCCESS) {
    // Nothing could stand for the call, which cannot be taken back: it is waited for.
    const hetcclStream_t stream = job->stream();
    job->finish(hetcclStreamSynchronize(stream));
    return_stream(stream);
    return code;
  }
  *request = made;
  job->channel().open_calls().fetch_add(1);
  const std::lock_guard lock(mutex);
  pending().push_back({made, std::move(job)});
  pending_count.fetch_add(1);
  return MPI_SUCCESS;
}

void end_what_is_done() {
  if (pending_count.load() == 0) return;
  const Inside inside;
  for (Pending& p : take_done()) end_one(&p);
}

void end_all_calls(Channel* channel) {
  while (has_calls(channel)) {
    end_what_is_done();
    sched_yield();
  }
}

bool any_of_ours(const MPI_Request* requests, int count) {
  if (pending_count.load() == 0 || requests == nullptr) return false;
  const std::lock_guard lock(mutex);
  for (int i = 0; i < count; ++i) {
    for (const Pending& p : pending()) {
      if (p.request == requests[i]) return true;
    }
  }
  return false;
}

int take_failure(MPI_Request request) {
  const std::lock_guard lock(mutex);
  auto& all = failed();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Failed& f) { return f.request == request; });
  if (found == all.end()) return MPI_SUCCESS;
  const int code = found->code;
  all.erase(found);
  failed_count.fetch_sub(1);
  return code;
}

bool any_failures() { return failed_count.load() > 0; }

}  // namespace hetccl::mpi

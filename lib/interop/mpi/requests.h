// Non-blocking calls of ours: each runs in a stream of our library and is a generalized request of
// MPI's, so that MPI itself does what its Wait and Test functions say of arrays, null requests and
// statuses. These functions ask our streams first, and wait by testing, so that both libraries
// move.
//
// Thread rule: any thread that may call MPI; MPI is called by the program's threads only.
#pragma once

#include <hetccl/hetccl.h>
#include <mpi.h>

#include <memory>

#include "lib/interop/mpi/job.h"

namespace hetccl::mpi {

// A stream for one call; NULL where none could be made.
hetcclStream_t take_stream();
void return_stream(hetcclStream_t stream);

// The call was given to the job's stream with `result`. Returns what MPI_Ixxx returns.
int begin_request(std::unique_ptr<Job> job, hetcclResult_t result, MPI_Request* request);

// Ends the calls that are done: their results are unpacked and their requests complete.
void end_what_is_done();
// Waits for all calls of `channel`; NULL: of all. Those that the program has given up are among
// them.
void end_all_calls(Channel* channel);
// Whether one of the requests is ours and not yet known to be complete.
bool any_of_ours(const MPI_Request* requests, int count);

// The code of a request of ours that failed, or MPI_SUCCESS; asked once.
int take_failure(MPI_Request request);
bool any_failures();

}  // namespace hetccl::mpi

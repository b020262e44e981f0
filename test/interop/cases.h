/* Checks of the interposer's test programs. A failed one is told by its rank and ends the job. */
#ifndef HETCCL_TEST_INTEROP_CASES_H_
#define HETCCL_TEST_INTEROP_CASES_H_

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define EXPECT(condition)                                                            \
  do {                                                                               \
    if (!(condition)) {                                                              \
      int rank_;                                                                     \
      MPI_Comm_rank(MPI_COMM_WORLD, &rank_);                                         \
      printf("not ok: %s:%d: rank %d: %s\n", __FILE__, __LINE__, rank_, #condition); \
      fflush(stdout);                                                                \
      MPI_Abort(MPI_COMM_WORLD, 1);                                                  \
    }                                                                                \
  } while (0)

/* The first `n` ranks of the world; MPI_COMM_NULL elsewhere. */
static inline MPI_Comm first_ranks(int n) {
  int rank;
  MPI_Comm comm;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_split(MPI_COMM_WORLD, rank < n ? 0 : MPI_UNDEFINED, rank, &comm);
  return comm;
}

#endif

/* A user's program in C99, built against the installed copy: every collective once, each checked.
 */
#include <hetccl/mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int failures = 0;

static void expect(int holds, const char* what) {
  if (holds) return;
  fprintf(stderr, "failed: %s: %s\n", what, hetcclGetLastError(NULL));
  ++failures;
}

static void collectives(hetcclComm_t comm, int n, int rank) {
  int* send = malloc(sizeof(int) * (size_t)n);
  int* recv = malloc(sizeof(int) * (size_t)n);
  int one = rank + 1, sum = 0, root = n - 1, i;
  for (i = 0; i < n; ++i) send[i] = 10 * rank + i;

  expect(hetcclAllReduce(&one, &sum, 1, hetcclInt32, hetcclSum, comm, NULL) == hetcclSuccess &&
             sum == n * (n + 1) / 2,
         "all-reduce");
  expect(hetcclReduce(&one, rank == root ? &sum : NULL, 1, hetcclInt32, hetcclMax, root, comm,
                      NULL) == hetcclSuccess &&
             (rank != root || sum == n),
         "reduce");
  expect(hetcclReduceScatter(send, &sum, 1, hetcclInt32, hetcclSum, comm, NULL) == hetcclSuccess &&
             sum == 10 * n * (n - 1) / 2 + n * rank,
         "reduce-scatter");
  expect(hetcclBroadcast(&one, &sum, 1, hetcclInt32, root, comm, NULL) == hetcclSuccess && sum == n,
         "broadcast");
  expect(hetcclAllGather(&one, recv, 1, hetcclInt32, comm, NULL) == hetcclSuccess, "all-gather");
  for (i = 0; i < n; ++i) expect(recv[i] == i + 1, "all-gathered element");
  expect(hetcclAllToAll(send, recv, 1, hetcclInt32, comm, NULL) == hetcclSuccess, "all-to-all");
  for (i = 0; i < n; ++i) expect(recv[i] == 10 * i + rank, "all-to-all element");
  expect(hetcclBarrier(comm, NULL) == hetcclSuccess, "barrier");
  free(send);
  free(recv);
}

int main(int argc, char** argv) {
  hetcclConfig_t config = HETCCL_CONFIG_INITIALIZER;
  hetcclComm_t comm = NULL;
  int n = 0, rank = -1, mpi_rank = -1, version = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &mpi_rank);
  config.name = "program";
  expect(hetcclGetVersion(&version) == hetcclSuccess && version == HETCCL_VERSION, "version");
  expect(hetcclCommInitMPI(&comm, MPI_COMM_WORLD, &config) == hetcclSuccess, "communicator");
  if (comm == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
  expect(hetcclCommCount(comm, &n) == hetcclSuccess && n > 1, "size");
  expect(hetcclCommUserRank(comm, &rank) == hetcclSuccess && rank == mpi_rank, "rank");
  collectives(comm, n, rank);
  expect(hetcclCommDestroy(comm) == hetcclSuccess, "destroy");
  MPI_Finalize();
  if (failures == 0) printf("rank %d of %d ok\n", rank, n);
  return failures != 0;
}

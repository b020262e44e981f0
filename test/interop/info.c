/* A communicator whose info says hetccl=off is left to MPI, one that says on is not. */
#include "test/interop/cases.h"

static void sum_on(const char* value) {
  MPI_Info info;
  MPI_Comm comm;
  int in = 1, out = 0, size;
  MPI_Info_create(&info);
  MPI_Info_set(info, "hetccl", value);
  MPI_Comm_dup_with_info(MPI_COMM_WORLD, info, &comm);
  MPI_Info_free(&info);
  MPI_Comm_size(comm, &size);
  MPI_Allreduce(&in, &out, 1, MPI_INT, MPI_SUM, comm);
  EXPECT(out == size);
  MPI_Comm_free(&comm);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  sum_on("off");
  sum_on("off");
  sum_on("on");
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0) printf("info: ok\n");
  MPI_Finalize();
  return 0;
}

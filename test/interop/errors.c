/* Ranks that disagree: what hetccl finds goes through the communicator's error handler, with a
 * class and a text, for blocking and non-blocking calls. Only under hetccl-run: MPI itself may
 * hang. */
#include <string.h>

#include "test/interop/cases.h"

static int rank, size, heard;

static void hear(MPI_Comm* comm, int* code, ...) {
  (void)comm, (void)code;
  ++heard;
}

static MPI_Comm with_handler(void) {
  MPI_Comm comm;
  MPI_Errhandler handler;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Comm_create_errhandler(hear, &handler);
  MPI_Comm_set_errhandler(comm, handler);
  MPI_Errhandler_free(&handler);
  MPI_Barrier(comm);
  heard = 0;
  return comm;
}

static void expect_mismatch(int code) {
  char text[MPI_MAX_ERROR_STRING];
  int class, length;
  MPI_Error_class(code, &class);
  EXPECT(class == MPI_ERR_TRUNCATE);
  MPI_Error_string(code, text, &length);
  EXPECT(strncmp(text, "hetccl: invalid usage", 21) == 0 && strstr(text, "count=") != NULL);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  double in[2] = {1, 1}, out[2] = {0, 0};
  const int count = rank == 0 ? 1 : 2;

  MPI_Comm comm = with_handler();
  expect_mismatch(MPI_Allreduce(in, out, count, MPI_DOUBLE, MPI_SUM, comm));
  EXPECT(heard == 1);
  expect_mismatch(MPI_Allreduce(in, out, 1, MPI_DOUBLE, MPI_SUM, comm)); /* it is at its end */
  EXPECT(heard == 2);
  MPI_Comm_free(&comm);

  comm = with_handler();
  MPI_Request request;
  EXPECT(MPI_Iallreduce(in, out, count, MPI_DOUBLE, MPI_SUM, comm, &request) == MPI_SUCCESS);
  expect_mismatch(MPI_Wait(&request, MPI_STATUS_IGNORE));
  EXPECT(heard == 1 && request == MPI_REQUEST_NULL);
  MPI_Comm_free(&comm);

  comm = with_handler();
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Request requests[3] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  MPI_Status statuses[3];
  MPI_Iallreduce(in, out, count, MPI_DOUBLE, MPI_SUM, comm, &requests[1]);
  MPI_Ibarrier(MPI_COMM_WORLD, &requests[2]);
  EXPECT(MPI_Waitall(3, requests, statuses) == MPI_ERR_IN_STATUS);
  EXPECT(statuses[0].MPI_ERROR == MPI_SUCCESS && statuses[2].MPI_ERROR == MPI_SUCCESS);
  expect_mismatch(statuses[1].MPI_ERROR);
  MPI_Comm_free(&comm);

  out[0] = 0; /* other communicators go on */
  EXPECT(MPI_Allreduce(in, out, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS);
  EXPECT(out[0] == size);
  if (rank == 0) printf("errors: ok\n");
  MPI_Finalize();
  return 0;
}

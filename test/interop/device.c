/* Collectives on memory of a simulated device, which the processor cannot touch: MPI itself would
 * crash. Some ranks use the device and some the host. */
#include <hetccl/hetccl.h>
#include <string.h>

#include "test/interop/cases.h"

enum { kCount = 3000 };

static int alone(const void* mine, void* all, size_t bytes, void* context) {
  (void)context;
  memcpy(all, mine, bytes);
  return 0;
}
static hetcclComm_t self;
/* A broadcast to oneself copies between memory of any kind. */
static void copy(void* to, const void* from, size_t bytes) {
  EXPECT(hetcclBroadcast(from, to, bytes, hetcclByte, 0, self, NULL) == hetcclSuccess);
}

int main(int argc, char** argv) {
  int rank, size;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  EXPECT(hetcclCommInitOob(&self, 1, 0, alone, NULL, NULL) == hetcclSuccess);
  const hetcclMemoryKind_t kind = rank % 2 ? hetcclMemorySimHip : hetcclMemorySimCuda;
  int host[kCount], *in, *out;
  const size_t bytes = sizeof host;
  EXPECT(hetcclMemAlloc((void**)&in, 2 * bytes, rank == 2 ? hetcclMemoryHost : kind) == 0);
  EXPECT(hetcclMemAlloc((void**)&out, 2 * bytes, rank == 2 ? hetcclMemoryHost : kind) == 0);
  const int total = size * (size - 1) / 2;

  for (int i = 0; i < kCount; ++i) host[i] = rank + i;
  copy(in, host, bytes);
  MPI_Allreduce(in, out, kCount, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  copy(host, out, bytes);
  for (int i = 0; i < kCount; ++i) EXPECT(host[i] == total + size * i);

  MPI_Request request;
  MPI_Iallreduce(MPI_IN_PLACE, in, kCount, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  copy(host, in, bytes);
  for (int i = 0; i < kCount; ++i) EXPECT(host[i] == total + size * i);

  /* small, in place at a start that is not the rank's own block, and spaced */
  const int part = 4;
  for (int i = 0; i < kCount; ++i) host[i] = rank;
  copy(in, host, bytes);
  MPI_Reduce_scatter_block(MPI_IN_PLACE, in, part, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  copy(host, in, bytes);
  for (int i = 0; i < part; ++i) EXPECT(host[i] == total);
  EXPECT(host[part * size] == rank);

  MPI_Datatype spaced;
  MPI_Type_vector(kCount / 2, 1, 2, MPI_INT, &spaced);
  MPI_Type_commit(&spaced);
  for (int i = 0; i < kCount; ++i) host[i] = rank == 1 ? i : -1;
  copy(out, host, bytes);
  MPI_Bcast(out, 1, spaced, 1, MPI_COMM_WORLD);
  copy(host, out, bytes);
  for (int i = 0; i < kCount; ++i) EXPECT(host[i] == (i % 2 == 0 || rank == 1 ? i : -1));
  MPI_Type_free(&spaced);

  EXPECT(hetcclMemFree(in) == hetcclSuccess && hetcclMemFree(out) == hetcclSuccess);
  EXPECT(hetcclCommDestroy(self) == hetcclSuccess);
  if (rank == 0) printf("device: ok\n");
  MPI_Finalize();
  return 0;
}

/* Calls that are legal and odd: arguments that only the root needs, no data, one rank's 10 elements
 * that are another's one block, in place as MPI has it. usage: legal, with at least 6 ranks */
#include <string.h>

#include "test/interop/cases.h"

static int world_rank, world_size;

/* In place the result goes to the start of the buffer. */
static void reduce_scatter_in_place(void) {
  const int counts[3] = {2, 3, 1}, before[3] = {0, 2, 5};
  MPI_Comm comm = first_ranks(3);
  if (comm == MPI_COMM_NULL) return;
  for (int blocking = 0; blocking < 2; ++blocking) {
    int data[8];
    for (int i = 0; i < 6; ++i) data[i] = 10 * world_rank + i;
    data[6] = data[7] = -1;
    MPI_Request request = MPI_REQUEST_NULL;
    if (blocking) {
      MPI_Reduce_scatter(MPI_IN_PLACE, data, counts, MPI_INT, MPI_SUM, comm);
    } else {
      MPI_Ireduce_scatter(MPI_IN_PLACE, data, counts, MPI_INT, MPI_SUM, comm, &request);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    for (int i = 0; i < counts[world_rank]; ++i) {
      EXPECT(data[i] == 30 + 3 * (before[world_rank] + i));
    }
    EXPECT(data[6] == -1 && data[7] == -1);
  }
  MPI_Comm_free(&comm);
}

static void one_element_each(void) {
  int send[64], receive[64];
  for (int i = 0; i < 64; ++i) send[i] = 1, receive[i] = -7;
  MPI_Request request;
  MPI_Ireduce_scatter_block(send, receive, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  EXPECT(receive[0] == world_size);
  for (int i = 1; i < 64; ++i) EXPECT(receive[i] == -7);
}

static void only_the_root_counts(void) {
  enum { kEach = 1000 };
  double* const all = malloc(sizeof(double) * kEach * (size_t)world_size);
  double mine[kEach];
  for (int i = 0; i < kEach * world_size; ++i) all[i] = i;
  for (int round = 0; round < 20; ++round) {
    memset(mine, 0, sizeof mine);
    if (world_rank == 0) {
      MPI_Scatter(all, kEach, MPI_DOUBLE, mine, kEach, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    } else {
      MPI_Scatter(NULL, round % 2 ? -7 : 0, MPI_DATATYPE_NULL, mine, kEach, MPI_DOUBLE, 0,
                  MPI_COMM_WORLD);
    }
    for (int i = 0; i < kEach; ++i) EXPECT(mine[i] == kEach * world_rank + i);
  }
  memset(all, 0, sizeof(double) * kEach * (size_t)world_size);
  MPI_Request request;
  if (world_rank == 0) {
    MPI_Igather(mine, kEach, MPI_DOUBLE, all, kEach, MPI_DOUBLE, 0, MPI_COMM_WORLD, &request);
  } else {
    MPI_Igather(mine, kEach, MPI_DOUBLE, NULL, 0, MPI_DATATYPE_NULL, 0, MPI_COMM_WORLD, &request);
  }
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  for (int i = 0; world_rank == 0 && i < kEach * world_size; ++i) EXPECT(all[i] == i);
  free(all);
}

static void null_lists(void) {
  int counts[64], displs[64], all[64], mine = world_rank;
  for (int r = 0; r < world_size; ++r) counts[r] = 1, displs[r] = r, all[r] = -1;
  const int root = world_rank == 0;
  MPI_Gatherv(&mine, 1, MPI_INT, root ? all : NULL, root ? counts : NULL, root ? displs : NULL,
              MPI_INT, 0, MPI_COMM_WORLD);
  for (int r = 0; root && r < world_size; ++r) EXPECT(all[r] == r);
  mine = -1;
  MPI_Scatterv(root ? all : NULL, root ? counts : NULL, root ? displs : NULL, MPI_INT, &mine, 1,
               MPI_INT, 0, MPI_COMM_WORLD);
  EXPECT(mine == world_rank);
}

static void combine(void* in, void* inout, int* n, MPI_Datatype* type) {
  (void)in, (void)inout, (void)n, (void)type;
}

static void empty_types(void) {
  MPI_Datatype empty;
  MPI_Type_contiguous(0, MPI_INT, &empty);
  MPI_Type_commit(&empty);
  int data[5] = {1, 2, 3, 4, 5}, out[5] = {-1, -1, -1, -1, -1};
  MPI_Op op;
  MPI_Op_create(combine, 1, &op);
  MPI_Allreduce(data, out, 5, empty, op, MPI_COMM_WORLD);
  MPI_Bcast(out, 5, empty, 0, MPI_COMM_WORLD);
  MPI_Allgather(data, 5, empty, out, 0, MPI_INT, MPI_COMM_WORLD);
  int fives[64], zeros[64] = {0}, displs[64] = {0};
  for (int r = 0; r < 64; ++r) fives[r] = 5;
  MPI_Alltoallv(data, fives, displs, empty, out, zeros, displs, MPI_INT, MPI_COMM_WORLD);
  MPI_Alltoallv(data, fives, displs, empty, NULL, zeros, displs, MPI_INT, MPI_COMM_WORLD);
  for (int i = 0; i < 5; ++i) EXPECT(out[i] == -1);
  MPI_Op_free(&op);
  MPI_Type_free(&empty);
}

/* The same bytes, described differently. */
static void other_descriptions(void) {
  MPI_Datatype spaced, tens;
  MPI_Type_create_resized(MPI_INT64_T, 0, 16, &spaced);
  MPI_Type_commit(&spaced);
  long long values[12];
  for (int i = 0; i < 12; ++i) values[i] = world_rank == 0 ? i : -1;
  if (world_rank == 0) {
    MPI_Bcast(values, 6, MPI_INT64_T, 0, MPI_COMM_WORLD);
  } else {
    MPI_Bcast(values, 6, spaced, 0, MPI_COMM_WORLD);
    for (int i = 0; i < 12; ++i) EXPECT(values[i] == (i % 2 ? -1 : i / 2));
  }
  MPI_Type_contiguous(10, MPI_INT, &tens);
  MPI_Type_commit(&tens);
  for (int count = 25; count <= 250000; count *= 10) {
    int* const data = malloc(sizeof(int) * 10 * (size_t)count);
    for (int i = 0; i < 10 * count; ++i) data[i] = world_rank == 2 ? i : -1;
    if (world_rank == 2) {
      MPI_Bcast(data, count, tens, 2, MPI_COMM_WORLD);
    } else {
      MPI_Bcast(data, 10 * count, MPI_INT, 2, MPI_COMM_WORLD);
    }
    for (int i = 0; i < 10 * count; ++i) EXPECT(data[i] == i);
    free(data);
  }
  MPI_Type_free(&spaced), MPI_Type_free(&tens);
}

/* What lies between value and index is the program's. */
static void gaps_of_pairs(void) {
  struct {
    double value;
    int index, mine;
  } in[3], out[3];
  for (int i = 0; i < 3; ++i) {
    in[i].value = (world_rank + i) % world_size, in[i].index = world_rank, in[i].mine = 5;
    out[i].value = -1, out[i].index = -1, out[i].mine = 77;
  }
  MPI_Allreduce(in, out, 3, MPI_DOUBLE_INT, MPI_MAXLOC, MPI_COMM_WORLD);
  for (int i = 0; i < 3; ++i) {
    EXPECT(out[i].value == world_size - 1);
    EXPECT(out[i].index == (2 * world_size - 1 - i) % world_size);
    EXPECT(in[i].mine == 5);
  }
  MPI_Allreduce(MPI_IN_PLACE, in, 3, MPI_DOUBLE_INT, MPI_MINLOC, MPI_COMM_WORLD);
  for (int i = 0; i < 3; ++i) {
    EXPECT(in[i].value == 0 && in[i].index == (world_size - i) % world_size);
    EXPECT(in[i].mine == 5);
  }
}

/* Absolute addresses on some ranks only. */
static void bottom(void) {
  int parts[2] = {world_rank == 1 ? 41 : -1, world_rank == 1 ? 42 : -1}, apart = 0;
  MPI_Datatype absolute;
  MPI_Aint at[2];
  int lengths[2] = {1, 1};
  MPI_Get_address(&parts[1], &at[0]);
  MPI_Get_address(&parts[0], &at[1]);
  MPI_Type_create_hindexed(2, lengths, at, MPI_INT, &absolute);
  MPI_Type_commit(&absolute);
  int plain[2] = {42, 41};
  if (world_rank % 2 == 1) {
    MPI_Bcast(MPI_BOTTOM, 1, absolute, 1, MPI_COMM_WORLD);
    EXPECT(parts[0] == 41 && parts[1] == 42);
  } else {
    plain[0] = plain[1] = apart;
    MPI_Bcast(plain, 2, MPI_INT, 1, MPI_COMM_WORLD);
    EXPECT(plain[0] == 42 && plain[1] == 41);
  }
  MPI_Type_free(&absolute);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world_size);
  EXPECT(world_size >= 3 && world_size <= 64);
  reduce_scatter_in_place();
  one_element_each();
  only_the_root_counts();
  null_lists();
  empty_types();
  other_descriptions();
  gaps_of_pairs();
  bottom();
  MPI_Barrier(MPI_COMM_WORLD);
  if (world_rank == 0) printf("legal: ok\n");
  MPI_Finalize();
  return 0;
}

/* Every collective in all its forms, with odd data types. Rank 0 of each communicator writes a hash
 * of each buffer of each rank, guards and gaps included: the output is the same with and without
 * the interposer. usage: forms blocking|non-blocking FOLDER, where each rank writes a file. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kBytes = 1 << 17, kGuard = 256 };

static int rank, size, blocking;
static MPI_Comm comm;
static FILE* output;
static unsigned char *in_memory, *out_memory, *in, *out;

static void check(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  printf("rank %d: %s returned %d\n", rank, what, code);
  fflush(stdout);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

#define CALL(Name, Iname, ...)                                              \
  do {                                                                      \
    if (blocking) {                                                         \
      check(MPI_##Name(__VA_ARGS__, comm), #Name);                          \
    } else {                                                                \
      MPI_Request request_;                                                 \
      check(MPI_##Iname(__VA_ARGS__, comm, &request_), #Iname);             \
      check(MPI_Wait(&request_, MPI_STATUS_IGNORE), "Wait");                \
      check(request_ == MPI_REQUEST_NULL ? MPI_SUCCESS : 1, "the request"); \
    }                                                                       \
  } while (0)

static uint64_t hash(const unsigned char* bytes, size_t n, uint64_t h) {
  for (size_t i = 0; i < n; ++i) h = (h ^ bytes[i]) * 1099511628211u;
  return h;
}

/* The whole of both memories. */
static void record(const char* what, int detail) {
  uint64_t mine = hash(in_memory, kBytes + 2 * kGuard, 14695981039346656037u);
  mine = hash(out_memory, kBytes + 2 * kGuard, mine);
  if (rank != 0) {
    MPI_Send(&mine, 8, MPI_BYTE, 0, 7, comm);
    return;
  }
  fprintf(output, "%s %d of %d:", what, detail, size);
  for (int r = 0; r < size; ++r) {
    uint64_t theirs = mine;
    if (r > 0) MPI_Recv(&theirs, 8, MPI_BYTE, r, 7, comm, MPI_STATUS_IGNORE);
    fprintf(output, " %016llx", (unsigned long long)theirs);
  }
  fprintf(output, "\n");
}

static void clear(void) {
  memset(in_memory, 0x5a, kBytes + 2 * kGuard);
  memset(out_memory, 0x5a, kBytes + 2 * kGuard);
}
/* Small integers in every type, whose sums and products are exact. */
#define FILL(T, buffer, n) \
  for (int i_ = 0; i_ < (n); ++i_) ((T*)(buffer))[i_] = (T)((rank + i_) % 3 + 1)

static void fill(MPI_Datatype type, void* buffer, int n) {
  int bytes;
  MPI_Type_size(type, &bytes);
  if (type == MPI_FLOAT || type == MPI_REAL || type == MPI_C_FLOAT_COMPLEX) {
    FILL(float, buffer, n* bytes / 4);
  } else if (type == MPI_DOUBLE || type == MPI_DOUBLE_PRECISION || type == MPI_DOUBLE_COMPLEX ||
             type == MPI_C_DOUBLE_COMPLEX) {
    FILL(double, buffer, n* bytes / 8);
  } else if (type == MPI_LONG_DOUBLE) {
    memset(buffer, 0, (size_t)n * sizeof(long double)); /* its padding too */
    FILL(long double, buffer, n);
  } else if (bytes == 1) {
    FILL(int8_t, buffer, n);
  } else if (bytes == 2) {
    FILL(int16_t, buffer, n);
  } else if (bytes == 4) {
    FILL(int32_t, buffer, n);
  } else {
    FILL(int64_t, buffer, n);
  }
}

/* ---- reductions */

static void reductions_of(MPI_Datatype type, MPI_Op op, int count, int what) {
  int bytes, counts[64], total = 0;
  MPI_Type_size(type, &bytes);
  if (type == MPI_LONG_DOUBLE) bytes = (int)sizeof(long double);
  const int root = size / 2;

  clear(), fill(type, in, count);
  CALL(Allreduce, Iallreduce, in, out, count, type, op);
  record("allreduce", what);
  clear(), fill(type, out, count);
  CALL(Allreduce, Iallreduce, MPI_IN_PLACE, out, count, type, op);
  record("allreduce in place", what);

  clear(), fill(type, in, count);
  CALL(Reduce, Ireduce, in, rank == root ? out : NULL, count, type, op, root);
  record("reduce", what);
  clear(), fill(type, out, count);
  CALL(Reduce, Ireduce, rank == root ? MPI_IN_PLACE : out, rank == root ? out : NULL, count, type,
       op, root);
  record("reduce in place", what);

  clear(), fill(type, in, count);
  CALL(Scan, Iscan, in, out, count, type, op);
  record("scan", what);
  clear(), fill(type, out, count);
  CALL(Scan, Iscan, MPI_IN_PLACE, out, count, type, op);
  record("scan in place", what);
  clear(), fill(type, in, count);
  CALL(Exscan, Iexscan, in, out, count, type, op);
  if (rank == 0) memset(out, 0x5a, (size_t)count * (size_t)bytes); /* undefined */
  record("exscan", what);
  clear(), fill(type, out, count);
  CALL(Exscan, Iexscan, MPI_IN_PLACE, out, count, type, op);
  if (rank == 0) memset(out, 0x5a, (size_t)count * (size_t)bytes);
  record("exscan in place", what);

  const int part = count / 4;
  clear(), fill(type, in, part * size);
  CALL(Reduce_scatter_block, Ireduce_scatter_block, in, out, part, type, op);
  record("reduce_scatter_block", what);
  for (int r = 0; r < size; ++r) total += counts[r] = (r * 5 + what) % 4 * part;
  clear(), fill(type, in, total);
  CALL(Reduce_scatter, Ireduce_scatter, in, out, counts, type, op);
  record("reduce_scatter", what);
  /* In place the library may use the rest of the buffer as it likes: only results are compared. */
  clear(), fill(type, out, part * size);
  CALL(Reduce_scatter_block, Ireduce_scatter_block, MPI_IN_PLACE, out, part, type, op);
  memset(out + part * bytes, 0, (size_t)(part * (size - 1) * bytes));
  record("reduce_scatter_block in place", what);
  clear(), fill(type, out, total);
  CALL(Reduce_scatter, Ireduce_scatter, MPI_IN_PLACE, out, counts, type, op);
  memset(out + counts[rank] * bytes, 0, (size_t)((total - counts[rank]) * bytes));
  record("reduce_scatter in place", what);
}

static void add(void* a, void* b, int* n, MPI_Datatype* type) {
  (void)type;
  for (int i = 0; i < *n; ++i) ((int32_t*)b)[i] += 2 * ((int32_t*)a)[i];
}

static void reductions(void) {
  const MPI_Datatype integers[] = {
      MPI_SIGNED_CHAR,    MPI_SHORT,    MPI_INT,      MPI_LONG,    MPI_LONG_LONG, MPI_UNSIGNED_CHAR,
      MPI_UNSIGNED_SHORT, MPI_UNSIGNED, MPI_UINT64_T, MPI_INTEGER, MPI_INT8_T};
  const MPI_Op for_integers[] = {MPI_SUM, MPI_PROD, MPI_MIN,  MPI_MAX, MPI_LAND,
                                 MPI_LOR, MPI_LXOR, MPI_BAND, MPI_BOR, MPI_BXOR};
  const MPI_Datatype floats[] = {MPI_FLOAT, MPI_DOUBLE, MPI_REAL, MPI_DOUBLE_PRECISION,
                                 MPI_LONG_DOUBLE};
  const MPI_Datatype others[] = {MPI_C_FLOAT_COMPLEX, MPI_C_DOUBLE_COMPLEX, MPI_DOUBLE_COMPLEX};
  const int counts[] = {0, 1, 9, 1000};
  int what = 0;
  for (int t = 0; t < 11; ++t) {
    for (int o = 0; o < 10; ++o) {
      const int logical = o >= 4 && o <= 6;
      if (logical && integers[t] == MPI_INTEGER) continue; /* not MPI's */
      reductions_of(integers[t], for_integers[o], counts[what & 3], what), ++what;
    }
  }
  for (int t = 0; t < 5; ++t) {
    for (int o = 0; o < 4; ++o)
      reductions_of(floats[t], for_integers[o], counts[what & 3], what), ++what;
  }
  for (int t = 0; t < 3; ++t) reductions_of(others[t], MPI_SUM, counts[t + 1], what), ++what;
  reductions_of(MPI_LOGICAL, MPI_LAND, 9, what), ++what;
  reductions_of(MPI_LOGICAL, MPI_LOR, 9, what), ++what;
  reductions_of(MPI_BYTE, MPI_BXOR, 9, what), ++what;
  MPI_Op twice;
  MPI_Op_create(add, 0, &twice);
  reductions_of(MPI_INT, twice, 9, what);
  MPI_Op_free(&twice);
}

/* ---- movement */

/* Types of 24 bytes of data each, in all sorts of shapes. */
enum { kShapes = 8, kElement = 24, kWidest = 48 };
static MPI_Datatype shapes[kShapes];

static void make_shapes(void) {
  int lengths[3] = {2, 1, 3};
  MPI_Aint at[3] = {16, 0, 32};
  int where[3] = {4, 0, 7};
  MPI_Type_contiguous(6, MPI_INT, &shapes[0]);
  MPI_Type_vector(3, 2, 4, MPI_INT, &shapes[1]);
  MPI_Type_create_hindexed(3, lengths, at, MPI_INT, &shapes[2]);
  MPI_Type_indexed(3, lengths, where, MPI_INT, &shapes[3]);
  MPI_Datatype old[3] = {MPI_INT, MPI_INT, MPI_INT}, doubles;
  MPI_Aint packed[3] = {0, 8, 12};
  MPI_Type_create_struct(3, lengths, packed, old, &shapes[4]);
  MPI_Type_contiguous(6, MPI_INT, &doubles);
  MPI_Type_create_resized(doubles, 0, kWidest, &shapes[5]);
  MPI_Type_free(&doubles);
  const int sizes[2] = {3, 4}, parts[2] = {3, 2}, starts[2] = {0, 1};
  MPI_Type_create_subarray(2, sizes, parts, starts, MPI_ORDER_C, MPI_INT, &shapes[6]);
  MPI_Aint reversed[2] = {12, 0};
  int threes[2] = {3, 3};
  /* as long as its data, but not in order */
  MPI_Type_create_hindexed(2, threes, reversed, MPI_INT, &shapes[7]);
  for (int s = 0; s < kShapes; ++s) MPI_Type_commit(&shapes[s]);
}

static void fill_bytes(unsigned char* buffer, int seed) {
  for (int i = 0; i < kBytes; ++i) buffer[i] = (unsigned char)(i * 7 + seed * 31 + rank * 13);
}

static void equal_blocks(int s, int count) {
  const int other = (s + rank) % kShapes; /* each rank its own description of the same bytes */
  const int root = size - 1;
  const MPI_Datatype sent = shapes[s], received = shapes[other];

  clear(), fill_bytes(in, s);
  CALL(Bcast, Ibcast, in, count, received, root);
  record("bcast", s);
  clear(), fill_bytes(in, s);
  CALL(Allgather, Iallgather, in, count, sent, out, count * 6, MPI_INT);
  record("allgather", s);
  clear(), fill_bytes(out, s);
  CALL(Allgather, Iallgather, MPI_IN_PLACE, -1, MPI_DATATYPE_NULL, out, count, received);
  record("allgather in place", s);
  clear(), fill_bytes(in, s);
  CALL(Alltoall, Ialltoall, in, count, sent, out, count, received);
  record("alltoall", s);
  clear(), fill_bytes(out, s);
  CALL(Alltoall, Ialltoall, MPI_IN_PLACE, -1, MPI_DATATYPE_NULL, out, count, sent);
  record("alltoall in place", s);

  const int at_root = rank == root;
  clear(), fill_bytes(in, s);
  CALL(Gather, Igather, in, count, received, at_root ? out : NULL, at_root ? count : -7,
       at_root ? sent : MPI_DATATYPE_NULL, root);
  record("gather", s);
  clear(), fill_bytes(in, s), fill_bytes(out, s + 1);
  CALL(Gather, Igather, at_root ? MPI_IN_PLACE : in, count, sent, at_root ? out : NULL, count, sent,
       root);
  record("gather in place", s);
  clear(), fill_bytes(in, s);
  CALL(Scatter, Iscatter, at_root ? in : NULL, at_root ? count : -7,
       at_root ? sent : MPI_DATATYPE_NULL, out, count, received, root);
  record("scatter", s);
  clear(), fill_bytes(in, s);
  CALL(Scatter, Iscatter, at_root ? in : NULL, count, sent, at_root ? MPI_IN_PLACE : out, count,
       sent, root);
  record("scatter in place", s);
}

/* Blocks in descending order around the middle of the memory, some empty with displacements that
 * lead nowhere. */
static unsigned char* middle(unsigned char* buffer) { return buffer + kBytes / 2; }
static void place(int* displs, const int* counts, int most) {
  for (int r = 0; r < size; ++r) {
    displs[r] = counts[r] == 0 ? 1 << 28 : (size / 2 - r) * (most + 1);
  }
}

static void lists(int s, int most) {
  const int root = size / 2, at_root = rank == root;
  const MPI_Datatype type = shapes[s], plain = shapes[(s + rank) % kShapes];
  int counts[64], displs[64], to[64], to_displs[64];
  for (int r = 0; r < size; ++r) counts[r] = (r + s) % 3 * most / 2;
  place(displs, counts, most);

  clear(), fill_bytes(in, s);
  CALL(Allgatherv, Iallgatherv, in, counts[rank], plain, middle(out), counts, displs, type);
  record("allgatherv", s);
  clear(), fill_bytes(out, s);
  CALL(Allgatherv, Iallgatherv, MPI_IN_PLACE, -1, MPI_DATATYPE_NULL, middle(out), counts, displs,
       type);
  record("allgatherv in place", s);
  clear(), fill_bytes(in, s);
  CALL(Gatherv, Igatherv, in, counts[rank], plain, at_root ? middle(out) : NULL,
       at_root ? counts : NULL, at_root ? displs : NULL, at_root ? type : MPI_DATATYPE_NULL, root);
  record("gatherv", s);
  clear(), fill_bytes(in, s), fill_bytes(out, s + 1);
  CALL(Gatherv, Igatherv, at_root ? MPI_IN_PLACE : in, counts[rank], type,
       at_root ? middle(out) : NULL, at_root ? counts : NULL, at_root ? displs : NULL, type, root);
  record("gatherv in place", s);
  clear(), fill_bytes(in, s);
  CALL(Scatterv, Iscatterv, at_root ? middle(in) : NULL, at_root ? counts : NULL,
       at_root ? displs : NULL, at_root ? type : MPI_DATATYPE_NULL, out, counts[rank], plain, root);
  record("scatterv", s);
  clear(), fill_bytes(in, s);
  CALL(Scatterv, Iscatterv, at_root ? middle(in) : NULL, at_root ? counts : NULL,
       at_root ? displs : NULL, type, at_root ? MPI_IN_PLACE : out, counts[rank], type, root);
  record("scatterv in place", s);

  for (int r = 0; r < size; ++r) {
    counts[r] = (r + 2 * rank + s) % 3 * most / 2;
    to[r] = (rank + 2 * r + s) % 3 * most / 2;
  }
  place(displs, counts, most), place(to_displs, to, most);
  clear(), fill_bytes(in, s);
  CALL(Alltoallv, Ialltoallv, middle(in), counts, displs, type, middle(out), to, to_displs, plain);
  record("alltoallv", s);
  for (int r = 0; r < size; ++r) counts[r] = (r + rank + s) % 3 * most / 2;
  place(displs, counts, most);
  clear(), fill_bytes(out, s);
  CALL(Alltoallv, Ialltoallv, MPI_IN_PLACE, NULL, NULL, MPI_DATATYPE_NULL, middle(out), counts,
       displs, type);
  record("alltoallv in place", s);
}

static void everything(MPI_Comm of) {
  comm = of;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  check(MPI_Barrier(comm), "Barrier"); /* from here on non-blocking calls may be ours */
  reductions();
  for (int s = 0; s < kShapes; ++s) {
    equal_blocks(s, s % 3 == 2 ? 0 : 1 + 40 * (s % 3));
    lists(s, 2 * (1 + s));
  }
  if (blocking) {
    check(MPI_Barrier(comm), "Barrier");
  } else {
    MPI_Request request;
    check(MPI_Ibarrier(comm, &request), "Ibarrier");
    check(MPI_Wait(&request, MPI_STATUS_IGNORE), "Wait");
  }
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  in_memory = malloc(kBytes + 2 * kGuard), out_memory = malloc(kBytes + 2 * kGuard);
  in = in_memory + kGuard, out = out_memory + kGuard;
  make_shapes();
  int world_rank, world_size;
  MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world_size);
  if (argc != 3) MPI_Abort(MPI_COMM_WORLD, 2);
  blocking = strcmp(argv[1], "blocking") == 0;
  char path[4096];
  snprintf(path, sizeof path, "%s/%d", argv[2], world_rank);
  output = fopen(path, "w");
  if (output == NULL) MPI_Abort(MPI_COMM_WORLD, 2);
  everything(MPI_COMM_WORLD);
  MPI_Comm part;
  MPI_Comm_split(MPI_COMM_WORLD, world_rank == 0, -world_rank, &part);
  everything(part);
  MPI_Comm_free(&part);
  for (int s = 0; s < kShapes; ++s) MPI_Type_free(&shapes[s]);
  free(in_memory), free(out_memory);
  fclose(output);
  MPI_Finalize();
  return 0;
}

/* Request arrays that mix null, inactive, hetccl's and MPI's requests; calls in flight; things that
 * are freed early; inter-communicators; errors; threads and children of the process. */
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test/interop/cases.h"

static int rank, size;

/* Request 0 null, 1 an inactive persistent one, 2 ours, 3 a message, 4 ours from rank 1. */
enum { kRequests = 5 };
struct Mixed {
  MPI_Request requests[kRequests];
  int persistent, in, sum, out, message, news;
};
static void start(struct Mixed* m) {
  m->requests[0] = MPI_REQUEST_NULL;
  MPI_Send_init(&m->persistent, 1, MPI_INT, rank, 3, MPI_COMM_WORLD, &m->requests[1]);
  m->in = rank, m->sum = -1, m->news = rank == 1 ? 99 : 0, m->out = rank, m->message = -1;
  MPI_Iallreduce(&m->in, &m->sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &m->requests[2]);
  MPI_Irecv(&m->message, 1, MPI_INT, (rank + size - 1) % size, 5, MPI_COMM_WORLD, &m->requests[3]);
  MPI_Ibcast(&m->news, 1, MPI_INT, 1, MPI_COMM_WORLD, &m->requests[4]);
  MPI_Send(&m->out, 1, MPI_INT, (rank + 1) % size, 5, MPI_COMM_WORLD);
}
static void finish(struct Mixed* m) {
  EXPECT(m->sum == size * (size - 1) / 2);
  EXPECT(m->message == (rank + size - 1) % size);
  EXPECT(m->news == 99);
  for (int i = 0; i < kRequests; ++i) EXPECT((m->requests[i] == MPI_REQUEST_NULL) == (i != 1));
  MPI_Request_free(&m->requests[1]);
}

static void mixed_arrays(int with_statuses) {
  struct Mixed m;
  MPI_Status statuses[kRequests];
  MPI_Status* const all = with_statuses ? statuses : MPI_STATUSES_IGNORE;
  MPI_Status* const one = with_statuses ? statuses : MPI_STATUS_IGNORE;
  int flag = 0, index = 0, n = 0, indices[kRequests], seen = 0;

  start(&m);
  EXPECT(MPI_Waitall(kRequests, m.requests, all) == MPI_SUCCESS);
  if (with_statuses) EXPECT(statuses[3].MPI_SOURCE == (rank + size - 1) % size);
  finish(&m);

  start(&m);
  while (!flag) EXPECT(MPI_Testall(kRequests, m.requests, &flag, all) == MPI_SUCCESS);
  finish(&m);

  start(&m);
  for (int k = 0; k < 3; ++k) {
    EXPECT(MPI_Waitany(kRequests, m.requests, &index, one) == MPI_SUCCESS);
    EXPECT(index >= 2 && index < kRequests && !(seen & 1 << index));
    seen |= 1 << index;
  }
  EXPECT(MPI_Waitany(kRequests, m.requests, &index, one) == MPI_SUCCESS && index == MPI_UNDEFINED);
  finish(&m);

  start(&m);
  for (int k = 0; k < 3; ++k) {
    for (flag = 0; !flag;) {
      EXPECT(MPI_Testany(kRequests, m.requests, &index, &flag, one) == MPI_SUCCESS);
    }
    EXPECT(index >= 2);
  }
  EXPECT(MPI_Testany(kRequests, m.requests, &index, &flag, one) == MPI_SUCCESS);
  EXPECT(flag && index == MPI_UNDEFINED);
  finish(&m);

  start(&m);
  for (int k = 0; k < 3; k += n) {
    EXPECT(MPI_Waitsome(kRequests, m.requests, &n, indices, all) == MPI_SUCCESS);
    EXPECT(n > 0 && k + n <= 3);
  }
  EXPECT(MPI_Waitsome(kRequests, m.requests, &n, indices, all) == MPI_SUCCESS);
  EXPECT(n == MPI_UNDEFINED);
  finish(&m);

  start(&m);
  for (int k = 0; k < 3; k += n) {
    EXPECT(MPI_Testsome(kRequests, m.requests, &n, indices, all) == MPI_SUCCESS);
    EXPECT(n >= 0 && k + n <= 3);
  }
  finish(&m);

  start(&m);
  for (flag = 0; !flag;) MPI_Request_get_status(m.requests[2], &flag, one);
  EXPECT(m.requests[2] != MPI_REQUEST_NULL && m.sum == size * (size - 1) / 2);
  for (flag = 0; !flag;) MPI_Test(&m.requests[4], &flag, one);
  EXPECT(m.requests[4] == MPI_REQUEST_NULL);
  MPI_Wait(&m.requests[2], one), MPI_Wait(&m.requests[3], one);
  finish(&m);
}

static void every_root(void) {
  for (int root = 0; root < size; ++root) {
    int data[300];
    for (int i = 0; i < 300; ++i) data[i] = rank == root ? root + i : -1;
    MPI_Request request;
    MPI_Ibcast(data, 300, MPI_INT, root, MPI_COMM_WORLD, &request);
    EXPECT(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    for (int i = 0; i < 300; ++i) EXPECT(data[i] == root + i);
  }
}

/* A rank waits for a message that another sends only after its own call has ended. */
static void late_ranks(void) {
  int one = 1, sum = 0, token = -1;
  MPI_Request request;
  MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
  if (rank > 0) {
    MPI_Recv(&token, 1, MPI_INT, rank - 1, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  } else {
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    EXPECT(sum == size);
  }
  if (rank + 1 < size) MPI_Send(&rank, 1, MPI_INT, rank + 1, 9, MPI_COMM_WORLD);
  if (rank > 0) MPI_Wait(&request, MPI_STATUS_IGNORE);
  EXPECT(sum == size && token == rank - 1);
}

/* Two communicators in opposite orders, which only non-blocking calls may be; a type that is freed
 * while its call is under way. `warm`: a blocking call was made on each before. */
static void opposite_orders(int warm) {
  enum { kCalls = 20 };
  MPI_Comm a, b;
  MPI_Comm_dup(MPI_COMM_WORLD, &a), MPI_Comm_dup(MPI_COMM_WORLD, &b);
  if (warm) MPI_Barrier(a), MPI_Barrier(b);
  int in[kCalls][2], out[kCalls][2], spaced[4] = {-1, -1, -1, -1};
  MPI_Request requests[2 * kCalls + 1];
  for (int i = 0; i < kCalls; ++i) {
    in[i][0] = i, in[i][1] = rank;
    for (int k = 0; k < 2; ++k) {
      const int which = (k + rank) % 2;
      MPI_Iallreduce(&in[i][which], &out[i][which], 1, MPI_INT, MPI_SUM, which ? a : b,
                     &requests[2 * i + k]);
    }
  }
  MPI_Datatype strided;
  MPI_Type_vector(2, 1, 2, MPI_INT, &strided);
  MPI_Type_commit(&strided);
  if (rank == 0) spaced[0] = 1, spaced[2] = 2;
  MPI_Ibcast(spaced, 1, strided, 0, a, &requests[2 * kCalls]);
  MPI_Type_free(&strided);
  MPI_Waitall(2 * kCalls + 1, requests, MPI_STATUSES_IGNORE);
  MPI_Comm_free(&a), MPI_Comm_free(&b);
  for (int i = 0; i < kCalls; ++i) {
    EXPECT(out[i][0] == i * size && out[i][1] == size * (size - 1) / 2);
  }
  EXPECT(spaced[0] == 1 && spaced[1] == -1 && spaced[2] == 2 && spaced[3] == -1);
}

static void many_communicators(void) {
  for (int i = 0; i < 10; ++i) {
    MPI_Comm half;
    MPI_Comm_split(MPI_COMM_WORLD, (rank + i) % 2, 0, &half);
    int ranks, value = i, sum = 0;
    MPI_Comm_size(half, &ranks);
    MPI_Bcast(&value, 1, MPI_INT, ranks - 1, half);
    MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, half);
    EXPECT(sum == i * ranks);
    MPI_Comm_free(&half);
  }
}

static void inter_communicators(void) {
  MPI_Comm half, inter;
  const int low = rank < 2;
  MPI_Comm_split(MPI_COMM_WORLD, low, rank, &half);
  MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, low ? 2 : 0, 11, &inter);
  int others, mine = rank, theirs[64];
  MPI_Comm_remote_size(inter, &others);
  MPI_Allgather(&mine, 1, MPI_INT, theirs, 1, MPI_INT, inter); /* at once its first traffic */
  for (int i = 0; i < others; ++i) EXPECT(theirs[i] == (low ? 2 + i : i));
  int each[64];
  for (int i = 0; i < 64; ++i) each[i] = rank, theirs[i] = -1;
  MPI_Alltoall(each, 1, MPI_INT, theirs, 1, MPI_INT, inter);
  for (int i = 0; i < others; ++i) EXPECT(theirs[i] == (low ? 2 + i : i));
  MPI_Barrier(inter);
  int sum = -1;
  const int root = rank == 0 ? MPI_ROOT : low ? MPI_PROC_NULL : 0;
#ifdef MPICH_VERSION /* it refuses a null pointer there */
  const void* const unused = &mine;
#else
  const void* const unused = NULL;
#endif
  MPI_Reduce(low ? unused : &mine, rank == 0 ? &sum : NULL, 1, MPI_INT, MPI_SUM, root, inter);
  EXPECT(rank != 0 || sum == size * (size - 1) / 2 - 1);
  MPI_Request requests[2];
  MPI_Ibarrier(inter, &requests[0]);
  MPI_Iallgather(&mine, 1, MPI_INT, theirs, 1, MPI_INT, inter, &requests[1]);
  MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
  MPI_Comm_free(&inter), MPI_Comm_free(&half);
}

static void alone(void) {
  int in = 3, out = 0;
  MPI_Allreduce(&in, &out, 1, MPI_INT, MPI_SUM, MPI_COMM_SELF);
  EXPECT(out == 3);
}

static void refused_arguments(void) {
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  int in = 1, out = 0, class;
  int code = MPI_Bcast(&in, 1, MPI_INT, size, comm);
  MPI_Error_class(code, &class);
  EXPECT(class == MPI_ERR_ROOT);
  code = MPI_Allreduce(&in, &out, -1, MPI_INT, MPI_SUM, comm);
  MPI_Error_class(code, &class);
  EXPECT(class == MPI_ERR_COUNT);
  MPI_Allreduce(&in, &out, 1, MPI_INT, MPI_SUM, comm); /* and it goes on */
  EXPECT(out == size);
  MPI_Comm_free(&comm);
}

struct Work {
  MPI_Comm comm;
  int turn;
};
static void* work(void* argument) {
  const struct Work* const w = argument;
  for (int i = 0; i < 50; ++i) {
    int in = rank + i, out = 0;
    MPI_Request request;
    if (i % 2 == w->turn) {
      MPI_Allreduce(&in, &out, 1, MPI_INT, MPI_SUM, w->comm);
    } else {
      MPI_Iallreduce(&in, &out, 1, MPI_INT, MPI_SUM, w->comm, &request);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    EXPECT(out == size * i + size * (size - 1) / 2);
  }
  return NULL;
}
/* `warm`: the first calls on the communicators are not the threads'. */
static void threads(int warm) {
  pthread_t ids[3];
  struct Work works[3];
  for (int t = 0; t < 3; ++t) {
    MPI_Comm_dup(MPI_COMM_WORLD, &works[t].comm);
    works[t].turn = t % 2;
  }
  for (int t = 0; warm && t < 3; ++t) MPI_Barrier(works[t].comm);
  for (int t = 0; t < 3; ++t) pthread_create(&ids[t], NULL, work, &works[t]);
  for (int t = 0; t < 3; ++t) pthread_join(ids[t], NULL);
  for (int t = 0; t < 3; ++t) MPI_Comm_free(&works[t].comm);
}

static void children(void) {
  const pid_t child = fork();
  if (child == 0) _exit(7);
  int status, in = 1, out = 0;
  EXPECT(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7);
  EXPECT(system("exit 0") == 0);
  MPI_Allreduce(&in, &out, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  EXPECT(out == size);
}

int main(int argc, char** argv) {
  int level;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  EXPECT(size >= 3 && size <= 64);
  MPI_Barrier(MPI_COMM_WORLD);
  mixed_arrays(0), mixed_arrays(1);
  every_root();
  late_ranks();
  opposite_orders(0), opposite_orders(1);
  many_communicators();
  inter_communicators();
  alone();
  refused_arguments();
  if (level == MPI_THREAD_MULTIPLE) threads(1), threads(0);
  children();
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) printf("requests: ok\n");
  MPI_Finalize();
  return 0;
}

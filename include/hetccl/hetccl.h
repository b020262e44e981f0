/* hetccl: collective communication for clusters whose ranks are not alike.
 *
 * C99. This header includes no MPI, CUDA or HIP. Unless a comment says otherwise every function
 * returns hetcclSuccess or an error code, never throws, prints, aborts or exits, and may be called
 * from any thread; calls on one communicator from several threads are serialised.
 * Counts are elements of the given type. Buffers belong to the caller. An output argument is
 * written only on success. What a call promises in full: doc/semantics.md.
 */
#ifndef HETCCL_HETCCL_H_
#define HETCCL_HETCCL_H_

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#define HETCCL_MAJOR 0
#define HETCCL_MINOR 1
#define HETCCL_PATCH 0
/* As hetcclGetVersion reports it: major * 10000 + minor * 100 + patch. */
#define HETCCL_VERSION (HETCCL_MAJOR * 10000 + HETCCL_MINOR * 100 + HETCCL_PATCH)

#if defined(__GNUC__)
#define HETCCL_API __attribute__((visibility("default")))
#else
#define HETCCL_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
  hetcclSuccess = 0,
  hetcclUnhandledDeviceError = 1, /* a vendor's runtime failed */
  hetcclSystemError = 2,          /* the operating system or the transport failed */
  hetcclInternalError = 3,        /* a fault of this library */
  hetcclInvalidArgument = 4,      /* refused at once, on this rank; the communicator stays usable */
  hetcclInvalidUsage = 5,         /* ranks disagree, or the call is not allowed in this state */
  hetcclRemoteError = 6,          /* another process died or aborted */
  hetcclInProgress = 7,           /* not complete yet */
  hetcclTimeout = 8               /* a live process kept silent for HETCCL_TIMEOUT seconds */
} hetcclResult_t;

/* The first twelve values are NCCL's. */
typedef enum {
  hetcclInt8 = 0,
  hetcclUint8 = 1,
  hetcclInt32 = 2,
  hetcclUint32 = 3,
  hetcclInt64 = 4,
  hetcclUint64 = 5,
  hetcclFloat16 = 6,
  hetcclFloat32 = 7,
  hetcclFloat64 = 8,
  hetcclBfloat16 = 9,
  hetcclFloat8e4m3 = 10, /* OCP: largest value 448, no infinity */
  hetcclFloat8e5m2 = 11, /* OCP */
  hetcclInt16 = 12,
  hetcclUint16 = 13,
  hetcclComplex64 = 14,  /* two float32 */
  hetcclComplex128 = 15, /* two float64 */
  hetcclBool = 16,       /* one byte; any value but 0 is true, results are 0 or 1 */
  hetcclByte = 17,       /* moved, and combined bitwise */
  /* Value and index, laid out as MPI's pair types of the same names. */
  hetcclFloatInt = 18,  /* struct { float value; int index; } */
  hetcclDoubleInt = 19, /* struct { double value; int index; } */
  hetcclLongInt = 20,   /* struct { long value; int index; } */
  hetcclShortInt = 21,  /* struct { short value; int index; } */
  hetcclTwoInt = 22,    /* struct { int value; int index; } */
  hetcclNumTypes = 23
} hetcclDataType_t;

/* The first five values are NCCL's. */
typedef enum {
  hetcclSum = 0,
  hetcclProd = 1,
  hetcclMax = 2,
  hetcclMin = 3,
  hetcclAvg = 4, /* integers: the exact mean, truncated toward zero */
  hetcclLAnd = 5,
  hetcclLOr = 6,
  hetcclLXor = 7,
  hetcclBAnd = 8,
  hetcclBOr = 9,
  hetcclBXor = 10,
  hetcclMinLoc = 11, /* equal values give the lowest index */
  hetcclMaxLoc = 12,
  hetcclNumOps = 13,
  hetcclRedOpMaxValue = INT_MAX /* fixes the width: values past hetcclNumOps are made at run time */
} hetcclRedOp_t;

typedef enum {
  hetcclMemoryHost = 0,
  hetcclMemoryCuda = 1,
  hetcclMemoryHip = 2,
  hetcclMemorySimCuda = 3, /* simulated GPU, a test double */
  hetcclMemorySimHip = 4
} hetcclMemoryKind_t;

typedef struct hetcclComm* hetcclComm_t;
typedef void* hetcclStream_t; /* NULL: the call is complete on return */
/* The default stream of the device's vendor, which NULL would name there. */
#define HETCCL_STREAM_LEGACY ((hetcclStream_t)1)

typedef struct {
  char internal[128];
} hetcclUniqueId;

/* Filled by HETCCL_CONFIG_INITIALIZER; set what you need and leave the rest. */
typedef struct {
  size_t size;
  unsigned int version;
  int device_kind;  /* a hetcclMemoryKind_t; -1: found by the library */
  int device;       /* ordinal; -1: the calling thread's current one */
  double timeout_s; /* seconds a silent rank is waited for; 0: for ever; negative: HETCCL_TIMEOUT */
  const char* node; /* which node this rank believes to be on; NULL: found by the library */
  const char* name; /* for messages; NULL: none */
} hetcclConfig_t;

#define HETCCL_CONFIG_VERSION 1u
#define HETCCL_CONFIG_INITIALIZER \
  { sizeof(hetcclConfig_t), HETCCL_CONFIG_VERSION, -1, -1, -1.0, NULL, NULL }

/* ---- Library ---- */

HETCCL_API hetcclResult_t hetcclGetVersion(int* version);
/* A static text that names the code. Never NULL. */
HETCCL_API const char* hetcclGetErrorString(hetcclResult_t result);
/* The cause of the last error of `comm`, or with NULL of the calling thread; "" where there was
 * none. Valid until this thread's next call of hetcclGetLastError. */
HETCCL_API const char* hetcclGetLastError(hetcclComm_t comm);

/* ---- Communicators ----
 * Every creation is collective over the ranks of the new communicator. `config` may be NULL. */

/* `allgather` collects `bytes_each` bytes of every rank, in rank order, into `all`; it returns 0
 * on success. It is called once, on this thread, before the function returns. */
HETCCL_API hetcclResult_t hetcclCommInitOob(hetcclComm_t* comm, int nranks, int rank,
                                            int (*allgather)(const void* mine, void* all,
                                                             size_t bytes_each, void* ctx),
                                            void* ctx, const hetcclConfig_t* config);
/* Makes an identifier that one rank hands to all others by means of its own. The calling process
 * serves the meeting of the ranks and must live until all of them have joined. */
HETCCL_API hetcclResult_t hetcclGetUniqueId(hetcclUniqueId* id);
HETCCL_API hetcclResult_t hetcclCommInitRank(hetcclComm_t* comm, int nranks, hetcclUniqueId id,
                                             int rank);
HETCCL_API hetcclResult_t hetcclCommInitRankConfig(hetcclComm_t* comm, int nranks,
                                                   hetcclUniqueId id, int rank,
                                                   const hetcclConfig_t* config);
/* Ranks of one color form a communicator, ordered by key, then by their rank in `comm`.
 * A negative color takes part and gets *newcomm = NULL. */
HETCCL_API hetcclResult_t hetcclCommSplit(hetcclComm_t comm, int64_t color, int64_t key,
                                          hetcclComm_t* newcomm, const hetcclConfig_t* config);
HETCCL_API hetcclResult_t hetcclCommDup(hetcclComm_t comm, hetcclComm_t* newcomm);
/* A communicator of the ranks of `comm` that have not died and are not among the `nexclude` of
 * `exclude`, in the same order; `comm` may have failed, and stays what it is. Called by all of
 * these ranks, with the same list, and by no other. Ranks that die meanwhile are left out too. A
 * rank that was done already finds out at its first call on *newcomm, and shrinks that; the others
 * meet it there. On an error call it again. */
HETCCL_API hetcclResult_t hetcclCommShrink(hetcclComm_t comm, const int* exclude, int nexclude,
                                           hetcclComm_t* newcomm, const hetcclConfig_t* config);
/* Waits until all that was started on `comm` has ended on this rank, and refuses further calls. */
HETCCL_API hetcclResult_t hetcclCommFinalize(hetcclComm_t comm);
/* Finalize with a bound on the wait, then frees. Local. NULL is allowed. */
HETCCL_API hetcclResult_t hetcclCommDestroy(hetcclComm_t comm);
/* Ends all calls in progress on `comm` with hetcclRemoteError on the other ranks, and frees. Local;
 * returns within 5 s, whatever the others do. NULL is allowed. */
HETCCL_API hetcclResult_t hetcclCommAbort(hetcclComm_t comm);
HETCCL_API hetcclResult_t hetcclCommCount(hetcclComm_t comm, int* count);
HETCCL_API hetcclResult_t hetcclCommUserRank(hetcclComm_t comm, int* rank);
/* hetcclSuccess while `comm` is sound, else the error that ended it. */
HETCCL_API hetcclResult_t hetcclCommGetAsyncError(hetcclComm_t comm, hetcclResult_t* async_error);

/* ---- Collectives ----
 * In place: sendbuff == recvbuff, or for AllGather(v), ReduceScatter(v), and at the root Gather(v)
 * and Scatter(v), the rank's own block within the other buffer. Other overlaps are
 * hetcclInvalidArgument. Counts and displacements are in elements. */

HETCCL_API hetcclResult_t hetcclAllReduce(const void* sendbuff, void* recvbuff, size_t count,
                                          hetcclDataType_t type, hetcclRedOp_t op,
                                          hetcclComm_t comm, hetcclStream_t stream);
/* recvbuff is written at `root` only, and may be NULL elsewhere. */
HETCCL_API hetcclResult_t hetcclReduce(const void* sendbuff, void* recvbuff, size_t count,
                                       hetcclDataType_t type, hetcclRedOp_t op, int root,
                                       hetcclComm_t comm, hetcclStream_t stream);
/* sendbuff holds nranks * recvcount elements. */
HETCCL_API hetcclResult_t hetcclReduceScatter(const void* sendbuff, void* recvbuff,
                                              size_t recvcount, hetcclDataType_t type,
                                              hetcclRedOp_t op, hetcclComm_t comm,
                                              hetcclStream_t stream);
/* sendbuff holds the blocks of all ranks one after the other; recvcounts is equal on all ranks. */
HETCCL_API hetcclResult_t hetcclReduceScatterv(const void* sendbuff, void* recvbuff,
                                               const size_t* recvcounts, hetcclDataType_t type,
                                               hetcclRedOp_t op, hetcclComm_t comm,
                                               hetcclStream_t stream);
/* sendbuff is read at `root` only, and may be NULL elsewhere. */
HETCCL_API hetcclResult_t hetcclBroadcast(const void* sendbuff, void* recvbuff, size_t count,
                                          hetcclDataType_t type, int root, hetcclComm_t comm,
                                          hetcclStream_t stream);
/* recvbuff holds nranks * sendcount elements. */
HETCCL_API hetcclResult_t hetcclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount,
                                          hetcclDataType_t type, hetcclComm_t comm,
                                          hetcclStream_t stream);
/* recvcounts is equal on all ranks, and sendcount is this rank's entry; recvdispls are elements
 * from recvbuff and each rank's own affair. */
HETCCL_API hetcclResult_t hetcclAllGatherv(const void* sendbuff, size_t sendcount, void* recvbuff,
                                           const size_t* recvcounts, const size_t* recvdispls,
                                           hetcclDataType_t type, hetcclComm_t comm,
                                           hetcclStream_t stream);
/* Block p of sendbuff goes to rank p; block p of recvbuff comes from it. `count` elements each. */
HETCCL_API hetcclResult_t hetcclAllToAll(const void* sendbuff, void* recvbuff, size_t count,
                                         hetcclDataType_t type, hetcclComm_t comm,
                                         hetcclStream_t stream);
/* sendcounts[p] elements from sendbuff + senddispls[p] go to rank p, whose recvcounts for this rank
 * must be the same; recvcounts[p] of them come from it to recvbuff + recvdispls[p]. In place with
 * equal counts and displacements for both. */
HETCCL_API hetcclResult_t hetcclAllToAllv(const void* sendbuff, const size_t* sendcounts,
                                          const size_t* senddispls, void* recvbuff,
                                          const size_t* recvcounts, const size_t* recvdispls,
                                          hetcclDataType_t type, hetcclComm_t comm,
                                          hetcclStream_t stream);
/* recvbuff holds nranks * sendcount elements at `root`, and is not looked at elsewhere. */
HETCCL_API hetcclResult_t hetcclGather(const void* sendbuff, void* recvbuff, size_t sendcount,
                                       hetcclDataType_t type, int root, hetcclComm_t comm,
                                       hetcclStream_t stream);
/* recvbuff, recvcounts and recvdispls are looked at by `root` only; recvcounts[p] must be what rank
 * p gives as sendcount. */
HETCCL_API hetcclResult_t hetcclGatherv(const void* sendbuff, size_t sendcount, void* recvbuff,
                                        const size_t* recvcounts, const size_t* recvdispls,
                                        hetcclDataType_t type, int root, hetcclComm_t comm,
                                        hetcclStream_t stream);
/* sendbuff holds nranks * recvcount elements at `root`, and is not looked at elsewhere. */
HETCCL_API hetcclResult_t hetcclScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                                        hetcclDataType_t type, int root, hetcclComm_t comm,
                                        hetcclStream_t stream);
/* sendbuff, sendcounts and senddispls are looked at by `root` only; sendcounts[p] must be what rank
 * p gives as recvcount. */
HETCCL_API hetcclResult_t hetcclScatterv(const void* sendbuff, const size_t* sendcounts,
                                         const size_t* senddispls, void* recvbuff, size_t recvcount,
                                         hetcclDataType_t type, int root, hetcclComm_t comm,
                                         hetcclStream_t stream);
/* Rank r gets what ranks 0 to r give, combined in this order. hetcclAvg is not defined. */
HETCCL_API hetcclResult_t hetcclScan(const void* sendbuff, void* recvbuff, size_t count,
                                     hetcclDataType_t type, hetcclRedOp_t op, hetcclComm_t comm,
                                     hetcclStream_t stream);
/* Rank r gets what ranks 0 to r-1 give; rank 0 gets nothing, and its recvbuff may be NULL. */
HETCCL_API hetcclResult_t hetcclExscan(const void* sendbuff, void* recvbuff, size_t count,
                                       hetcclDataType_t type, hetcclRedOp_t op, hetcclComm_t comm,
                                       hetcclStream_t stream);
HETCCL_API hetcclResult_t hetcclBarrier(hetcclComm_t comm, hetcclStream_t stream);

/* ---- Messages between two ranks, and groups ---- */

/* `count` elements for rank `peer`, which receives as many of the same type: the k-th hetcclSend
 * from one rank to another goes to the k-th hetcclRecv there, whatever collectives are made in
 * between. Complete when sendbuff may be written again; that may be before the other has received,
 * and may be not until then. `peer` may be this rank. */
HETCCL_API hetcclResult_t hetcclSend(const void* sendbuff, size_t count, hetcclDataType_t type,
                                     int peer, hetcclComm_t comm, hetcclStream_t stream);
/* A count or a type that is not the sender's is hetcclInvalidUsage on both ranks. */
HETCCL_API hetcclResult_t hetcclRecv(void* recvbuff, size_t count, hetcclDataType_t type, int peer,
                                     hetcclComm_t comm, hetcclStream_t stream);

/* Calls that this thread makes between the two, collectives, sends and receives on any
 * communicators, are made together by the last hetcclGroupEnd, and progress whatever their order;
 * only collectives of one communicator must be named in the same order by all its ranks. Their
 * buffers are the library's from the call on. An invalid argument is returned by the call itself,
 * which is then no part of the group. Groups may be nested, which changes nothing, and empty.
 * The calls of a group on one stream take one place in it. */
HETCCL_API hetcclResult_t hetcclGroupStart(void);
/* Calls without a stream are complete on return. Returns the first error, after they have all
 * ended. */
HETCCL_API hetcclResult_t hetcclGroupEnd(void);

/* A hint that calls on `comm` will use this memory again. It is checked: all of it must be memory
 * of this process, or of one device, and nothing has to be registered. It changes nothing in calls
 * so far: what network and devices need is registered when a call needs it, and kept; host memory
 * is read in place where it comes from hetcclMemAlloc. Local. */
HETCCL_API hetcclResult_t hetcclCommRegister(hetcclComm_t comm, void* buffer, size_t bytes,
                                             void** handle);
/* Once a handle; what is left ends with `comm`. */
HETCCL_API hetcclResult_t hetcclCommDeregister(hetcclComm_t comm, void* handle);

/* ---- Operators made at run time ----
 * All ranks create the same operators in the same order: the k-th of one rank is the k-th of the
 * others. Local; an operator can be used in `comm` only, until it is destroyed or `comm` is. On
 * device memory the host combines, on a copy. */

/* The sum of scalar * contribution. `scalar` is one element of `type` in host memory, read before
 * the function returns, and equal on all ranks; the operator serves this type only, which is one
 * that has hetcclSum and hetcclProd. The 16- and 8-bit floats are multiplied and summed in float32
 * and rounded once, at the end. */
HETCCL_API hetcclResult_t hetcclRedOpCreatePreMulSum(hetcclRedOp_t* op, const void* scalar,
                                                     hetcclDataType_t type, hetcclComm_t comm);
/* `fn` sets inout[i] = in[i] op inout[i] for i < count, where `in` comes from lower ranks than
 * `inout`; it must be associative. It is called on any thread and on memory of the library's,
 * for any part of a buffer, and must not call this library. Where `commutative` is 0 contributions
 * are combined in the order of ranks. Any type is allowed: `fn` alone knows what it means. */
HETCCL_API hetcclResult_t hetcclRedOpCreateUser(hetcclRedOp_t* op,
                                                void (*fn)(const void* in, void* inout,
                                                           size_t count, hetcclDataType_t type,
                                                           void* ctx),
                                                void* ctx, int commutative, hetcclComm_t comm);
/* Calls in progress still end with it. */
HETCCL_API hetcclResult_t hetcclRedOpDestroy(hetcclRedOp_t op, hetcclComm_t comm);

/* ---- Streams of the host, and memory ---- */

/* A stream orders the calls that are given it and runs them in the background. */
HETCCL_API hetcclResult_t hetcclStreamCreate(hetcclStream_t* stream);
/* Waits for all calls given to `stream`; returns the first error among them. */
HETCCL_API hetcclResult_t hetcclStreamSynchronize(hetcclStream_t stream);
/* hetcclInProgress while a call is unfinished. */
HETCCL_API hetcclResult_t hetcclStreamQuery(hetcclStream_t stream);
/* Waits like hetcclStreamSynchronize, then frees. */
HETCCL_API hetcclResult_t hetcclStreamDestroy(hetcclStream_t stream);
/* hetcclMemoryHost: memory that every rank of the node can map, so that collectives read it in
 * place. The contents are zero. Freed by hetcclMemFree only. */
HETCCL_API hetcclResult_t hetcclMemAlloc(void** ptr, size_t bytes, hetcclMemoryKind_t kind);
/* NULL is allowed. No call may be using the memory. */
HETCCL_API hetcclResult_t hetcclMemFree(void* ptr);

#ifdef __cplusplus
}
#endif
#endif /* HETCCL_HETCCL_H_ */

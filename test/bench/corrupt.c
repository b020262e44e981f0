/* Preloaded before the library: every all-reduce comes out with one wrong bit, so that a test sees
 * the tool find it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <hetccl/hetccl.h>

typedef hetcclResult_t (*AllReduce)(const void*, void*, size_t, hetcclDataType_t, hetcclRedOp_t,
                                    hetcclComm_t, hetcclStream_t);

HETCCL_API hetcclResult_t hetcclAllReduce(const void* sendbuff, void* recvbuff, size_t count,
                                          hetcclDataType_t type, hetcclRedOp_t op,
                                          hetcclComm_t comm, hetcclStream_t stream) {
  union {
    void* object;
    AllReduce function;
  } real;
  real.object = dlsym(RTLD_NEXT, "hetcclAllReduce");
  hetcclResult_t result = real.function(sendbuff, recvbuff, count, type, op, comm, stream);
  if (result == hetcclSuccess && count > 0) ((unsigned char*)recvbuff)[0] ^= 1;
  return result;
}

/* Makes a communicator of one rank on a device of the kind that is given as a number, and prints
 * the result and the error. */
#include <hetccl/hetccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int allgather(const void* mine, void* all, size_t bytes_each, void* ctx) {
  (void)ctx;
  memcpy(all, mine, bytes_each);
  return 0;
}

int main(int argc, char** argv) {
  hetcclConfig_t config = HETCCL_CONFIG_INITIALIZER;
  hetcclComm_t comm = NULL;
  hetcclResult_t result;
  if (argc != 2) return 2;
  config.device_kind = atoi(argv[1]);
  result = hetcclCommInitOob(&comm, 1, 0, allgather, NULL, &config);
  printf("%d %s\n", (int)result, hetcclGetLastError(NULL));
  if (comm != NULL) hetcclCommDestroy(comm);
  return 0;
}

/* hetccl started by MPI. Include <mpi.h> of any MPI; the library itself links none.
 * MPI is called here only, on the caller's thread, before the function returns. */
#ifndef HETCCL_MPI_H_
#define HETCCL_MPI_H_

#include <hetccl/hetccl.h>
#include <limits.h>
#include <mpi.h>

/* Not for direct use: the exchange that hetcclCommInitOob asks for. */
static inline int hetccl_mpi_allgather(const void* mine, void* all, size_t bytes_each, void* ctx) {
  if (bytes_each > INT_MAX) return 1;
  return MPI_Allgather((void*)mine, (int)bytes_each, MPI_BYTE, all, (int)bytes_each, MPI_BYTE,
                       *(MPI_Comm*)ctx) != MPI_SUCCESS;
}

/* Collective over `mpi_comm`, an intra-communicator; ranks keep their numbers. `config` may be
 * NULL. The MPI communicator is not kept: it may be freed, and MPI finalized, at once. */
static inline hetcclResult_t hetcclCommInitMPI(hetcclComm_t* comm, MPI_Comm mpi_comm,
                                               const hetcclConfig_t* config) {
  int initialized = 0, inter = 0, nranks = 0, rank = 0;
  if (MPI_Initialized(&initialized) != MPI_SUCCESS || !initialized) return hetcclInvalidUsage;
  if (mpi_comm == MPI_COMM_NULL) return hetcclInvalidArgument;
  if (MPI_Comm_test_inter(mpi_comm, &inter) != MPI_SUCCESS || inter) return hetcclInvalidArgument;
  if (MPI_Comm_size(mpi_comm, &nranks) != MPI_SUCCESS) return hetcclSystemError;
  if (MPI_Comm_rank(mpi_comm, &rank) != MPI_SUCCESS) return hetcclSystemError;
  return hetcclCommInitOob(comm, nranks, rank, hetccl_mpi_allgather, &mpi_comm, config);
}

#endif /* HETCCL_MPI_H_ */

#include "bench/launch.h"

#include <cstdlib>

namespace hetccl::bench {

std::string launch_error(const Environment& environment, int mpi_ranks) {
  if (mpi_ranks != 1) return "";
  // A launcher's own variable says more than that of the Slurm job it runs in.
  for (const char* name :
       {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}) {
    const char* value = environment(name);
    if (value == nullptr || *value == '\0') continue;
    long tasks = std::strtol(value, nullptr, 10);
    if (tasks <= 1) return "";
    return std::string(name) + "=" + value +
           ", but MPI sees one rank: this MPI and the launcher do not understand each other, and "
           "every task would measure alone. Start it with mpirun of the MPI it was built with, or "
           "with `srun --mpi=pmix` (`srun --mpi=list` shows what there is); for one rank on "
           "purpose: mpirun -n 1";
  }
  return "";
}

}  // namespace hetccl::bench

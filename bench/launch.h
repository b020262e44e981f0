// Tells whether the launcher started more processes than MPI knows of: then each of them would
// measure a world of its own, with figures that look fine.
#pragma once

#include <functional>
#include <string>

namespace hetccl::bench {

using Environment = std::function<const char*(const char* name)>;

// "" where all is well, else what is wrong and what to do. `environment`: as before MPI_Init.
std::string launch_error(const Environment& environment, int mpi_ranks);

}  // namespace hetccl::bench

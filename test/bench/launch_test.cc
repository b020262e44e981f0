#include "bench/launch.h"

#include <gtest/gtest.h>

#include <map>

namespace hetccl::bench {
namespace {

std::string error_with(const std::map<std::string, std::string>& environment, int mpi_ranks) {
  return launch_error(
      [&](const char* name) {
        auto found = environment.find(name);
        return found == environment.end() ? nullptr : found->second.c_str();
      },
      mpi_ranks);
}

TEST(Launch, FourTasksThatEachSeeOneRankAreRefused) {
  for (const char* rank : {"0", "1", "2", "3"}) {
    std::string error = error_with({{"SLURM_NTASKS", "4"}, {"SLURM_PROCID", rank}}, 1);
    EXPECT_NE(error.find("SLURM_NTASKS=4"), std::string::npos) << error;
    EXPECT_NE(error.find("--mpi=pmix"), std::string::npos) << error;
  }
  EXPECT_NE(error_with({{"PMI_SIZE", "2"}}, 1), "");
  EXPECT_NE(error_with({{"OMPI_COMM_WORLD_SIZE", "2"}}, 1), "");
}

TEST(Launch, OrdinaryStartsPass) {
  EXPECT_EQ(error_with({}, 1), "");
  EXPECT_EQ(error_with({{"SLURM_NTASKS", "1"}}, 1), "");
  EXPECT_EQ(error_with({{"SLURM_NTASKS", "4"}}, 4), "");
  EXPECT_EQ(error_with({{"SLURM_NTASKS", ""}}, 1), "");
}

TEST(Launch, MpirunOfOneRankWithinASlurmJobPasses) {
  EXPECT_EQ(error_with({{"SLURM_NTASKS", "4"}, {"OMPI_COMM_WORLD_SIZE", "1"}}, 1), "");
}

}  // namespace
}  // namespace hetccl::bench

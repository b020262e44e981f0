// What hetccl_info --paths prints: how data travel between each pair of ranks, and why.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace hetccl::bench {

// Both as Library::rank_table() gives it. Ranks, then one line an ordered pair.
std::string paths_to_text(const nlohmann::json& rank_table);

// Collective over the ranks of MPI; rank 0 prints. `memory`: names of kinds; empty: the library
// finds each rank's device. The exit status.
int print_paths(int* argc, char*** argv, const std::vector<std::string>& memory, bool as_json);

}  // namespace hetccl::bench

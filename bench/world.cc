#include "bench/world.h"

#include <cstdio>
#include <cstdlib>

namespace hetccl::bench {

World::World(int* argc, char*** argv, const char* program) : program_(program) {
  MPI_Init(argc, argv);
  MPI_Comm_size(MPI_COMM_WORLD, &place_.ranks);
  MPI_Comm_rank(MPI_COMM_WORLD, &place_.rank);
  MPI_Comm node;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
  MPI_Comm_size(node, &on_node_);
  MPI_Comm_rank(node, &rank_on_node_);
  MPI_Comm_free(&node);
}

World::~World() { MPI_Finalize(); }

bool World::agree(bool ok, const std::string& why) const {
  int mine = ok ? ranks() : rank(), first = 0;
  MPI_Allreduce(&mine, &first, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  if (first == ranks()) return true;
  int length = static_cast<int>(why.size());
  MPI_Bcast(&length, 1, MPI_INT, first, MPI_COMM_WORLD);
  std::string text = first == rank() ? why : std::string(static_cast<size_t>(length), ' ');
  MPI_Bcast(text.data(), length, MPI_CHAR, first, MPI_COMM_WORLD);
  if (rank() == 0) std::fprintf(stderr, "%s: rank %d: %s\n", program_, first, text.c_str());
  return false;
}

void World::fail(const std::string& why) const {
  std::fprintf(stderr, "%s: rank %d: %s\n", program_, rank(), why.c_str());
  std::fflush(stderr);
  MPI_Abort(MPI_COMM_WORLD, 3);
  std::abort();
}

void World::maximum(std::vector<double>* values) const {
  MPI_Allreduce(MPI_IN_PLACE, values->data(), static_cast<int>(values->size()), MPI_DOUBLE, MPI_MAX,
                MPI_COMM_WORLD);
}

uint64_t World::sum(uint64_t value) const {
  MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
  return value;
}

std::vector<std::string> World::gather(const std::string& mine) const {
  int length = static_cast<int>(mine.size());
  std::vector<int> lengths(static_cast<size_t>(ranks())), offsets;
  MPI_Allgather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, MPI_COMM_WORLD);
  int total = 0;
  for (int l : lengths) {
    offsets.push_back(total);
    total += l;
  }
  std::string all(static_cast<size_t>(total), ' ');
  MPI_Allgatherv(mine.data(), length, MPI_CHAR, all.data(), lengths.data(), offsets.data(),
                 MPI_CHAR, MPI_COMM_WORLD);
  std::vector<std::string> texts;
  for (size_t r = 0; r < lengths.size(); ++r) {
    texts.push_back(all.substr(static_cast<size_t>(offsets[r]), static_cast<size_t>(lengths[r])));
  }
  return texts;
}

}  // namespace hetccl::bench

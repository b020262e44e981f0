#include "test/mpi/mpi_test.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

namespace hetccl::test {

Guarded::Guarded(size_t bytes, Edge edge) : page_(static_cast<size_t>(sysconf(_SC_PAGESIZE))) {
  const size_t inner = (bytes + page_ - 1) / page_ * page_;
  mapped_ = inner + 2 * page_;
  base_ = mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base_ == MAP_FAILED) std::abort();
  char* const begin = static_cast<char*>(base_) + page_;
  if (inner != 0 && mprotect(begin, inner, PROT_READ | PROT_WRITE) != 0) std::abort();
  data_ = edge == Edge::kFront ? begin : begin + inner - bytes;
}

Guarded::~Guarded() { munmap(base_, mapped_); }

void Guarded::read_only() {
  if (mapped_ > 2 * page_) {
    mprotect(static_cast<char*>(base_) + page_, mapped_ - 2 * page_, PROT_READ);
  }
}

namespace {

// Ranks other than 0 say only what failed.
class Quiet : public ::testing::EmptyTestEventListener {
  void OnTestPartResult(const ::testing::TestPartResult& r) override {
    if (!r.failed()) return;
    std::fprintf(stderr, "rank %d: %s:%d: %s\n", world_rank(), r.file_name(), r.line_number(),
                 r.message());
  }
};

// A failure on one rank is one on all.
class Shared : public ::testing::EmptyTestEventListener {
  void OnTestEnd(const ::testing::TestInfo& info) override {
    int mine = info.result()->Failed(), any = 0;
    MPI_Allreduce(&mine, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (any != 0 && mine == 0) ADD_FAILURE() << "failed on another rank";
  }
};

}  // namespace
}  // namespace hetccl::test

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  // Emulated nodes: HETCCL_TEST_NODE_SIZE consecutive ranks each.
  if (const char* size = std::getenv("HETCCL_TEST_NODE_SIZE")) {
    const std::string node = "node" + std::to_string(hetccl::test::world_rank() / std::atoi(size));
    setenv("HETCCL_NODE", node.c_str(), 1);
    unsetenv("HETCCL_TEST_NODE_SIZE");
  }
  ::testing::InitGoogleTest(&argc, argv);
  auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
  if (hetccl::test::world_rank() != 0) {
    ::testing::GTEST_FLAG(output) = "";
    delete listeners.Release(listeners.default_result_printer());
    delete listeners.Release(listeners.default_xml_generator());
    listeners.Append(new hetccl::test::Quiet);
  }
  listeners.Append(new hetccl::test::Shared);
  const int failed = RUN_ALL_TESTS();
  int any = 0;
  MPI_Allreduce(&failed, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  MPI_Finalize();
  return any;
}

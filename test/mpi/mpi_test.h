// GoogleTest under mpirun: every rank runs every test in step, rank 0 reports, and a failure on any
// rank fails the test on all. Tests use EXPECT, so that no rank leaves the step of the others.
#pragma once

#include <gtest/gtest.h>
#include <hetccl/hetccl.h>
#include <hetccl/mpi.h>
#include <mpi.h>

#include <cstdint>
#include <vector>

namespace hetccl::test {

inline int world_rank() {
  int r = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &r);
  return r;
}
inline int world_size() {
  int n = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &n);
  return n;
}

// A communicator over all ranks for the time of a test.
class World : public ::testing::Test {
 protected:
  void SetUp() override {
    rank = world_rank();
    ranks = world_size();
    ASSERT_EQ(hetcclCommInitMPI(&comm, MPI_COMM_WORLD, nullptr), hetcclSuccess)
        << hetcclGetLastError(nullptr);
  }
  void TearDown() override {
    EXPECT_EQ(hetcclCommDestroy(comm), hetcclSuccess);
    MPI_Barrier(MPI_COMM_WORLD);
  }
  hetcclComm_t comm = nullptr;
  int rank = 0, ranks = 1;
};

// An exact contribution of a rank at an index: small enough that every sum over the ranks, and
// every product of two, is exact in every type that is used with it.
inline int64_t value(int rank, size_t index) {
  return static_cast<int64_t>((index * 7 + static_cast<size_t>(rank) * 13 + 3) % 11);
}

// Memory with an inaccessible page before and behind, so that what lies at either edge is guarded.
class Guarded {
 public:
  enum class Edge { kFront, kBack };
  Guarded(size_t bytes, Edge edge);
  ~Guarded();
  Guarded(const Guarded&) = delete;
  void* data() const { return data_; }
  void read_only();

 private:
  void* base_;
  size_t mapped_;
  size_t page_;
  void* data_;
};

}  // namespace hetccl::test

// What each collective is to give, once for all tests that run them: how long each rank's buffers
// are, what they hold before and after, and the call.
#pragma once

#include <functional>

#include "lib/coll/registry.h"
#include "test/mpi/mpi_test.h"

namespace hetccl::test {

class CollectiveCases {
 public:
  virtual ~CollectiveCases() = default;

 protected:
  int64_t sum(size_t index, int first_ranks) const {
    int64_t total = 0;
    for (int r = 0; r < first_ranks; ++r) total += value(r, index);
    return total;
  }
  int64_t sum(size_t index) const { return sum(index, ranks); }

  // One call: fill sends, run, compare with `expected` (element of the output).
  struct Shape {
    size_t send, recv;                    // elements
    size_t send_base;                     // index of the first send element, for value()
    size_t in_place_send, in_place_recv;  // offsets in the common buffer
    bool sends, receives;                 // this rank's part
  };
  using Expected = std::function<int64_t(size_t)>;
  using Call = std::function<hetcclResult_t(const void*, void*, hetcclStream_t)>;

  // Runs the call in every way that the test is about, on elements of float32.
  virtual void check(const Shape& shape, const Expected& expected, const Call& run,
                     size_t count) = 0;

  // All roots of interest of a collective that moves or reduces data.
  void run_case(coll::Collective collective, size_t count);

  hetcclComm_t comm = nullptr;
  int rank = 0, ranks = 1;
};

}  // namespace hetccl::test

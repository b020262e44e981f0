// Whether a communicator delegates its calls, and to what: agreed by all ranks, with a reason.
#include "test/delegate/ranks.h"

namespace hetccl::test {
namespace {

struct Case {
  const char* name;
  const char* reason;  // a part of it
  // Of a rank, before it creates the communicator: what it sets, and which device it has.
  int (*prepare)(int rank);
  const char* to = "";  // what is delegated to
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class Decision : public ::testing::TestWithParam<Case> {};

// All ranks say the same, and calls work either way.
TEST_P(Decision, IsAgreed) {
  const Case& c = GetParam();
  run_ranks(3, [&](int rank, Board& board, Findings& found) {
    setenv("HETCCL_DELEGATE", "auto", 1);
    setenv("HETCCL_DELEGATE_LIBRARY", HETCCL_STUB, 1);
    own_device = rank;
    const int kind = c.prepare(rank);
    hetcclComm_t comm = nullptr;
    found.ok(try_create(rank, 3, board, kind, &comm));
    if (comm == nullptr) return;
    const nlohmann::json delegation = delegation_of(comm);
    found.equal(delegation["to"], c.to, "delegated to");
    found.contains(delegation["reason"], c.reason);
    const int32_t mine = rank;
    int32_t sum = -1;
    found.ok(hetcclAllReduce(&mine, &sum, 1, hetcclInt32, hetcclSum, comm, nullptr));
    found.equal(std::to_string(sum), "3", "sum");
    const std::string algorithm = hetcclInternalLastAlgorithm(comm);
    found.check(*c.to != '\0' ? algorithm == c.to : algorithm.find("ccl") == algorithm.npos,
                "run by " + algorithm);
    found.ok(hetcclCommDestroy(comm));
  });
}

// With HETCCL_DELEGATE=require creation fails where nothing can be delegated, on all ranks alike.
TEST_P(Decision, IsAnErrorWhereRequired) {
  const Case& c = GetParam();
  run_ranks(3, [&](int rank, Board& board, Findings& found) {
    setenv("HETCCL_DELEGATE", "require", 1);
    setenv("HETCCL_DELEGATE_LIBRARY", HETCCL_STUB, 1);
    own_device = rank;
    const int kind = c.prepare(rank);
    if (std::string(getenv("HETCCL_DELEGATE")) != "require") return;
    hetcclComm_t comm = nullptr;
    const hetcclResult_t r = try_create(rank, 3, board, kind, &comm);
    found.check(r == (*c.to != '\0' ? hetcclSuccess : hetcclInvalidUsage), hetcclGetErrorString(r));
    if (comm == nullptr) {
      found.contains(hetcclGetLastError(nullptr), "HETCCL_DELEGATE is require, but ");
      found.contains(hetcclGetLastError(nullptr), c.reason);
    } else {
      found.equal(delegation_of(comm)["to"], c.to, "delegated to");
      found.ok(hetcclCommDestroy(comm));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(
    Cases, Decision,
    ::testing::Values(
        Case{"Possible", "nccl 2.28.9", [](int) -> int { return hetcclMemorySimCuda; }, "nccl"},
        Case{"OtherVendor", "rccl 2.28.9", [](int) -> int { return hetcclMemorySimHip; }, "rccl"},
        Case{"OldNumbering", "nccl 2.14.3",
             [](int) -> int {
               STUB(stub_set_version)(21403);
               return hetcclMemorySimCuda;
             },
             "nccl"},
        Case{"Off", "HETCCL_DELEGATE is off",
             [](int) -> int {
               setenv("HETCCL_DELEGATE", "off", 1);
               return hetcclMemorySimCuda;
             }},
        Case{"TwoVendors", "rank 0 has a device of sim:cuda, rank 1 one of sim:hip",
             [](int rank) -> int { return rank == 1 ? hetcclMemorySimHip : hetcclMemorySimCuda; }},
        Case{"NoDevice", "rank 2 has no device",
             [](int rank) -> int { return rank == 2 ? hetcclMemoryHost : hetcclMemorySimCuda; }},
        Case{"NoDevices", "rank 0 has no device", [](int) -> int { return hetcclMemoryHost; }},
        Case{"NoLibraryNamed", "rank 0: simulated devices have no vendor's library",
             [](int) -> int {
               setenv("HETCCL_DELEGATE_LIBRARY", "", 1);
               return hetcclMemorySimCuda;
             }},
        Case{"LibraryMissing", "rank 1: /nowhere/libx.so: cannot open",
             [](int rank) -> int {
               if (rank == 1) setenv("HETCCL_DELEGATE_LIBRARY", "/nowhere/libx.so", 1);
               return hetcclMemorySimCuda;
             }},
        Case{"OtherLibrary", "rank 1: libm.so.6 cannot be used: it lacks ncclGetVersion",
             [](int rank) -> int {
               if (rank == 1) setenv("HETCCL_DELEGATE_LIBRARY", "libm.so.6", 1);
               return hetcclMemorySimCuda;
             }},
        Case{"Versions", "rank 0 has nccl 2.28.9, rank 2 has nccl 2.27.3",
             [](int rank) -> int {
               if (rank == 2) STUB(stub_set_version)(22703);
               return hetcclMemorySimCuda;
             }},
        Case{"TooOld", "it is version 2.7.8, and 2.14 is the oldest",
             [](int) -> int {
               STUB(stub_set_version)(2708);
               return hetcclMemorySimCuda;
             }},
        Case{"NoId", "rank 0: nccl 2.28.9: ncclGetUniqueId: stub error",
             [](int) -> int {
               STUB(stub_fail)("ncclGetUniqueId", 2);
               return hetcclMemorySimCuda;
             }},
        Case{"OneDevice", "ranks 0 and 2 have one device (sim:cuda:0)",
             [](int rank) -> int {
               own_device = rank % 2;
               return hetcclMemorySimCuda;
             }},
        Case{"JoinRefused",
             "rank 1: nccl 2.28.9: ncclCommInitRankConfig: invalid argument (as told",
             [](int rank) -> int {
               setenv("HETCCL_TIMEOUT", "5", 1);
               if (rank == 1) STUB(stub_fail)("ncclCommInitRankConfig", 4);
               return hetcclMemorySimCuda;
             }},
        Case{"JoinHangs", "nccl 2.28.9: joining takes too long",
             [](int) -> int {
               setenv("HETCCL_TIMEOUT", "5", 1);
               STUB(stub_hang)();
               return hetcclMemorySimCuda;
             }},
        Case{"FirstCallFails", "rank 0: nccl 2.28.9: ncclCommGetAsyncError: stub error",
             [](int) -> int {
               STUB(stub_fail_later)(1);
               return hetcclMemorySimCuda;
             }},
        Case{"WrongSum", "rank 2: nccl 2.28.9: a sum of integers came out wrong",
             [](int rank) -> int {
               if (rank == 2) STUB(stub_corrupt)();
               return hetcclMemorySimCuda;
             }}),
    [](const auto& info) { return std::string(info.param.name); });

// Rank 0's setting holds, as of all settings that must agree.
TEST(Decisions, DifferentSettings) {
  run_ranks(2, [](int rank, Board& board, Findings& found) {
    setenv("HETCCL_DELEGATE", rank == 0 ? "off" : "require", 1);
    setenv("HETCCL_DEBUG", "none", 1);
    hetcclComm_t comm = create(rank, 2, board);
    found.equal(delegation_of(comm)["reason"], "HETCCL_DELEGATE is off", "reason");
    found.ok(hetcclCommDestroy(comm));
  });
}

// Each communicator decides for its own ranks.
TEST(Decisions, Split) {
  run_ranks(3, [](int rank, Board& board, Findings& found) {
    hetcclComm_t comm = create(rank, 3, board), part = nullptr;
    found.ok(hetcclCommSplit(comm, rank == 2 ? 1 : 0, rank, &part, nullptr));
    const nlohmann::json delegation = delegation_of(part);
    found.equal(delegation["to"], rank == 2 ? "" : "nccl", "delegated to");
    found.equal(delegation["reason"], rank == 2 ? "there is one rank" : "nccl 2.28.9", "reason");
    const int64_t one = 1;
    int64_t sum = 0;
    for (hetcclComm_t c : {part, comm}) {
      found.ok(hetcclAllReduce(&one, &sum, 1, hetcclInt64, hetcclSum, c, nullptr));
      const int ranks = c == comm ? 3 : rank == 2 ? 1 : 2;
      found.equal(std::to_string(sum), std::to_string(ranks), "sum");
    }
    found.ok(hetcclCommDestroy(part));
    found.ok(hetcclCommDestroy(comm));
  });
}

}  // namespace
}  // namespace hetccl::test

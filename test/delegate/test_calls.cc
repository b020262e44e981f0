// Which calls are delegated, what the vendor's library is asked for, and what comes of it: with
// buffers on the device, elsewhere and in place, and in streams.
#include <cstring>
#include <numeric>

#include "test/delegate/ranks.h"

namespace hetccl::test {
namespace {

constexpr int kRanks = 3;

// What the stand-in was asked since the last time, without what creation asked.
class Log {
 public:
  Log() : calls_(STUB(stub_calls)) { (void)news(); }
  std::string news() {
    const std::string all = calls_();
    const std::string fresh = all.substr(seen_);
    seen_ = all.size();
    return fresh;
  }

 private:
  const char* (*calls_)();
  size_t seen_ = 0;
};

template <class T>
std::vector<T> values(int rank, size_t count) {
  std::vector<T> v(count);
  for (size_t i = 0; i < count; ++i) {
    v[i] = static_cast<T>((i * 7 + static_cast<size_t>(rank) * 5 + 1) % 11);
  }
  return v;
}

template <class T>
T combined(hetcclRedOp_t op, size_t index, size_t count) {
  T sum = values<T>(0, count)[index];
  for (int r = 1; r < kRanks; ++r) {
    const T x = values<T>(r, count)[index];
    if (op == hetcclSum || op == hetcclAvg) sum = static_cast<T>(sum + x);
    if (op == hetcclProd) sum = static_cast<T>(sum * x);
    if (op == hetcclMin) sum = std::min(sum, x);
    if (op == hetcclMax) sum = std::max(sum, x);
  }
  return op == hetcclAvg ? static_cast<T>(sum / static_cast<T>(kRanks)) : sum;
}

std::string text(const char* label, int64_t value) {
  return std::string(" ") + label + "=" + std::to_string(value);
}

// The three reductions of one type and operator: what was asked, and the values.
template <class T>
void reductions(hetcclComm_t comm, int rank, hetcclDataType_t type, hetcclRedOp_t op, int send_kind,
                int recv_kind, Log* log, Findings* found) {
  constexpr size_t kCount = 50000;  // several pieces of the stand-in's
  const std::vector<T> mine = values<T>(rank, kCount);
  const std::string what = text("type", type) + text("op", op);
  Buffer<T> send(send_kind, mine), recv(recv_kind, std::vector<T>(kCount, T(99)));
  found->ok(hetcclAllReduce(send.data(), recv.data(), kCount, type, op, comm, nullptr));
  found->equal(log->news(), "ncclAllReduce count=50000" + what + "\n", "asked");
  std::vector<T> got = recv.get();
  const std::vector<T> first = values<T>(0, kCount);
  for (size_t i = 0; i < 11; ++i) {  // values repeat after that
    found->check(got[i] == combined<T>(op, i, kCount), "allreduce" + what);
  }
  for (size_t i = 11; i < kCount; ++i) found->check(got[i] == got[i - 11], "allreduce's tail");

  recv.set(std::vector<T>(kCount, T(99)));
  found->ok(hetcclReduce(send.data(), rank == 1 ? recv.data() : nullptr, kCount, type, op, 1, comm,
                         nullptr));
  found->equal(log->news(), "ncclReduce count=50000" + what + " root=1\n", "asked");
  const std::vector<T> at_root = recv.get();
  found->check(at_root == (rank == 1 ? got : std::vector<T>(kCount, T(99))), "reduce" + what);

  constexpr size_t kBlock = 10000;
  recv.set(std::vector<T>(kCount, T(99)));
  found->ok(hetcclReduceScatter(send.data(), recv.data(), kBlock, type, op, comm, nullptr));
  found->equal(log->news(), "ncclReduceScatter count=10000" + what + "\n", "asked");
  std::vector<T> want(kCount, T(99));
  std::copy_n(got.begin() + static_cast<int64_t>(kBlock) * rank, kBlock, want.begin());
  found->check(recv.get() == want, "reducescatter" + what);
  found->check(send.get() == mine, "sendbuff was written");
}

constexpr hetcclRedOp_t kExact[] = {hetcclSum, hetcclProd, hetcclMin, hetcclMax};

void integers(hetcclComm_t comm, int rank, int send_kind, int recv_kind, Findings* found) {
  Log log;
  for (hetcclRedOp_t op : kExact) {
    reductions<int8_t>(comm, rank, hetcclInt8, op, send_kind, recv_kind, &log, found);
    reductions<uint8_t>(comm, rank, hetcclUint8, op, send_kind, recv_kind, &log, found);
    reductions<int32_t>(comm, rank, hetcclInt32, op, send_kind, recv_kind, &log, found);
    reductions<uint32_t>(comm, rank, hetcclUint32, op, send_kind, recv_kind, &log, found);
    reductions<int64_t>(comm, rank, hetcclInt64, op, send_kind, recv_kind, &log, found);
    reductions<uint64_t>(comm, rank, hetcclUint64, op, send_kind, recv_kind, &log, found);
  }
}

// Moves of one type: broadcast, all-gather, all-to-all, each apart and in place.
void moves(hetcclComm_t comm, int rank, hetcclDataType_t type, size_t width, int send_kind,
           int recv_kind, Log* log, Findings* found) {
  constexpr size_t kCount = 3001;
  const size_t block = kCount * width, all = block * kRanks;
  const auto bytes = [&](int r, size_t n) { return values<uint8_t>(r, n); };
  const std::string count = text("count", static_cast<int64_t>(block)) + " type=1";
  {
    Buffer<uint8_t> send(send_kind, bytes(rank, block));
    Buffer<uint8_t> recv(recv_kind, std::vector<uint8_t>(block, 77));
    found->ok(hetcclBroadcast(rank == 2 ? send.data() : nullptr, recv.data(), kCount, type, 2, comm,
                              nullptr));
    found->equal(log->news(), "ncclBroadcast" + count + " root=2\n", "asked");
    found->check(recv.get() == bytes(2, block), "broadcast");
    recv.set(bytes(rank, block));
    found->ok(hetcclBroadcast(recv.data(), recv.data(), kCount, type, 0, comm, nullptr));
    found->check(recv.get() == bytes(0, block), "broadcast in place");
    (void)log->news();
  }
  std::vector<uint8_t> gathered, exchanged;
  for (int r = 0; r < kRanks; ++r) {
    const auto whole = bytes(r, all);
    gathered.insert(gathered.end(), whole.begin(), whole.begin() + static_cast<int64_t>(block));
    const auto at = whole.begin() + static_cast<int64_t>(block) * rank;
    exchanged.insert(exchanged.end(), at, at + static_cast<int64_t>(block));
  }
  Buffer<uint8_t> send(send_kind, bytes(rank, all));
  Buffer<uint8_t> recv(recv_kind, std::vector<uint8_t>(all, 77));
  found->ok(hetcclAllGather(send.data(), recv.data(), kCount, type, comm, nullptr));
  found->equal(log->news(), "ncclAllGather" + count + "\n", "asked");
  found->check(recv.get() == gathered, "allgather");
  std::vector<uint8_t> own(all, 77);
  const size_t at = block * static_cast<size_t>(rank);
  std::copy_n(bytes(rank, all).begin(), block, own.begin() + static_cast<int64_t>(at));
  recv.set(own);
  found->ok(hetcclAllGather(recv.data() + at, recv.data(), kCount, type, comm, nullptr));
  found->check(recv.get() == gathered, "allgather in place");
  (void)log->news();

  std::string asked;
  for (int r = 0; r < kRanks; ++r) {
    asked += "ncclSend" + count + text("peer", r) + "\nncclRecv" + count + text("peer", r) + "\n";
  }
  asked += "ncclGroupEnd sends=3 receives=3\n";
  found->ok(hetcclAllToAll(send.data(), recv.data(), kCount, type, comm, nullptr));
  found->equal(log->news(), asked, "asked");
  found->check(recv.get() == exchanged, "alltoall");
  recv.set(bytes(rank, all));
  found->ok(hetcclAllToAll(recv.data(), recv.data(), kCount, type, comm, nullptr));
  found->equal(log->news(), asked, "asked");
  found->check(recv.get() == exchanged, "alltoall in place");
}

void all_moves(hetcclComm_t comm, int rank, int send_kind, int recv_kind, Findings* found) {
  Log log;
  moves(comm, rank, hetcclInt8, 1, send_kind, recv_kind, &log, found);
  moves(comm, rank, hetcclBool, 1, send_kind, recv_kind, &log, found);
  moves(comm, rank, hetcclFloat16, 2, send_kind, recv_kind, &log, found);
  moves(comm, rank, hetcclFloat32, 4, send_kind, recv_kind, &log, found);
  moves(comm, rank, hetcclComplex128, 16, send_kind, recv_kind, &log, found);
  moves(comm, rank, hetcclDoubleInt, 16, send_kind, recv_kind, &log, found);
}

TEST(DelegatedCalls, IntegersOnTheDevice) {
  run_ranks(kRanks, [](int rank, Board& board, Findings& found) {
    hetcclComm_t comm = create(rank, kRanks, board);
    integers(comm, rank, hetcclMemorySimCuda, hetcclMemorySimCuda, &found);
    found.ok(hetcclCommDestroy(comm));
  });
}

// Of the same vendor, so that one copy gets there.
TEST(DelegatedCalls, BuffersOnAnotherDevice) {
  run_ranks(kRanks, [](int rank, Board& board, Findings& found) {
    hetcclComm_t comm = create(rank, kRanks, board);
    own_device = 3 - rank;
    all_moves(comm, rank, hetcclMemorySimCuda, hetcclMemorySimCuda, &found);
    integers(comm, rank, hetcclMemorySimCuda, hetcclMemorySimCuda, &found);
    found.ok(hetcclCommDestroy(comm));
  });
}

TEST(DelegatedCalls, MovesOnTheDevice) {
  run_ranks(kRanks, [](int rank, Board& board, Findings& found) {
    hetcclComm_t comm = create(rank, kRanks, board);
    all_moves(comm, rank, hetcclMemorySimCuda, hetcclMemorySimCuda, &found);
    found.ok(hetcclCommDestroy(comm));
  });
}

// Where a rank's buffers are is its own affair: host memory, and memory of another vendor.
TEST(DelegatedCalls, BuffersElsewhere) {
  run_ranks(kRanks, [](int rank, Board& board, Findings& found) {
    hetcclComm_t comm = create(rank, kRanks, board);
    const int kinds[] = {hetcclMemoryHost, hetcclMemorySimHip, hetcclMemorySimCuda};
    for (int shift = 0; shift < 3; ++shift) {
      const int send = kinds[(rank + shift) % 3], recv = kinds[(rank * 2 + shift) % 3];
      all_moves(comm, rank, send, recv, &found);
      integers(comm, rank, send, recv, &found);
    }
    found.ok(hetcclCommDestroy(comm));
  });
}

template <class T>
void floats(hetcclComm_t comm, int rank, hetcclDataType_t type, Log* log, Findings* found) {
  for (hetcclRedOp_t op : {hetcclSum, hetcclProd, hetcclMin, hetcclMax, hetcclAvg}) {
    reductions<T>(comm, rank, type, op, hetcclMemorySimCuda, hetcclMemorySimCuda, log, found);
  }
}

TEST(DelegatedCalls, FloatsWhereRequired) {
  run_ranks(kRanks, [](int rank, Board& board, Findings& found) {
    setenv("HETCCL_DELEGATE", "require", 1);
    hetcclComm_t comm = create(rank, kRanks, board);
    Log log;
    floats<float>(comm, rank, hetcclFloat32, &log, &found);
    floats<double>(comm, rank, hetcclFloat64, &log, &found);
    // 1 + 2 + 4 as the narrow types have them.
    for (auto [type, one, seven] :
         {std::tuple(hetcclFloat16, 0x3c00, 0x4700), std::tuple(hetcclBfloat16, 0x3f80, 0x40e0)}) {
      Buffer<uint16_t> x(hetcclMemorySimCuda, {static_cast<uint16_t>(one)});
      const uint16_t two = 0x4000;  // in both
      const uint16_t four = static_cast<uint16_t>(type == hetcclFloat16 ? 0x4400 : 0x4080);
      if (rank > 0) x.set({rank == 1 ? two : four});
      found.ok(hetcclAllReduce(x.data(), x.data(), 1, type, hetcclSum, comm, nullptr));
      found.equal(log.news(), "ncclAllReduce count=1" + text("type", type) + " op=0\n", "asked");
      found.check(x.get()[0] == seven, "sum of a narrow float");
    }
    found.ok(hetcclCommDestroy(comm));
  });
}

// One call each of what stays ours; the library is asked nothing.
void stay_here(hetcclComm_t comm, bool with_floats, Findings* found) {
  Log log;
  Buffer<double> x(hetcclMemorySimCuda, std::vector<double>(100, 1));
  Buffer<double> y(hetcclMemorySimCuda, std::vector<double>(300, 0));
  const size_t counts[] = {10, 20, 30}, displacements[] = {0, 10, 30};
  int rank = 0;
  found->ok(hetcclCommUserRank(comm, &rank));
  const auto reduce = [&](hetcclDataType_t type, hetcclRedOp_t op, size_t count) {
    found->ok(hetcclAllReduce(x.data(), y.data(), count, type, op, comm, nullptr));
    found->equal(log.news(), "", "asked for" + text("type", type) + text("op", op));
  };
  if (with_floats) {
    reduce(hetcclFloat32, hetcclSum, 10);
    reduce(hetcclFloat64, hetcclMin, 10);
    reduce(hetcclBfloat16, hetcclProd, 10);
  }
  reduce(hetcclInt32, hetcclAvg, 10);
  reduce(hetcclInt16, hetcclSum, 10);
  reduce(hetcclFloat8e4m3, hetcclSum, 10);
  reduce(hetcclComplex64, hetcclSum, 10);
  reduce(hetcclBool, hetcclMax, 10);
  reduce(hetcclInt32, hetcclBAnd, 10);
  reduce(hetcclDoubleInt, hetcclMinLoc, 10);
  reduce(hetcclInt32, hetcclSum, 0);
  found->ok(hetcclAllGatherv(x.data(), counts[rank], y.data(), counts, displacements, hetcclFloat64,
                             comm, nullptr));
  found->ok(
      hetcclReduceScatterv(y.data(), x.data(), counts, hetcclInt64, hetcclSum, comm, nullptr));
  found->ok(hetcclGather(x.data(), y.data(), 10, hetcclInt64, 0, comm, nullptr));
  found->ok(hetcclScan(x.data(), y.data(), 10, hetcclInt64, hetcclSum, comm, nullptr));
  found->ok(hetcclBarrier(comm, nullptr));
  found->equal(log.news(), "", "asked for v-forms and others");
}

TEST(DelegatedCalls, OtherNumbersStayHere) {
  run_ranks(kRanks, [](int rank, Board& board, Findings& found) {
    hetcclComm_t comm = create(rank, kRanks, board);
    stay_here(comm, true, &found);
    found.ok(hetcclCommDestroy(comm));
  });
}

TEST(DelegatedCalls, WhatTheLibraryLacksStaysHere) {
  run_ranks(kRanks, [](int rank, Board& board, Findings& found) {
    setenv("HETCCL_DELEGATE", "require", 1);
    hetcclComm_t comm = create(rank, kRanks, board);
    stay_here(comm, false, &found);
    found.ok(hetcclCommDestroy(comm));
  });
}

TEST(DelegatedCalls, ReproducibleSumsStayHere) {
  run_ranks(kRanks, [](int rank, Board& board, Findings& found) {
    setenv("HETCCL_DELEGATE", "require", 1);
    setenv("HETCCL_REPRODUCIBLE", "1", 1);
    hetcclComm_t comm = create(rank, kRanks, board);
    stay_here(comm, true, &found);
    integers(comm, rank, hetcclMemorySimCuda, hetcclMemorySimCuda, &found);
    found.ok(hetcclCommDestroy(comm));
  });
}

TEST(DelegatedCalls, ForcedAlgorithmsStayHere) {
  run_ranks(kRanks, [](int rank, Board& board, Findings& found) {
    setenv("HETCCL_ALGO", "allreduce:ring", 1);
    hetcclComm_t comm = create(rank, kRanks, board);
    Log log;
    Buffer<int32_t> x(hetcclMemorySimCuda, {rank});
    found.ok(hetcclAllReduce(x.data(), x.data(), 1, hetcclInt32, hetcclSum, comm, nullptr));
    found.equal(log.news(), "", "asked");
    found.equal(hetcclInternalLastAlgorithm(comm), "ring", "algorithm");
    found.ok(hetcclBroadcast(x.data(), x.data(), 1, hetcclInt32, 1, comm, nullptr));
    found.equal(hetcclInternalLastAlgorithm(comm), "nccl", "algorithm");
    found.check(x.get()[0] == 3, "sum");
    found.ok(hetcclCommDestroy(comm));
  });
}

// Delegated calls and others of one communicator, in a stream of either kind: in the order made.
TEST(DelegatedCalls, InStreams) {
  run_ranks(kRanks, [](int rank, Board& board, Findings& found) {
    hetcclComm_t comm = create(rank, kRanks, board);
    const auto kind = hetcclMemorySimCuda;
    const int device = own_device;
    constexpr size_t kCount = 20000;
    for (bool native : {false, true}) {
      hetcclStream_t stream = nullptr;
      found.ok(native ? hetcclInternalStreamCreate(kind, device, &stream)
                      : hetcclStreamCreate(&stream));
      Buffer<int32_t> x(kind, std::vector<int32_t>(kCount, 1), device);
      void* out = nullptr;
      found.ok(hetcclInternalHostAlloc(kind, device, kCount * sizeof(int32_t), &out));
      for (int k = 0; k < 6; ++k) {  // the odd ones are of ours
        const hetcclDataType_t type = k % 2 == 0 ? hetcclInt32 : hetcclInt16;
        const size_t count = k % 2 == 0 ? kCount : 2 * kCount;
        found.ok(hetcclAllReduce(x.data(), x.data(), count, type, hetcclSum, comm, stream));
      }
      if (native) {
        found.ok(hetcclInternalStreamCopy(kind, device, stream, out, x.data(),
                                          kCount * sizeof(int32_t)));
        found.ok(hetcclInternalStreamSynchronize(kind, device, stream));
        found.ok(hetcclInternalStreamDestroy(kind, device, stream));
      } else {
        found.ok(hetcclStreamDestroy(stream));
        std::memcpy(out, x.get().data(), kCount * sizeof(int32_t));
      }
      const auto* result = static_cast<const int32_t*>(out);
      for (size_t i = 0; i < kCount; ++i) found.check(result[i] == 729, "3 to the 6th");
      found.ok(hetcclInternalHostFree(kind, device, out));
    }
    found.ok(hetcclCommDestroy(comm));
  });
}

// The ranks meet by the network where they share no memory.
TEST(DelegatedCalls, AcrossNodes) {
  run_ranks(kRanks, [](int rank, Board& board, Findings& found) {
    setenv("HETCCL_NODE", rank == 1 ? "one" : "other", 1);
    setenv("HETCCL_PATH", "staged", 1);  // delegated calls need no paths between devices
    hetcclComm_t comm = create(rank, kRanks, board);
    Log log;
    reductions<int32_t>(comm, rank, hetcclInt32, hetcclSum, hetcclMemorySimCuda,
                        hetcclMemorySimCuda, &log, &found);
    moves(comm, rank, hetcclFloat64, 8, hetcclMemorySimCuda, hetcclMemoryHost, &log, &found);
    found.ok(hetcclCommDestroy(comm));
  });
}

// Two communicators in opposite orders on two ranks: nothing of the library's waits on a device for
// a rank that has not come.
TEST(DelegatedCalls, TwoCommunicatorsInOppositeOrders) {
  run_ranks(2, [](int rank, Board& board, Findings& found) {
    hetcclComm_t comm[2] = {create(rank, 2, board), nullptr};
    found.ok(hetcclCommDup(comm[0], &comm[1]));
    hetcclStream_t stream[2];
    Buffer<int32_t> x(hetcclMemorySimCuda, {1}), y(hetcclMemorySimCuda, {2});
    for (auto& s : stream)
      found.ok(hetcclInternalStreamCreate(hetcclMemorySimCuda, own_device, &s));
    for (int k = 0; k < 20; ++k) {
      const int first = (k + rank) % 2;
      for (int c : {first, 1 - first}) {
        int32_t* const data = c == 0 ? x.data() : y.data();
        found.ok(hetcclAllReduce(data, data, 1, hetcclInt32, hetcclSum, comm[c], stream[c]));
      }
    }
    for (auto s : stream) {
      found.ok(hetcclInternalStreamSynchronize(hetcclMemorySimCuda, own_device, s));
      found.ok(hetcclInternalStreamDestroy(hetcclMemorySimCuda, own_device, s));
    }
    found.check(x.get()[0] == 1 << 20 && y.get()[0] == 2 << 20, "sums");
    for (auto c : comm) found.ok(hetcclCommDestroy(c));
  });
}

}  // namespace
}  // namespace hetccl::test

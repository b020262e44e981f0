// Calls whose counts no rank knows all of (AllToAllv, Gatherv, Scatterv): even, skewed and mostly
// empty, displaced with gaps, in place and not, behind guard pages and from read-only send buffers;
// and what becomes of two sides that name different counts.
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <string>

#include "test/mpi/mpi_test.h"

namespace hetccl::test {
namespace {

// Elements that `from` sends to `to`.
struct Pattern {
  const char* name;
  size_t (*count)(size_t from, size_t to);
};
constexpr Pattern kPatterns[] = {
    {"even", [](size_t, size_t) { return size_t{3}; }},
    {"skewed", [](size_t from, size_t to) { return (from + 1) * (to + 2) % 11; }},
    {"mostly zero",
     [](size_t from, size_t to) { return (3 * from + to) % 5 == 1 ? size_t{9} : 0; }},
    {"to one", [](size_t, size_t to) { return to == 0 ? size_t{5} : 0; }},
    {"zero", [](size_t, size_t) { return size_t{0}; }},
};
constexpr size_t kScales[] = {1, 501, 20011};  // one message, a chunk, several chunks

float element(size_t from, size_t to, size_t i) {
  return static_cast<float>(value(static_cast<int>(from * 31 + to), i));
}

// The blocks of one side: from the last rank's to the first's, with gaps between them.
struct Blocks {
  std::vector<size_t> counts, displacements;
  size_t end = 0;  // elements

  Blocks(size_t ranks, size_t gap, const std::function<size_t(size_t)>& count)
      : counts(ranks), displacements(ranks) {
    for (size_t k = 0; k < ranks; ++k) {
      const size_t r = ranks - 1 - k;
      counts[r] = count(r);
      displacements[r] = end + (k > 0 ? gap : 0);
      end = displacements[r] + counts[r];
    }
  }
  // Index of the block of element i, or -1 in a gap.
  int owner(size_t i) const {
    for (size_t r = 0; r < counts.size(); ++r) {
      if (i >= displacements[r] && i < displacements[r] + counts[r]) return static_cast<int>(r);
    }
    return -1;
  }
};

constexpr float kUntouched = -1;

class VForms : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    setenv("HETCCL_ALGO", GetParam(), 1);
    n = static_cast<size_t>(world_size());
    me = static_cast<size_t>(world_rank());
    ASSERT_EQ(hetcclCommInitMPI(&comm, MPI_COMM_WORLD, nullptr), hetcclSuccess)
        << hetcclGetLastError(nullptr);
    ASSERT_EQ(hetcclStreamCreate(&stream), hetcclSuccess);
  }
  void TearDown() override {
    EXPECT_EQ(hetcclStreamDestroy(stream), hetcclSuccess);
    EXPECT_EQ(hetcclCommDestroy(comm), hetcclSuccess);
    unsetenv("HETCCL_ALGO");
    MPI_Barrier(MPI_COMM_WORLD);
  }

  // Every pattern and scale, with and without a stream.
  void each(const std::function<void(const Pattern&, size_t scale, hetcclStream_t)>& body) {
    for (const Pattern& pattern : kPatterns) {
      for (size_t scale : kScales) {
        for (hetcclStream_t s : {hetcclStream_t{nullptr}, stream}) {
          SCOPED_TRACE(std::string(pattern.name) + " x " + std::to_string(scale) +
                       (s != nullptr ? " stream" : ""));
          body(pattern, scale, s);
        }
      }
    }
  }
  void expect_success(hetcclResult_t result, hetcclStream_t s) {
    EXPECT_EQ(result, hetcclSuccess) << hetcclGetLastError(nullptr);
    if (s != nullptr) {
      EXPECT_EQ(hetcclStreamSynchronize(s), hetcclSuccess);
    }
  }
  static void expect_elements(const float* data, size_t count,
                              const std::function<float(size_t)>& expected) {
    size_t wrong = 0;
    for (size_t i = 0; i < count; ++i) wrong += data[i] != expected(i);
    EXPECT_EQ(wrong, 0u);
  }

  hetcclComm_t comm = nullptr;
  hetcclStream_t stream = nullptr;
  size_t n = 1, me = 0;
};

// Pointers that fault when they are looked at.
size_t* nowhere() { return reinterpret_cast<size_t*>(16); }

TEST_P(VForms, AllToAll) {
  each([&](const Pattern& pattern, size_t scale, hetcclStream_t s) {
    const Blocks out(n, 3, [&](size_t to) { return scale * pattern.count(me, to); });
    const Blocks in(n, 2, [&](size_t from) { return scale * pattern.count(from, me); });
    const auto edge = s != nullptr ? Guarded::Edge::kFront : Guarded::Edge::kBack;
    Guarded send(out.end * 4, edge), recv(in.end * 4, edge);
    auto *sent = static_cast<float*>(send.data()), *received = static_cast<float*>(recv.data());
    for (size_t to = 0; to < n; ++to) {
      for (size_t i = 0; i < out.counts[to]; ++i) {
        sent[out.displacements[to] + i] = element(me, to, i);
      }
    }
    std::fill(received, received + in.end, kUntouched);
    send.read_only();
    expect_success(
        hetcclAllToAllv(out.end == 0 ? nullptr : sent, out.counts.data(), out.displacements.data(),
                        in.end == 0 ? nullptr : received, in.counts.data(), in.displacements.data(),
                        hetcclFloat32, comm, s),
        s);
    expect_elements(received, in.end, [&](size_t i) {
      const int from = in.owner(i);
      if (from < 0) return kUntouched;
      const auto f = static_cast<size_t>(from);
      return element(f, me, i - in.displacements[f]);
    });
  });
}

TEST_P(VForms, AllToAllInPlace) {
  each([&](const Pattern& pattern, size_t scale, hetcclStream_t s) {
    const Blocks both(n, 2, [&](size_t peer) {
      return scale * pattern.count(std::min(me, peer), std::max(me, peer));
    });
    Guarded memory(both.end * 4, Guarded::Edge::kBack);
    auto* data = static_cast<float*>(memory.data());
    std::fill(data, data + both.end, kUntouched);
    for (size_t to = 0; to < n; ++to) {
      for (size_t i = 0; i < both.counts[to]; ++i) {
        data[both.displacements[to] + i] = element(me, to, i);
      }
    }
    const Blocks copy = both;  // equal lists, not the same ones
    expect_success(
        hetcclAllToAllv(data, both.counts.data(), both.displacements.data(), data,
                        copy.counts.data(), copy.displacements.data(), hetcclFloat32, comm, s),
        s);
    expect_elements(data, both.end, [&](size_t i) {
      const int from = both.owner(i);
      if (from < 0) return kUntouched;
      const auto f = static_cast<size_t>(from);
      return element(f, me, i - both.displacements[f]);
    });
  });
}

TEST_P(VForms, Gather) {
  for (const size_t root : {size_t{0}, n / 2}) {
    for (const bool in_place : {false, true}) {
      each([&](const Pattern& pattern, size_t scale, hetcclStream_t s) {
        const bool at_root = me == root;
        const Blocks all(n, 3, [&](size_t from) { return scale * pattern.count(from, root); });
        const size_t mine = all.counts[me];
        Guarded send(mine * 4, Guarded::Edge::kBack);
        Guarded recv(at_root ? all.end * 4 : 0, Guarded::Edge::kBack);
        auto *sent = static_cast<float*>(send.data()), *received = static_cast<float*>(recv.data());
        if (at_root) std::fill(received, received + all.end, kUntouched);
        if (at_root && in_place) sent = received + all.displacements[me];
        for (size_t i = 0; i < mine; ++i) sent[i] = element(me, root, i);
        send.read_only();
        const size_t* counts = at_root ? all.counts.data() : nowhere();
        const size_t* displacements = at_root ? all.displacements.data() : nowhere();
        expect_success(
            hetcclGatherv(sent, mine, at_root ? static_cast<void*>(received) : nowhere(), counts,
                          displacements, hetcclFloat32, static_cast<int>(root), comm, s),
            s);
        if (!at_root) return;
        expect_elements(received, all.end, [&](size_t i) {
          const int from = all.owner(i);
          if (from < 0) return kUntouched;
          const auto f = static_cast<size_t>(from);
          return element(f, root, i - all.displacements[f]);
        });
      });
    }
  }
}

TEST_P(VForms, Scatter) {
  for (const size_t root : {size_t{0}, n - 1}) {
    for (const bool in_place : {false, true}) {
      each([&](const Pattern& pattern, size_t scale, hetcclStream_t s) {
        const bool at_root = me == root, here = at_root && in_place;
        const Blocks all(n, 3, [&](size_t to) { return scale * pattern.count(root, to); });
        const size_t mine = all.counts[me];
        Guarded send(at_root ? all.end * 4 : 0, Guarded::Edge::kBack);
        Guarded recv(mine * 4, Guarded::Edge::kFront);
        auto *sent = static_cast<float*>(send.data()), *received = static_cast<float*>(recv.data());
        for (size_t to = 0; at_root && to < n; ++to) {
          for (size_t i = 0; i < all.counts[to]; ++i) {
            sent[all.displacements[to] + i] = element(root, to, i);
          }
        }
        std::fill(received, received + mine, kUntouched);
        if (here) received = sent + all.displacements[me];
        send.read_only();  // in place its own block is there already
        const size_t* counts = at_root ? all.counts.data() : nowhere();
        const size_t* displacements = at_root ? all.displacements.data() : nowhere();
        expect_success(
            hetcclScatterv(at_root ? static_cast<void*>(sent) : nowhere(), counts, displacements,
                           received, mine, hetcclFloat32, static_cast<int>(root), comm, s),
            s);
        expect_elements(received, mine, [&](size_t i) { return element(root, me, i); });
      });
    }
  }
}

constexpr const char* kChosen = "";
// "bruck" and "binomial" need equal counts, and give way.
constexpr const char* kGiveWay = "alltoall:bruck;gather:binomial;scatter:binomial";

std::string name_of_forced(const ::testing::TestParamInfo<const char*>& info) {
  const std::string forced = info.param;
  if (forced.empty()) return "Chosen";
  return forced == kGiveWay ? "GiveWay" : forced.substr(forced.find(':') + 1);
}
INSTANTIATE_TEST_SUITE_P(Algorithms, VForms,
                         ::testing::Values(kChosen, "alltoall:direct", "alltoall:pairwise",
                                           kGiveWay),
                         name_of_forced);

using VFormSizes = World;

// Blocks at displacements that 32 bits do not hold, in memory of which only they are present.
TEST_F(VFormSizes, DisplacementsBeyond32Bits) {
  const auto n = static_cast<size_t>(ranks), me = static_cast<size_t>(rank);
  constexpr size_t kFar = (size_t{5} << 30) + 7, kCount = 300000;
  const size_t end = kFar + n * kCount;
  const auto reserve = [&] {
    return mmap(nullptr, end, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                -1, 0);
  };
  void *send = reserve(), *recv = reserve();
  ASSERT_NE(send, MAP_FAILED);
  ASSERT_NE(recv, MAP_FAILED);
  auto *sent = static_cast<uint8_t*>(send), *received = static_cast<uint8_t*>(recv);
  std::vector<size_t> counts(n, kCount), displacements(n);
  for (size_t r = 0; r < n; ++r) {
    displacements[r] = r % 2 == 0 ? kFar + r * kCount : r * kCount;
    for (size_t i = 0; i < kCount; ++i) {
      sent[displacements[r] + i] = static_cast<uint8_t>(i * 7 + me * 31 + r * 5);
    }
  }
  EXPECT_EQ(hetcclAllToAllv(sent, counts.data(), displacements.data(), received, counts.data(),
                            displacements.data(), hetcclUint8, comm, nullptr),
            hetcclSuccess)
      << hetcclGetLastError(comm);
  size_t wrong = 0;
  for (size_t r = 0; r < n; ++r) {
    for (size_t i = 0; i < kCount; ++i) {
      wrong += received[displacements[r] + i] != static_cast<uint8_t>(i * 7 + r * 31 + me * 5);
    }
  }
  EXPECT_EQ(wrong, 0u);
  munmap(send, end);
  munmap(recv, end);
}

using VFormArguments = World;

TEST_F(VFormArguments, BadOnesAreRefusedAndNothingIsLost) {
  const auto n = static_cast<size_t>(ranks), me = static_cast<size_t>(rank);
  std::vector<size_t> ones(n, 1), displacements(n);
  for (size_t r = 0; r < n; ++r) displacements[r] = r;
  std::vector<float> in(4 * n, 1.f), out(4 * n, 0.f);
  auto refused = [&](hetcclResult_t result, const std::string& word) {
    EXPECT_EQ(result, hetcclInvalidArgument);
    EXPECT_NE(std::string(hetcclGetLastError(comm)).find(word), std::string::npos)
        << hetcclGetLastError(comm);
  };
  auto all_to_all = [&](const float* s, const size_t* sc, const size_t* sd, float* r,
                        const size_t* rc, const size_t* rd) {
    return hetcclAllToAllv(s, sc, sd, r, rc, rd, hetcclFloat32, comm, nullptr);
  };
  const size_t *one = ones.data(), *at = displacements.data();
  std::vector<size_t> two = ones, far = displacements, same(n, 0);
  two[me] = 2;
  far[n - 1] = size_t{1} << 62;
  refused(all_to_all(in.data(), nullptr, at, out.data(), one, at), "sendcounts is NULL");
  refused(all_to_all(in.data(), one, nullptr, out.data(), one, at), "senddispls is NULL");
  refused(all_to_all(in.data(), one, at, out.data(), nullptr, at), "recvcounts is NULL");
  refused(all_to_all(in.data(), one, at, out.data(), one, nullptr), "recvdispls is NULL");
  refused(all_to_all(in.data(), two.data(), at, out.data(), one, at), "sendcounts[");
  refused(all_to_all(in.data(), one, far.data(), out.data(), one, at), "senddispls[");
  refused(all_to_all(in.data(), one, at, out.data(), one, far.data()), "recvdispls[");
  refused(all_to_all(nullptr, one, at, out.data(), one, at), "sendbuff is NULL");
  if (n > 1) {
    const std::vector<size_t> reversed(displacements.rbegin(), displacements.rend());
    refused(all_to_all(in.data(), one, at, out.data(), one, same.data()), "recvdispls");
    refused(all_to_all(in.data(), one, at, in.data(), one, reversed.data()), "overlap");
    refused(all_to_all(in.data(), one, at, in.data() + n - 1, one, at), "overlap");
  }
  if (rank == 0) {
    auto gather = [&](const float* s, size_t count, float* r, const size_t* c, const size_t* d) {
      return hetcclGatherv(s, count, r, c, d, hetcclFloat32, 0, comm, nullptr);
    };
    auto scatter = [&](const float* s, const size_t* c, const size_t* d, float* r, size_t count) {
      return hetcclScatterv(s, c, d, r, count, hetcclFloat32, 0, comm, nullptr);
    };
    refused(gather(in.data(), 1, out.data(), nullptr, at), "recvcounts is NULL");
    refused(gather(in.data(), 1, out.data(), one, nullptr), "recvdispls is NULL");
    refused(gather(in.data(), 2, out.data(), one, at), "sendcount is 2");
    refused(gather(in.data(), 1, nullptr, one, at), "recvbuff is NULL");
    refused(scatter(in.data(), nullptr, at, out.data(), 1), "sendcounts is NULL");
    refused(scatter(in.data(), one, nullptr, out.data(), 1), "senddispls is NULL");
    refused(scatter(in.data(), one, at, out.data(), 2), "recvcount is 2");
    refused(scatter(nullptr, one, at, out.data(), 1), "sendbuff is NULL");
    if (n > 1) refused(scatter(in.data(), one, at, in.data() + 1, 1), "overlap");
  }
  refused(hetcclGather(in.data(), out.data(), 1, hetcclFloat32, ranks, comm, nullptr), "root");
  refused(
      hetcclScatterv(nullptr, nullptr, nullptr, out.data(), 1, hetcclFloat32, -1, comm, nullptr),
      "root");
  EXPECT_EQ(out, std::vector<float>(4 * n, 0.f));
  // Blocks of one buffer in the gaps of the other are no overlap.
  std::vector<size_t> even(n), odd(n);
  for (size_t r = 0; r < n; ++r) {
    even[r] = 2 * r;
    odd[r] = 2 * r + 1;
  }
  EXPECT_EQ(all_to_all(in.data(), one, even.data(), in.data(), one, odd.data()), hetcclSuccess);
  EXPECT_EQ(in, std::vector<float>(4 * n, 1.f));
}

// Two sides that name different counts: every rank gets the same error, which names both.
struct Difference {
  const char* name;
  size_t sent, due;  // elements
};
class CountDisagreement : public ::testing::TestWithParam<std::tuple<Difference, const char*>> {};

TEST_P(CountDisagreement, IsNamedOnEveryRank) {
  const auto& [difference, what] = GetParam();
  const std::string call = what;
  const auto n = static_cast<size_t>(world_size()), me = static_cast<size_t>(world_rank());
  if (n == 1) GTEST_SKIP() << "one rank cannot disagree";
  const char* const put = std::getenv("HETCCL_NET_PUT");
  const size_t most = std::max(difference.sent, difference.due);
  if (put != nullptr && std::string(put) == "yes" && most > 1000) {
    GTEST_SKIP() << "a put that UCX emulates over TCP may still write when its call has failed";
  }
  hetcclComm_t c = nullptr;
  ASSERT_EQ(hetcclCommInitMPI(&c, MPI_COMM_WORLD, nullptr), hetcclSuccess);
  std::vector<float> in(most + n, 1.f), out(most + n);
  const size_t from = call == "scatter" ? 0 : n - 1, to = call == "scatter" ? n - 1 : 0;
  hetcclResult_t result = hetcclSuccess;
  for (int k = 0; k < 40 && result == hetcclSuccess; ++k) {
    std::vector<size_t> sends(n, 1), receives(n, 1), at(n);
    for (size_t r = 0; r < n; ++r) at[r] = r == n - 1 ? n : r;
    std::vector<size_t> first(n);
    for (size_t r = 1; r < n; ++r) first[r] = most + r;
    if (k == 3 && me == from) sends[to] = difference.sent;
    if (k == 3 && me == to) receives[from] = difference.due;
    if (call == "alltoall") {
      result = hetcclAllToAllv(in.data(), sends.data(), first.data(), out.data(), receives.data(),
                               at.data(), hetcclFloat32, c, nullptr);
    } else if (call == "gather") {
      result = hetcclGatherv(in.data(), sends[0], out.data(), receives.data(), at.data(),
                             hetcclFloat32, 0, c, nullptr);
    } else {
      result = hetcclScatterv(in.data(), sends.data(), at.data(), out.data(), receives[0],
                              hetcclFloat32, 0, c, nullptr);
    }
  }
  EXPECT_EQ(result, hetcclInvalidUsage) << hetcclGetLastError(nullptr);
  const std::string text = hetcclGetLastError(c);
  const std::string both = "rank " + std::to_string(from) + " sends " +
                           std::to_string(difference.sent) + " elements to rank " +
                           std::to_string(to) + ", which expects " + std::to_string(difference.due);
  EXPECT_NE(text.find(both), std::string::npos) << text;
  EXPECT_NE(text.find(call + "v"), std::string::npos) << text;
  EXPECT_EQ(hetcclCommDestroy(c), hetcclSuccess);
  MPI_Barrier(MPI_COMM_WORLD);
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, CountDisagreement,
    ::testing::Combine(::testing::Values(Difference{"OneMore", 2, 1}, Difference{"OneLess", 1, 2},
                                         Difference{"NoneSent", 0, 7}, Difference{"NoneDue", 7, 0},
                                         Difference{"ChunksSent", 500001, 3},
                                         Difference{"ChunksDue", 3, 500001},
                                         Difference{"LastChunk", 500001, 500000}),
                       ::testing::Values("alltoall", "gather", "scatter")),
    [](const auto& info) {
      return std::string(std::get<0>(info.param).name) + "_" + std::get<1>(info.param);
    });

}  // namespace
}  // namespace hetccl::test

// Every rank's own choice of memory for each buffer: all mixtures for up to 3 ranks, random ones
// for more. Device memory is simulated; around each buffer lie guards. Also native streams.
#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <string>

#include "lib/introspect.h"
#include "test/mpi/collective_cases.h"

namespace hetccl::test {
namespace {

using coll::Collective;

constexpr hetcclMemoryKind_t kKinds[] = {hetcclMemoryHost, hetcclMemorySimCuda, hetcclMemorySimHip};
constexpr size_t kGuard = 256;

// Memory of a kind with guards on both sides.
class Buffer {
 public:
  Buffer(hetcclMemoryKind_t kind, size_t bytes) : kind_(kind), image_(bytes + 2 * kGuard, 0xA5) {
    if (kind_ == hetcclMemoryHost) {
      memory_ = image_.data();
    } else {
      EXPECT_EQ(hetcclInternalMemAllocOn(kind_, 0, image_.size(), &memory_), hetcclSuccess)
          << hetcclGetLastError(nullptr);
    }
  }
  ~Buffer() {
    if (kind_ == hetcclMemoryHost) return;
    EXPECT_EQ(hetcclMemFree(memory_), hetcclSuccess);
  }
  Buffer(const Buffer&) = delete;

  float* data() const { return reinterpret_cast<float*>(static_cast<char*>(memory_) + kGuard); }
  // What it holds, as the host sees it; write() and read() carry it to and from the memory.
  float* image() { return reinterpret_cast<float*>(image_.data() + kGuard); }
  void write() { copy(memory_, image_.data()); }
  void read() {
    copy(image_.data(), memory_);
    for (size_t k = 0; k < kGuard; ++k) {
      EXPECT_EQ(image_[k], 0xA5) << "before the buffer";
      EXPECT_EQ(image_[image_.size() - 1 - k], 0xA5) << "behind the buffer";
    }
  }

 private:
  void copy(void* to, const void* from) {
    if (kind_ == hetcclMemoryHost) return;
    EXPECT_EQ(hetcclInternalCopy(to, from, image_.size()), hetcclSuccess);
  }
  const hetcclMemoryKind_t kind_;
  std::vector<unsigned char> image_;
  void* memory_ = nullptr;
};

class Memory : public ::testing::Test, protected CollectiveCases {
 protected:
  void SetUp() override {
    rank = world_rank();
    ranks = world_size();
  }
  void TearDown() override { MPI_Barrier(MPI_COMM_WORLD); }

  void open(hetcclMemoryKind_t device) {
    hetcclConfig_t config = HETCCL_CONFIG_INITIALIZER;
    config.device_kind = device;
    config.device = device == hetcclMemoryHost ? -1 : 0;
    ASSERT_EQ(hetcclCommInitMPI(&comm, MPI_COMM_WORLD, &config), hetcclSuccess)
        << hetcclGetLastError(nullptr);
  }
  void close() { EXPECT_EQ(hetcclCommDestroy(comm), hetcclSuccess); }

  void check(const Shape& shape, const Expected& expected, const Call& run, size_t count) override {
    SCOPED_TRACE("count " + std::to_string(count) + " send " + std::to_string(send_kind) +
                 " recv " + std::to_string(recv_kind));
    ++calls;
    if (in_place) {
      check_in_place(shape, expected, run);
    } else {
      check_apart(shape, expected, run);
    }
  }

  void check_apart(const Shape& shape, const Expected& expected, const Call& run) {
    Buffer send(send_kind, shape.send * 4), recv(recv_kind, shape.recv * 4);
    for (size_t i = 0; i < shape.send; ++i) {
      send.image()[i] = static_cast<float>(value(rank, shape.send_base + i));
    }
    std::fill_n(recv.image(), shape.recv, -1.f);
    send.write();
    recv.write();
    EXPECT_EQ(run(shape.sends ? send.data() : nullptr, recv.data(), nullptr), hetcclSuccess)
        << hetcclGetLastError(nullptr);
    recv.read();
    send.read();
    size_t wrong = 0;
    for (size_t i = 0; i < shape.recv; ++i) {
      const float want = shape.receives ? static_cast<float>(expected(i)) : -1.f;
      wrong += recv.image()[i] != want;
    }
    for (size_t i = 0; i < shape.send; ++i) {
      wrong += send.image()[i] != static_cast<float>(value(rank, shape.send_base + i));
    }
    EXPECT_EQ(wrong, 0u);
  }

  void check_in_place(const Shape& shape, const Expected& expected, const Call& run) {
    const size_t all = std::max(shape.in_place_send + shape.send, shape.in_place_recv + shape.recv);
    Buffer both(recv_kind, all * 4);
    std::fill_n(both.image(), all, -1.f);
    for (size_t i = 0; i < shape.send; ++i) {
      both.image()[shape.in_place_send + i] = static_cast<float>(value(rank, shape.send_base + i));
    }
    const std::vector<float> before(both.image(), both.image() + all);
    both.write();
    EXPECT_EQ(run(both.data() + shape.in_place_send, both.data() + shape.in_place_recv, nullptr),
              hetcclSuccess)
        << hetcclGetLastError(nullptr);
    both.read();
    size_t wrong = 0;
    for (size_t i = 0; i < all; ++i) {
      const bool ours =
          shape.receives && i >= shape.in_place_recv && i < shape.in_place_recv + shape.recv;
      const float want = ours ? static_cast<float>(expected(i - shape.in_place_recv)) : before[i];
      wrong += both.image()[i] != want;
    }
    EXPECT_EQ(wrong, 0u);
  }

  // Mixture `index` of the whole communicator: the same number on all ranks.
  void choose(size_t index) {
    for (int r = 0; r < rank; ++r) index /= 9;
    send_kind = kKinds[index % 3];
    recv_kind = kKinds[index / 3 % 3];
  }

  // At most `most` mixtures: all in order, or random ones.
  void run_mixtures(const std::vector<size_t>& counts, size_t most) {
    size_t all = 1;
    for (int r = 0; r < std::min(ranks, 3); ++r) all *= 9;
    std::mt19937_64 random(20 + static_cast<unsigned>(ranks));
    const bool every = ranks <= 3 && all <= most;
    const size_t mixtures = every ? all : std::min<size_t>(most, 40);
    for (size_t m = 0; m < mixtures && !HasFatalFailure(); ++m) {
      choose(every ? m : random());
      in_place = m % 4 == 3;
      for (int c = 0; c < coll::kCollectives; ++c) {
        const auto collective = static_cast<Collective>(c);
        if (collective == Collective::kBarrier) continue;
        SCOPED_TRACE("mixture " + std::to_string(m) + " collective " +
                     std::string(coll::name_of(collective)));
        run_case(collective, counts[(m + static_cast<size_t>(c)) % counts.size()]);
      }
    }
    EXPECT_GT(calls, mixtures * 9);
  }

  hetcclMemoryKind_t send_kind = hetcclMemoryHost, recv_kind = hetcclMemoryHost;
  bool in_place = false;
  size_t calls = 0;
};

// Small counts are run by the host, large ones by the device.
TEST_F(Memory, EveryMixtureWithoutADeviceOfTheCommunicator) {
  open(hetcclMemoryHost);
  run_mixtures({1, 1000, 30011}, 729);
  close();
}

TEST_F(Memory, EveryMixtureWithDevicesOfBothVendors) {
  open(kKinds[static_cast<size_t>(rank) % 3]);
  run_mixtures({0, 17, 40009}, 100);
  close();
}

TEST_F(Memory, EveryMixtureWithDevicesThatReadEachOther) {
  open(hetcclMemorySimCuda);
  run_mixtures({5, 70001}, 100);
  close();
}

TEST_F(Memory, LargeCallsOnEveryDevice) {
  open(hetcclMemorySimCuda);
  send_kind = recv_kind = hetcclMemorySimCuda;
  for (int c = 0; c < coll::kCollectives; ++c) {
    if (static_cast<Collective>(c) == Collective::kBarrier) continue;
    for (bool placed : {false, true}) {
      in_place = placed;
      run_case(static_cast<Collective>(c), 1500007 / static_cast<size_t>(ranks));
    }
  }
  close();
}

}  // namespace
}  // namespace hetccl::test

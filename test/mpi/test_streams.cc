// Native streams of a (simulated) device, and what callers get for pointers and streams that are
// none.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "lib/introspect.h"
#include "test/mpi/mpi_test.h"

namespace hetccl::test {
namespace {

constexpr hetcclMemoryKind_t kKind = hetcclMemorySimCuda;

class NativeStreams : public ::testing::Test {
 protected:
  void SetUp() override {
    rank = world_rank();
    ranks = world_size();
    hetcclConfig_t config = HETCCL_CONFIG_INITIALIZER;
    config.device_kind = kKind;
    config.device = 0;
    for (hetcclComm_t* c : {&comm, &other}) {
      ASSERT_EQ(hetcclCommInitMPI(c, MPI_COMM_WORLD, &config), hetcclSuccess)
          << hetcclGetLastError(nullptr);
    }
    for (hetcclStream_t* s : {&stream, &second}) {
      ASSERT_EQ(hetcclInternalStreamCreate(kKind, 0, s), hetcclSuccess);
    }
  }
  void TearDown() override {
    for (hetcclStream_t s : {stream, second}) {
      EXPECT_EQ(hetcclInternalStreamDestroy(kKind, 0, s), hetcclSuccess);
    }
    for (void* p : device) EXPECT_EQ(hetcclMemFree(p), hetcclSuccess);
    for (void* p : pinned) EXPECT_EQ(hetcclInternalHostFree(kKind, 0, p), hetcclSuccess);
    for (hetcclComm_t c : {comm, other}) EXPECT_EQ(hetcclCommDestroy(c), hetcclSuccess);
    MPI_Barrier(MPI_COMM_WORLD);
  }

  float* on_device(size_t count) {
    void* p = nullptr;
    EXPECT_EQ(hetcclInternalMemAllocOn(kKind, 0, count * 4, &p), hetcclSuccess);
    device.push_back(p);
    return static_cast<float*>(p);
  }
  float* on_host(size_t count) {
    void* p = nullptr;
    EXPECT_EQ(hetcclInternalHostAlloc(kKind, 0, count * 4, &p), hetcclSuccess);
    pinned.push_back(p);
    return static_cast<float*>(p);
  }
  void copy(hetcclStream_t s, void* to, const void* from, size_t count) {
    EXPECT_EQ(hetcclInternalStreamCopy(kKind, 0, s, to, from, count * 4), hetcclSuccess);
  }
  hetcclResult_t sum(const float* send, float* recv, size_t count, hetcclComm_t c,
                     hetcclStream_t s) {
    return hetcclAllReduce(send, recv, count, hetcclFloat32, hetcclSum, c, s);
  }
  float expected(float of_rank_0) const {
    float total = 0;
    for (int r = 0; r < ranks; ++r) total += of_rank_0 + static_cast<float>(r);
    return total;
  }

  hetcclComm_t comm = nullptr, other = nullptr;
  hetcclStream_t stream = nullptr, second = nullptr;
  std::vector<void*> device, pinned;
  int rank = 0, ranks = 1;
};

// The call waits for the copies before it and the copies after it wait for the call; the host waits
// once, at the end.
TEST_F(NativeStreams, OrderTheCallBetweenWorkBeforeAndAfter) {
  for (const size_t count : {size_t{3}, size_t{5000}, size_t{300001}}) {
    float *in = on_host(count), *out = on_host(count);
    float *a = on_device(count), *b = on_device(count);
    for (int round = 0; round < 5; ++round) {
      const auto first = static_cast<float>(round * 10);
      std::fill_n(in, count, first + static_cast<float>(rank));
      std::fill_n(out, count, -1.f);
      copy(stream, a, in, count);
      EXPECT_EQ(sum(a, b, count, comm, stream), hetcclSuccess) << hetcclGetLastError(nullptr);
      EXPECT_EQ(sum(b, a, count, comm, stream), hetcclSuccess);
      copy(stream, out, a, count);
      EXPECT_EQ(hetcclInternalStreamSynchronize(kKind, 0, stream), hetcclSuccess);
      const float want = expected(first) * static_cast<float>(ranks);
      EXPECT_EQ(std::count(out, out + count, want), static_cast<long>(count));
    }
    hetcclResult_t error = hetcclInternalError;
    EXPECT_EQ(hetcclCommGetAsyncError(comm, &error), hetcclSuccess);
    EXPECT_EQ(error, hetcclSuccess);
  }
}

TEST_F(NativeStreams, LegacyDefaultStreamIsOne) {
  constexpr size_t kCount = 50000;
  float* in = on_host(kCount);
  float* a = on_device(kCount);
  std::fill_n(in, kCount, 1.f + static_cast<float>(rank));
  copy(HETCCL_STREAM_LEGACY, a, in, kCount);
  EXPECT_EQ(sum(a, a, kCount, comm, HETCCL_STREAM_LEGACY), hetcclSuccess);
  copy(HETCCL_STREAM_LEGACY, in, a, kCount);
  EXPECT_EQ(hetcclInternalStreamSynchronize(kKind, 0, HETCCL_STREAM_LEGACY), hetcclSuccess);
  EXPECT_EQ(std::count(in, in + kCount, expected(1)), static_cast<long>(kCount));
}

TEST_F(NativeStreams, TwoCommunicatorsInOppositeOrderDoNotDeadlock) {
  constexpr size_t kCount = 100000;
  float *in = on_host(kCount), *out = on_host(kCount);
  float *a = on_device(kCount), *b = on_device(kCount);
  std::fill_n(in, kCount, static_cast<float>(rank));
  copy(stream, a, in, kCount);
  copy(second, b, in, kCount);
  for (int round = 0; round < 10; ++round) {
    if ((rank + round) % 2 == 0) {
      EXPECT_EQ(sum(a, a, kCount, comm, stream), hetcclSuccess);
      EXPECT_EQ(sum(b, b, kCount, other, second), hetcclSuccess);
    } else {
      EXPECT_EQ(sum(b, b, kCount, other, second), hetcclSuccess);
      EXPECT_EQ(sum(a, a, kCount, comm, stream), hetcclSuccess);
    }
    // Kept small: the mean instead of the sum, which is what the ranks hold already.
    for (float* x : {a, b}) {
      EXPECT_EQ(hetcclAllReduce(x, x, kCount, hetcclFloat32, hetcclAvg, x == a ? comm : other,
                                x == a ? stream : second),
                hetcclSuccess);
    }
    if (round == 0) continue;
    copy(stream, a, in, kCount);
    copy(second, b, in, kCount);
  }
  EXPECT_EQ(sum(a, a, kCount, comm, stream), hetcclSuccess);
  copy(stream, out, a, kCount);
  EXPECT_EQ(hetcclInternalStreamSynchronize(kKind, 0, stream), hetcclSuccess);
  EXPECT_EQ(hetcclInternalStreamSynchronize(kKind, 0, second), hetcclSuccess);
  EXPECT_EQ(std::count(out, out + kCount, expected(0)), static_cast<long>(kCount));
}

TEST_F(NativeStreams, HostBuffersMayGoInThemToo) {
  constexpr size_t kCount = 20000;
  std::vector<float> a(kCount, static_cast<float>(rank)), b(kCount);
  EXPECT_EQ(sum(a.data(), b.data(), kCount, comm, stream), hetcclSuccess);
  EXPECT_EQ(hetcclInternalStreamSynchronize(kKind, 0, stream), hetcclSuccess);
  EXPECT_EQ(std::count(b.begin(), b.end(), expected(0)), static_cast<long>(kCount));
}

TEST_F(NativeStreams, CaptureAndForeignHandlesAreRefusedAndNothingIsLost) {
  constexpr size_t kCount = 1000;
  float* a = on_device(kCount);
  EXPECT_EQ(hetcclInternalSimCapture(stream, 1), hetcclSuccess);
  EXPECT_EQ(sum(a, a, kCount, comm, stream), hetcclInvalidUsage);
  EXPECT_NE(std::string(hetcclGetLastError(comm)).find("captur"), std::string::npos);
  EXPECT_EQ(hetcclInternalSimCapture(stream, 0), hetcclSuccess);

  int garbage = 0;
  EXPECT_EQ(sum(a, a, kCount, comm, &garbage), hetcclInvalidArgument);
  EXPECT_NE(std::string(hetcclGetLastError(comm)), "");
  hetcclStream_t of_device_1 = nullptr;
  EXPECT_EQ(hetcclInternalStreamCreate(kKind, 1, &of_device_1), hetcclSuccess);
  EXPECT_EQ(sum(a, a, kCount, comm, of_device_1), hetcclInvalidArgument);
  EXPECT_EQ(hetcclInternalStreamDestroy(kKind, 1, of_device_1), hetcclSuccess);

  EXPECT_EQ(sum(a, a, kCount, comm, stream), hetcclSuccess) << "the communicator stays usable";
  EXPECT_EQ(hetcclInternalStreamSynchronize(kKind, 0, stream), hetcclSuccess);
}

TEST_F(NativeStreams, FreedBuffersAndRangesBeyondAnAllocationAreRefused) {
  constexpr size_t kCount = 1000;
  float* a = on_device(kCount);
  void* gone = nullptr;
  EXPECT_EQ(hetcclInternalMemAllocOn(kKind, 0, 4096, &gone), hetcclSuccess);
  EXPECT_EQ(hetcclMemFree(gone), hetcclSuccess);
  EXPECT_EQ(sum(static_cast<float*>(gone), a, 100, comm, nullptr), hetcclInvalidArgument);
  EXPECT_EQ(sum(a, static_cast<float*>(gone), 100, comm, stream), hetcclInvalidArgument);
  EXPECT_EQ(hetcclMemFree(gone), hetcclInvalidArgument) << "freed twice";
  // What no vendor knows is host memory, if it is memory at all.
  void* nowhere = reinterpret_cast<void*>(uintptr_t{4096});
  EXPECT_EQ(sum(static_cast<float*>(nowhere), a, 100, comm, nullptr), hetcclInvalidArgument);
  EXPECT_EQ(sum(a + kCount / 2, a + kCount / 2, kCount, comm, nullptr), hetcclInvalidArgument);
  EXPECT_NE(std::string(hetcclGetLastError(comm)).find("4000 bytes"), std::string::npos)
      << hetcclGetLastError(comm);
  // An address that is used again is the new memory.
  for (int round = 0; round < 20; ++round) {
    void* again = nullptr;
    EXPECT_EQ(hetcclInternalMemAllocOn(kKind, 0, 400000, &again), hetcclSuccess);
    std::vector<float> in(100000, static_cast<float>(rank + round)), out(100000);
    EXPECT_EQ(hetcclInternalCopy(again, in.data(), 400000), hetcclSuccess);
    auto* x = static_cast<float*>(again);
    EXPECT_EQ(sum(x, x, 100000, comm, nullptr), hetcclSuccess) << hetcclGetLastError(comm);
    EXPECT_EQ(hetcclInternalCopy(out.data(), again, 400000), hetcclSuccess);
    EXPECT_EQ(std::count(out.begin(), out.end(), expected(static_cast<float>(round))), 100000);
    EXPECT_EQ(hetcclMemFree(again), hetcclSuccess);
    MPI_Barrier(MPI_COMM_WORLD);
  }
}

TEST_F(NativeStreams, TheDeviceIsTheThreadsCurrentOne) {
  EXPECT_EQ(hetcclInternalSimSetDevice(kKind, 1), hetcclSuccess);
  hetcclComm_t found = nullptr;
  EXPECT_EQ(hetcclCommInitMPI(&found, MPI_COMM_WORLD, nullptr), hetcclSuccess);
  EXPECT_NE(std::string(hetcclInternalDescribe(found)).find("sim:cuda:1"), std::string::npos)
      << hetcclInternalDescribe(found);
  EXPECT_EQ(hetcclCommDestroy(found), hetcclSuccess);
  EXPECT_EQ(hetcclInternalSimSetDevice(kKind, 0), hetcclSuccess);
}

TEST(Devices, OnesThatAreNotThereAreRefusedOnAllRanks) {
  hetcclConfig_t config = HETCCL_CONFIG_INITIALIZER;
  config.device_kind = kKind;
  config.device = world_rank() == world_size() - 1 ? 77 : 0;
  hetcclComm_t comm = nullptr;
  EXPECT_EQ(hetcclCommInitMPI(&comm, MPI_COMM_WORLD, &config), hetcclInvalidArgument);
  EXPECT_NE(std::string(hetcclGetLastError(nullptr)).find("77"), std::string::npos)
      << hetcclGetLastError(nullptr);
  config.device = -7;
  EXPECT_EQ(hetcclCommInitMPI(&comm, MPI_COMM_WORLD, &config), hetcclInvalidArgument);
  EXPECT_EQ(comm, nullptr);
}

}  // namespace
}  // namespace hetccl::test

// The source that all GPU back ends share, with a vendor that does not exist: what it keeps, counts
// and reuses, and what it says when the vendor fails. What real vendors do needs their GPUs.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "lib/device/gpu/module.h"
#include "lib/device/gpu/vendor.h"

extern "C" hetccl::device::Backend* hetccl_device_backend(const char* build, std::string* why);

namespace hetccl::device {
namespace {

constexpr Reduction kSum = {hetcclInt32, hetcclSum, 1};

Backend& fake() {
  static Backend* const backend = [] {
    std::string why;
    return hetccl_device_backend(kBuild, &why);
  }();
  return *backend;
}

Accelerator& device(int ordinal = 0) { return **fake().device(ordinal); }

// Each test begins and ends with device 1 as the thread's own, nothing pending and no error left.
class GpuRuntime : public testing::Test {
 protected:
  void SetUp() override {
    fake_state().current = 1;
    fake_state().relaxed = false;
    (void)fakeGetLastError();
  }
  void TearDown() override {
    EXPECT_EQ(fake_state().current, 1);
    EXPECT_FALSE(fake_state().relaxed);
    EXPECT_EQ(fakeGetLastError(), fakeSuccess) << "an error was left to be found by others";
  }
};

TEST_F(GpuRuntime, DescribesItself) {
  EXPECT_EQ(fake().description(), "fake: runtime 13.1, driver 5.2, sm_0");
  EXPECT_EQ(device().description(), "fake:0 Nothing (sm_0)");
  EXPECT_EQ(device(1).identity(), "0000:01:00.0");
  EXPECT_EQ(fake().current_device(), 1);
  EXPECT_EQ(&device(0), &device(0));
  EXPECT_EQ(fake().device(-1).status().code(), hetcclInvalidArgument);
  const auto none = fake().device(2);
  EXPECT_EQ(none.status().code(), hetcclInvalidArgument);
  EXPECT_NE(none.status().message().find("fake:2"), std::string::npos) << none.status().message();
}

TEST_F(GpuRuntime, PeersReachEachOther) {
  (void)device(0);
  (void)device(1);
  EXPECT_EQ(fake_count("DeviceEnablePeerAccess"), 2);
  EXPECT_EQ(fake_count("load_kernels"), 2);
}

TEST_F(GpuRuntime, SaysWhatFailed) {
  fake_fail_next("Malloc", fakeErrorMemoryAllocation);
  const auto memory = device().allocate(12345);
  ASSERT_FALSE(memory.ok());
  EXPECT_EQ(memory.status().code(), hetcclUnhandledDeviceError);
  for (const char* part : {"fake:0", "12345 bytes", "fakeErrorMemoryAllocation", "(2)",
                           "as the test said", "free memory"}) {
    EXPECT_NE(memory.status().message().find(part), std::string::npos)
        << part << " is not in: " << memory.status().message();
  }
  fake_fail_next("Current", fakeErrorIllegalAddress);
  EXPECT_EQ(device().make_queue().status().code(), hetcclUnhandledDeviceError);
  auto queue = device().make_queue();
  ASSERT_TRUE(queue.ok());
  fake_fail_next("StreamQuery", fakeErrorIllegalAddress);
  EXPECT_EQ((*queue)->idle().status().code(), hetcclUnhandledDeviceError);
  fake_fail_next("launch_combine", fakeErrorInvalidValue);
  int value = 1;
  const Source source = {&value, false};
  EXPECT_EQ((*queue)->combine(kSum, {&value, false, true, {&source, 1}, 1}).code(),
            hetcclUnhandledDeviceError);
}

TEST_F(GpuRuntime, KnowsMemory) {
  auto a = device(1).allocate(100), h = device().allocate_host(64);
  ASSERT_TRUE(a.ok() && h.ok());
  const Memory inside = fake().query(static_cast<char*>(*a) + 99);
  EXPECT_EQ(inside.place, Memory::Place::kDevice);
  EXPECT_EQ(inside.ordinal, 1);
  EXPECT_EQ(inside.base, *a);
  EXPECT_EQ(inside.bytes, 100u);
  EXPECT_NE(inside.id, 0u);
  EXPECT_EQ(fake().query(*h).place, Memory::Place::kRegisteredHost);
  EXPECT_TRUE(device(1).free(*a).ok());
  EXPECT_TRUE(device().free_host(*h).ok());
  EXPECT_EQ(fake().query(*a).place, Memory::Place::kUnknown);
  auto nothing = device().allocate(0);
  ASSERT_TRUE(nothing.ok());
  EXPECT_NE(*nothing, nullptr);
  EXPECT_TRUE(device().free(*nothing).ok());
}

TEST_F(GpuRuntime, RunsInOrder) {
  auto queue = device().make_queue();
  ASSERT_TRUE(queue.ok());
  std::array<int, 4> a = {1, 2, 3, 4}, b = {10, 20, 30, 40}, sum = {}, end = {};
  const std::array<Source, 2> sources = {{{a.data(), false}, {b.data(), false}}};
  ASSERT_TRUE((*queue)->combine(kSum, {sum.data(), false, true, sources, 4}).ok());
  ASSERT_TRUE((*queue)->copy(end.data(), sum.data(), sizeof sum).ok());
  EXPECT_EQ(end[0], 0) << "enqueued, not run";
  ASSERT_TRUE((*queue)->synchronize().ok());
  EXPECT_EQ(end, (std::array<int, 4>{11, 22, 33, 44}));
  EXPECT_TRUE(*(*queue)->idle());
}

TEST_F(GpuRuntime, KernelsKeepToTheirBlocks) {
  auto queue = device().make_queue();
  ASSERT_TRUE(queue.ok());
  int value = 1, sum = 0;
  const Source source = {&value, false};
  const Combine what = {&sum, false, true, {&source, 1}, 1};
  for (const int blocks : {3, 1024, 16}) {
    fake().set_max_blocks(blocks);
    ASSERT_TRUE((*queue)->combine(kSum, what).ok());
    EXPECT_EQ(fake_last_blocks(), blocks);
  }
  const int launches = fake_count("launch_combine");
  ASSERT_TRUE((*queue)->combine(kSum, {&sum, false, true, {&source, 1}, 0}).ok());
  EXPECT_EQ(fake_count("launch_combine"), launches) << "there is nothing to do";
  ASSERT_TRUE((*queue)->synchronize().ok());
}

TEST_F(GpuRuntime, EventsOrderQueues) {
  auto first = device(0).make_queue(), second = device(1).make_queue();
  auto event = device(0).make_event();
  ASSERT_TRUE(first.ok() && second.ok() && event.ok());
  EXPECT_TRUE(*device().done(**event)) << "never recorded";
  int a = 5, b = 0, c = 0;
  auto gate = (*first)->hold();
  ASSERT_TRUE(gate.ok()) << gate.status().message();
  ASSERT_TRUE((*first)->copy(&b, &a, sizeof a).ok());
  ASSERT_TRUE((*first)->record(event->get()).ok());
  ASSERT_TRUE((*second)->wait(**event).ok());
  ASSERT_TRUE((*second)->copy(&c, &b, sizeof b).ok());
  EXPECT_FALSE(*(*second)->idle());
  EXPECT_FALSE(*device().done(**event));
  (*gate)->open();
  EXPECT_TRUE(*(*second)->idle());
  EXPECT_TRUE(*device().done(**event));
  EXPECT_EQ(c, 5);
}

// A flag serves its next gate while the stream has not yet noticed that the last one is open.
TEST_F(GpuRuntime, GatesReuseFlags) {
  auto queue = device().make_queue();
  ASSERT_TRUE(queue.ok());
  std::array<int, 6> from = {1, 2, 3, 4, 5, 6}, to = {};
  const int flags = fake_count("make_flags");
  EXPECT_GE(flags, 1) << "made when the device was opened";
  for (size_t i = 0; i < from.size(); ++i) {
    auto gate = (*queue)->hold();
    ASSERT_TRUE(gate.ok());
    ASSERT_TRUE((*queue)->copy(&to[i], &from[i], sizeof(int)).ok());
    if (i % 2 == 0) (*gate)->open();  // the others open as they go
  }
  EXPECT_EQ(fake_count("make_flags"), flags);
  ASSERT_TRUE((*queue)->synchronize().ok());
  EXPECT_EQ(to, from);

  std::vector<std::unique_ptr<Gate>> closed;
  for (int i = 0; i < 5; ++i) closed.push_back(std::move(*(*queue)->hold()));
  for (int i = 4; i >= 0; --i) {
    EXPECT_FALSE(*(*queue)->idle());
    closed[i]->open();
  }
  EXPECT_TRUE(*(*queue)->idle());

  fake_fail_next("wait_flag", fakeErrorInvalidValue);
  EXPECT_EQ((*queue)->hold().status().code(), hetcclUnhandledDeviceError);
  EXPECT_TRUE(*(*queue)->idle());
}

// Two launches that are both in the stream never have the same scratch; later ones do again.
TEST_F(GpuRuntime, ScratchIsReusedOnceFree) {
  auto one = device().make_queue(), two = device().make_queue();
  ASSERT_TRUE(one.ok() && two.ok());
  std::vector<int> inputs(20);
  std::iota(inputs.begin(), inputs.end(), 1);
  std::vector<Source> sources;
  for (const int& i : inputs) sources.push_back({&i, false});
  const int before = fake_count("Malloc");
  std::array<int, 2> sums = {};
  auto gate = (*one)->hold();
  ASSERT_TRUE(gate.ok());
  ASSERT_TRUE((*one)->combine(kSum, {&sums[0], false, true, sources, 1}).ok());
  ASSERT_TRUE((*two)->combine(kSum, {&sums[1], false, true, sources, 1}).ok());
  EXPECT_EQ(fake_count("Malloc") - before, 2);
  (*gate)->open();
  ASSERT_TRUE((*one)->synchronize().ok() && (*two)->synchronize().ok());
  EXPECT_EQ(sums, (std::array<int, 2>{210, 210}));
  for (int k = 0; k < 10; ++k) {
    ASSERT_TRUE((*one)->combine(kSum, {&sums[0], false, true, sources, 1}).ok());
    ASSERT_TRUE((*one)->synchronize().ok());
  }
  EXPECT_EQ(fake_count("Malloc") - before, 2);
}

TEST_F(GpuRuntime, RegistersOnceAndLeavesTheProgramsAlone) {
  std::vector<char> mine(4096), theirs(4096), partly(8192);
  const int on = fake_count("HostRegister"), off = fake_count("HostUnregister");
  ASSERT_TRUE(device(0).register_host(mine.data(), 4096).ok());
  ASSERT_TRUE(device(1).register_host(mine.data(), 4096).ok());
  EXPECT_EQ(device().register_host(mine.data(), 5000).code(), hetcclInvalidArgument);
  EXPECT_EQ(fake_count("HostRegister") - on, 1);
  EXPECT_EQ(fake().query(&mine[4095]).place, Memory::Place::kRegisteredHost);
  ASSERT_TRUE(device(0).unregister_host(mine.data()).ok());
  EXPECT_EQ(fake_count("HostUnregister") - off, 0);
  ASSERT_TRUE(device(0).unregister_host(mine.data()).ok());
  EXPECT_EQ(fake_count("HostUnregister") - off, 1);
  EXPECT_EQ(device().unregister_host(mine.data()).code(), hetcclInvalidArgument);

  ASSERT_EQ(fakeHostRegister(theirs.data(), 4096, 0), fakeSuccess);
  ASSERT_TRUE(device().register_host(theirs.data(), 4096).ok());
  ASSERT_TRUE(device().unregister_host(theirs.data()).ok());
  EXPECT_EQ(fake().query(theirs.data()).place, Memory::Place::kRegisteredHost);
  ASSERT_EQ(fakeHostUnregister(theirs.data()), fakeSuccess);

  ASSERT_EQ(fakeHostRegister(partly.data(), 4096, 0), fakeSuccess);
  EXPECT_EQ(device().register_host(partly.data(), 8192).code(), hetcclUnhandledDeviceError);
  ASSERT_EQ(fakeHostUnregister(partly.data()), fakeSuccess);
  EXPECT_EQ(device().register_host(nullptr, 10).code(), hetcclInvalidArgument);
}

TEST_F(GpuRuntime, KernelsReachRegisteredMemoryWhereItIsMapped) {
  std::array<int, 4> here = {1, 2, 3, 4}, there = {10, 20, 30, 40}, sum = {};
  ASSERT_TRUE(device().register_host(here.data(), sizeof here).ok());
  fake_set_elsewhere(ptrdiff_t{1} << 40);
  ASSERT_TRUE(device().register_host(there.data(), sizeof there).ok());
  fake_set_elsewhere(0);
  auto queue = device().make_queue();
  ASSERT_TRUE(queue.ok());
  const std::array<Source, 2> sources = {{{&here[1], false}, {&there[1], false}}};
  ASSERT_TRUE((*queue)->combine(kSum, {&there[1], false, true, sources, 3}).ok());
  ASSERT_TRUE((*queue)->combine(kSum, {sum.data(), false, true, sources, 3}).ok());
  ASSERT_TRUE((*queue)->synchronize().ok());
  EXPECT_EQ(there, (std::array<int, 4>{10, 22, 33, 44}));
  EXPECT_EQ(sum, (std::array<int, 4>{24, 36, 48, 0}));
  EXPECT_TRUE(device().unregister_host(there.data()).ok());
  EXPECT_TRUE(device().unregister_host(here.data()).ok());
  fake_fail_next("HostGetDevicePointer", fakeErrorInvalidValue);
  EXPECT_EQ(device().register_host(here.data(), sizeof here).code(), hetcclUnhandledDeviceError);
  EXPECT_EQ(fake().query(here.data()).place, Memory::Place::kUnknown);
}

TEST_F(GpuRuntime, AdoptsStreamsOfItsDeviceOnly) {
  auto mine = device(0).make_stream(), theirs = device(1).make_stream();
  ASSERT_TRUE(mine.ok() && theirs.ok());
  auto queue = device(0).adopt(*mine);
  ASSERT_TRUE(queue.ok()) << queue.status().message();
  int a = 3, b = 0;
  ASSERT_TRUE((*queue)->copy(&b, &a, sizeof a).ok());
  ASSERT_TRUE((*queue)->synchronize().ok());
  EXPECT_EQ(b, 3);
  const int destroyed = fake_count("StreamDestroy");
  queue->reset();
  EXPECT_EQ(fake_count("StreamDestroy"), destroyed) << "the stream is the program's";

  const auto other = device(0).adopt(*theirs);
  EXPECT_EQ(other.status().code(), hetcclInvalidArgument);
  EXPECT_NE(other.status().message().find("fake:1"), std::string::npos);
  EXPECT_EQ(device().adopt(nullptr).status().code(), hetcclInvalidArgument);
  EXPECT_EQ(device().adopt(reinterpret_cast<hetcclStream_t>(2)).status().code(),
            hetcclInvalidArgument);
  EXPECT_TRUE(device().adopt(HETCCL_STREAM_LEGACY).ok());
  fake_fail_next("stream_device", fakeErrorInvalidHandle);
  EXPECT_EQ(device().adopt(*mine).status().code(), hetcclInvalidArgument);

  fake_set_capturing(static_cast<fakeStream_t>(*mine), true);
  EXPECT_EQ(device().adopt(*mine).status().code(), hetcclInvalidUsage);
  fake_set_capturing(static_cast<fakeStream_t>(*mine), false);
  fake_fail_next("StreamIsCapturing", fakeErrorStreamCaptureImplicit);
  EXPECT_EQ(device().adopt(HETCCL_STREAM_LEGACY).status().code(), hetcclInvalidUsage);
  EXPECT_TRUE(device(0).destroy_stream(*mine).ok());
  EXPECT_TRUE(device(1).destroy_stream(*theirs).ok());
}

TEST_F(GpuRuntime, OwnQueuesHavePriority) {
  ASSERT_TRUE(device().make_queue().ok());
  EXPECT_EQ(fake_last_priority(), -5);
  auto stream = device().make_stream();  // as a program's
  ASSERT_TRUE(stream.ok());
  EXPECT_EQ(fake_last_priority(), 0);
  EXPECT_TRUE(device().destroy_stream(*stream).ok());
}

TEST_F(GpuRuntime, SharesMemoryWithinTheProcess) {
  auto memory = device(0).allocate(1000);
  ASSERT_TRUE(memory.ok());
  char* base = static_cast<char*>(*memory);
  auto handle = device(0).export_memory(base + 10);
  ASSERT_TRUE(handle.ok()) << handle.status().message();
  auto back = device(1).import_memory(*handle);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(*back, base + 10);
  EXPECT_EQ(fake_count("IpcOpenMemHandle"), 0);
  EXPECT_TRUE(device(1).close_memory(*back).ok());
  EXPECT_EQ(device(1).close_memory(*back).code(), hetcclInvalidArgument);

  EXPECT_EQ(device(1).export_memory(base).status().code(), hetcclInvalidUsage);
  int local = 0;
  EXPECT_EQ(device(0).export_memory(&local).status().code(), hetcclInvalidUsage);
  fake_fail_next("IpcGetMemHandle", fakeErrorInvalidValue);
  EXPECT_EQ(device(0).export_memory(base).status().code(), hetcclInvalidUsage);
  EXPECT_EQ(device(0).import_memory("rubbish").status().code(), hetcclInvalidArgument);
  EXPECT_EQ(device(0).import_memory(handle->substr(1)).status().code(), hetcclInvalidArgument);
  std::string past = *handle;
  past[4 + 3] = 1;  // the offset: 16 MiB more
  EXPECT_EQ(device(0).import_memory(past).status().code(), hetcclInvalidArgument);
  EXPECT_TRUE(device(0).free(base).ok());
}

// What a process that imports sees; returns the number of the first thing that is wrong.
int import_twice(const std::string& at_0, const std::string& at_100, const std::string& other) {
  Accelerator& d = device(1);
  auto a = d.import_memory(at_0), b = d.import_memory(at_100), c = d.import_memory(at_0);
  if (!a.ok() || !b.ok() || !c.ok()) return 1;
  if (*a != *c || *b != static_cast<char*>(*a) + 100) return 2;
  if (fake_count("IpcOpenMemHandle") != 1) return 3;
  auto e = d.import_memory(other);
  if (!e.ok() || fake_count("IpcOpenMemHandle") != 2) return 4;
  if (!d.close_memory(*b).ok() || !d.close_memory(*a).ok()) return 5;
  if (fake_count("IpcCloseMemHandle") != 0) return 6;
  if (!d.close_memory(*c).ok() || fake_count("IpcCloseMemHandle") != 1) return 7;
  if (d.close_memory(*c).ok()) return 8;
  if (!d.close_memory(*e).ok() || fake_count("IpcCloseMemHandle") != 2) return 9;
  auto again = d.import_memory(at_0);
  return again.ok() && fake_count("IpcOpenMemHandle") == 3 ? 0 : 10;
}

TEST_F(GpuRuntime, MapsAnotherProcesssMemoryOnce) {
  auto one = device(0).allocate(1000), two = device(0).allocate(1000);
  ASSERT_TRUE(one.ok() && two.ok());
  const auto at_0 = device(0).export_memory(*one);
  const auto at_100 = device(0).export_memory(static_cast<char*>(*one) + 100);
  const auto other = device(0).export_memory(*two);
  ASSERT_TRUE(at_0.ok() && at_100.ok() && other.ok());
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) _exit(import_twice(*at_0, *at_100, *other));
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_TRUE(device(0).free(*one).ok());
  EXPECT_TRUE(device(0).free(*two).ok());
}

}  // namespace
}  // namespace hetccl::device

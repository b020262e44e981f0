#include "test/device/accelerator_contract.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <set>
#include <thread>

#include "test/device/other_process.h"
#include "test/device/reference.h"

namespace hetccl::device {

Bytes pattern(size_t bytes, unsigned seed) {
  Bytes data(bytes);
  uint32_t state = seed * 2654435761u + 1;
  for (uint8_t& b : data) {
    state = state * 1664525u + 1013904223u;
    b = static_cast<uint8_t>(state >> 24);
  }
  return data;
}

std::string test_name(const testing::TestParamInfo<Kind>& info) {
  std::string name = name_of(info.param);
  std::replace(name.begin(), name.end(), ':', '_');
  return name;
}

void AcceleratorTest::open(Kind kind, int ordinal) {
  const Result<Backend*> found = backend(kind);
  if (!found.ok()) GTEST_SKIP() << found.status().message();
  backend_ = *found;
  const Result<Accelerator*> device = backend_->device(ordinal);
  ASSERT_OK(device);
  device_ = *device;
  queue_ = make_queue();
}

void AcceleratorTest::TearDown() {
  if (device_ == nullptr) return;
  for (void* m : memory_) EXPECT_OK(device_->free(m));
  for (void* m : host_memory_) EXPECT_OK(device_->free_host(m));
}

std::byte* AcceleratorTest::allocate(size_t bytes) {
  const Result<void*> memory = device_->allocate(bytes);
  EXPECT_OK(memory);
  if (!memory.ok()) return nullptr;
  memory_.push_back(*memory);
  return static_cast<std::byte*>(*memory);
}

std::byte* AcceleratorTest::allocate_host(size_t bytes) {
  const Result<void*> memory = device_->allocate_host(bytes);
  EXPECT_OK(memory);
  if (!memory.ok()) return nullptr;
  host_memory_.push_back(*memory);
  return static_cast<std::byte*>(*memory);
}

std::unique_ptr<Queue> AcceleratorTest::make_queue() {
  Result<std::unique_ptr<Queue>> queue = device_->make_queue();
  EXPECT_OK(queue);
  return queue.ok() ? std::move(*queue) : nullptr;
}

std::unique_ptr<Event> AcceleratorTest::make_event() {
  Result<std::unique_ptr<Event>> event = device_->make_event();
  EXPECT_OK(event);
  return event.ok() ? std::move(*event) : nullptr;
}

void AcceleratorTest::upload(void* device, const Bytes& data) {
  EXPECT_OK(queue_->copy(device, data.data(), data.size()));
  EXPECT_OK(queue_->synchronize());
}

Bytes AcceleratorTest::download(const void* device, size_t bytes) {
  Bytes data(bytes, 0xee);
  EXPECT_OK(queue_->copy(data.data(), device, bytes));
  EXPECT_OK(queue_->synchronize());
  return data;
}

bool AcceleratorTest::done(const Event& event) {
  const Result<bool> d = device_->done(event);
  EXPECT_OK(d);
  return d.ok() && *d;
}

bool AcceleratorTest::idle(Queue* queue) {
  const Result<bool> i = queue->idle();
  EXPECT_OK(i);
  return i.ok() && *i;
}

bool AcceleratorTest::becomes_idle(Queue* queue) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (std::chrono::steady_clock::now() < end) {
    if (idle(queue)) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(AcceleratorContract);

namespace {

TEST_P(AcceleratorContract, SaysWhatItIs) {
  EXPECT_EQ(device_->kind(), GetParam());
  EXPECT_EQ(backend_->kind(), GetParam());
  EXPECT_EQ(device_->ordinal(), 0);
  const std::string name = std::string(name_of(GetParam())) + ":0 ";
  EXPECT_EQ(device_->description().substr(0, name.size()), name);
  EXPECT_EQ(backend_->device(-1).status().code(), hetcclInvalidArgument);
  EXPECT_EQ(backend_->device(backend_->devices()).status().code(), hetcclInvalidArgument);
}

TEST_P(AcceleratorContract, AllocationsAreAlignedAndApart) {
  struct Range {
    uintptr_t begin;
    size_t bytes;
  };
  std::vector<Range> ranges;
  for (size_t bytes : {1, 255, 256, 257, 4096, 100'000, 1 << 20}) {
    const Range mine = {reinterpret_cast<uintptr_t>(allocate(bytes)), bytes};
    EXPECT_EQ(mine.begin % 256, 0u);
    for (const Range& r : ranges) {
      EXPECT_TRUE(mine.begin + mine.bytes <= r.begin || r.begin + r.bytes <= mine.begin);
    }
    ranges.push_back(mine);
  }
}

TEST_P(AcceleratorContract, TooMuchMemoryIsAnErrorAndNoMore) {
  const Result<void*> memory = device_->allocate(size_t{1} << 50);
  EXPECT_EQ(memory.status().code(), hetcclUnhandledDeviceError);
  EXPECT_NE(memory.status().message(), "");
  upload(allocate(1000), pattern(1000, 1));
}

TEST_P(AcceleratorContract, CopiesInAllDirections) {
  constexpr size_t kMost = (1 << 20) + 77;
  std::byte *a = allocate(kMost + 16), *b = allocate(kMost + 16),
            *pinned = allocate_host(kMost + 16);
  unsigned seed = 0;
  for (size_t bytes : {size_t{1}, size_t{3}, size_t{255}, size_t{4097}, kMost}) {
    for (size_t shift : {0, 1, 7}) {
      const Bytes plain = pattern(bytes, ++seed), back = pattern(bytes, ++seed);
      Bytes seen(bytes);
      std::memcpy(pinned + shift, plain.data(), bytes);
      ASSERT_OK(queue_->copy(a + shift, pinned + shift, bytes));  // pinned to device
      ASSERT_OK(queue_->copy(b + 2 * shift, a + shift, bytes));   // within the device
      ASSERT_OK(queue_->copy(pinned, b + 2 * shift, bytes));      // to pinned
      ASSERT_OK(queue_->synchronize());
      ASSERT_EQ(std::memcmp(pinned, plain.data(), bytes), 0) << bytes << " bytes, " << shift;
      ASSERT_OK(queue_->copy(a + shift, back.data(), bytes));  // plain to device
      ASSERT_OK(queue_->copy(seen.data(), a + shift, bytes));  // to plain
      ASSERT_OK(queue_->synchronize());
      ASSERT_EQ(seen, back) << bytes << " bytes, shift " << shift;
    }
  }
}

TEST_P(AcceleratorContract, CopiesWriteNothingElse) {
  std::byte* a = allocate(300);
  const Bytes before = pattern(300, 1), part = pattern(101, 2);
  upload(a, before);
  upload(a + 77, part);
  Bytes expected = before;
  std::copy(part.begin(), part.end(), expected.begin() + 77);
  EXPECT_EQ(download(a, 300), expected);
}

TEST_P(AcceleratorContract, NothingToCopyIsNoError) {
  EXPECT_OK(queue_->copy(allocate(1), allocate_host(1), 0));
  EXPECT_OK(queue_->synchronize());
}

TEST_P(AcceleratorContract, AQueueKeepsItsOrder) {
  constexpr size_t kBytes = 300'000;
  std::byte *a = allocate(kBytes), *b = allocate(kBytes);
  std::byte *in = allocate_host(kBytes * 8), *out = allocate_host(kBytes * 8);
  const Bytes data = pattern(kBytes * 8, 3);
  std::memcpy(in, data.data(), data.size());
  for (size_t k = 0; k < 8; ++k) {
    ASSERT_OK(queue_->copy(a, in + k * kBytes, kBytes));
    ASSERT_OK(queue_->copy(b, a, kBytes));
    ASSERT_OK(queue_->copy(out + k * kBytes, b, kBytes));
  }
  ASSERT_OK(queue_->synchronize());
  EXPECT_EQ(std::memcmp(out, data.data(), data.size()), 0);
}

TEST_P(AcceleratorContract, EventsOrderQueues) {
  constexpr size_t kBytes = 200'000;
  const auto other = make_queue();
  const auto written = make_event(), read = make_event();
  std::byte *a = allocate(kBytes), *b = allocate(kBytes);
  std::byte *in = allocate_host(kBytes * 8), *out = allocate_host(kBytes * 8);
  const Bytes data = pattern(kBytes * 8, 4);
  std::memcpy(in, data.data(), data.size());
  for (size_t k = 0; k < 8; ++k) {
    ASSERT_OK(queue_->wait(*read));
    ASSERT_OK(queue_->copy(a, in + k * kBytes, kBytes));
    ASSERT_OK(queue_->copy(b, a, kBytes));
    ASSERT_OK(queue_->record(written.get()));
    ASSERT_OK(other->wait(*written));
    ASSERT_OK(other->copy(out + k * kBytes, b, kBytes));
    ASSERT_OK(other->record(read.get()));
  }
  ASSERT_OK(other->synchronize());
  EXPECT_TRUE(done(*written));
  EXPECT_TRUE(done(*read));
  EXPECT_EQ(std::memcmp(out, data.data(), data.size()), 0);
}

TEST_P(AcceleratorContract, AnEventThatWasNeverRecordedIsNoWait) {
  const auto event = make_event();
  EXPECT_TRUE(done(*event));
  EXPECT_OK(queue_->wait(*event));
  EXPECT_OK(queue_->synchronize());
}

TEST_P(AcceleratorContract, AGateHoldsItsQueueOnly) {
  if (!device_->abilities().gate) {
    EXPECT_EQ(queue_->hold().status().code(), hetcclInvalidUsage);
    GTEST_SKIP() << device_->description() << " cannot hold queues";
  }
  const auto other = make_queue();
  const auto event = make_event();
  std::byte *a = allocate(1000), *host = allocate_host(1000);
  const Bytes before = pattern(1000, 5), after = pattern(1000, 6);
  upload(a, before);
  std::memcpy(host, after.data(), after.size());
  auto gate = queue_->hold();
  ASSERT_OK(gate);
  ASSERT_OK(queue_->copy(a, host, 1000));
  ASSERT_OK(queue_->record(event.get()));
  Bytes seen(1000);
  ASSERT_OK(other->copy(seen.data(), a, 1000));
  ASSERT_OK(other->synchronize());
  EXPECT_EQ(seen, before) << "another queue runs, and the held one does not";
  EXPECT_FALSE(idle(queue_.get()));
  EXPECT_FALSE(done(*event));
  (*gate)->open();
  EXPECT_TRUE(becomes_idle(queue_.get()));
  EXPECT_TRUE(done(*event));
  EXPECT_EQ(download(a, 1000), after);
}

TEST_P(AcceleratorContract, AGateThatIsDestroyedOpens) {
  if (!device_->abilities().gate) GTEST_SKIP() << device_->description() << " cannot hold queues";
  auto first = queue_->hold();
  ASSERT_OK(first);
  auto second = queue_->hold();
  ASSERT_OK(second);
  second->reset();
  EXPECT_FALSE(idle(queue_.get()));
  first->reset();
  EXPECT_TRUE(becomes_idle(queue_.get()));
}

TEST_P(AcceleratorContract, AnotherThreadOpensAGate) {
  if (!device_->abilities().gate) GTEST_SKIP() << device_->description() << " cannot hold queues";
  auto gate = queue_->hold();
  ASSERT_OK(gate);
  std::thread opener([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    (*gate)->open();
  });
  EXPECT_OK(queue_->synchronize());
  EXPECT_TRUE(idle(queue_.get()));
  opener.join();
}

TEST_P(AcceleratorContract, AWaitSeesWhatTheEventHeld) {
  if (!device_->abilities().gate) GTEST_SKIP() << device_->description() << " cannot hold queues";
  const auto waiting = make_queue(), free = make_queue();
  const auto event = make_event();
  auto gate = queue_->hold();
  ASSERT_OK(gate);
  ASSERT_OK(queue_->record(event.get()));
  ASSERT_OK(waiting->wait(*event));
  ASSERT_OK(free->record(event.get()));
  ASSERT_OK(free->synchronize());
  EXPECT_TRUE(done(*event)) << "it holds what was recorded last";
  EXPECT_FALSE(idle(waiting.get())) << "the wait is for what it held then";
  (*gate)->open();
  EXPECT_TRUE(becomes_idle(waiting.get()));
}

struct Case {
  hetcclDataType_t type;
  hetcclRedOp_t op;
};

TEST_P(AcceleratorContract, CombinesAsTheHostDoes) {
  Device* const host = *host_device("portable");
  std::mt19937_64 random(7);
  constexpr size_t kMost = 40'000 * 16;
  constexpr size_t kMostSources = 5;
  std::byte* inputs[kMostSources];
  for (std::byte*& i : inputs) i = allocate(kMost);
  std::byte* output = allocate(kMost);
  for (const Case& c : {Case{hetcclFloat32, hetcclSum},
                        {hetcclBfloat16, hetcclAvg},
                        {hetcclFloat16, hetcclSum},
                        {hetcclFloat8e4m3, hetcclProd},
                        {hetcclInt64, hetcclAvg},
                        {hetcclUint8, hetcclBXor},
                        {hetcclFloat64, hetcclMin},
                        {hetcclComplex64, hetcclProd},
                        {hetcclDoubleInt, hetcclMaxLoc}}) {
    const Reduction reduction = {c.type, c.op, 3};
    const size_t narrow = size_of(c.type), wide = accumulator_size(c.type, c.op);
    for (size_t count : {size_t{1}, size_t{37}, size_t{4099}, size_t{30'000}}) {
      for (size_t n : {size_t{1}, size_t{2}, size_t{3}, kMostSources}) {
        for (bool finalize : {true, false}) {
          std::vector<Bytes> data;
          std::vector<Source> here, there;
          for (size_t k = 0; k < n; ++k) {
            const bool is_wide = k == 1;
            data.push_back(reference::random_data(c.type, c.op, is_wide, count, random));
            upload(inputs[k], data[k]);
            there.push_back({inputs[k], is_wide});
          }
          for (size_t k = 0; k < n; ++k) here.push_back({data[k].data(), there[k].wide});
          Bytes expected(count * (finalize ? narrow : wide));
          host->combine(reduction, {expected.data(), !finalize, finalize, here, count});
          ASSERT_OK(queue_->combine(reduction, {output, !finalize, finalize, there, count}));
          const Bytes seen = download(output, expected.size());
          ASSERT_EQ(reference::difference(reduction, expected, seen.data(), !finalize, !finalize),
                    "")
              << hetccl::name_of(c.type) << " " << hetccl::name_of(c.op) << ", " << n
              << " sources of " << count;
        }
      }
    }
  }
}

TEST_P(AcceleratorContract, CombinesInPlaceAndOnRegisteredHostMemory) {
  constexpr size_t kCount = 5001;
  auto* host = reinterpret_cast<int32_t*>(allocate_host(kCount * 4));
  auto* device = reinterpret_cast<int32_t*>(allocate(kCount * 4));
  std::vector<int32_t> mine(kCount), seen(kCount);
  for (size_t i = 0; i < kCount; ++i) {
    host[i] = static_cast<int32_t>(i);
    mine[i] = static_cast<int32_t>(3 * i);
  }
  ASSERT_OK(queue_->copy(device, mine.data(), kCount * 4));
  const Source sources[] = {{device, false}, {host, false}};
  ASSERT_OK(queue_->combine({hetcclInt32, hetcclSum, 2}, {device, false, true, sources, kCount}));
  ASSERT_OK(queue_->combine({hetcclInt32, hetcclSum, 2}, {host, false, true, sources, kCount}));
  ASSERT_OK(queue_->copy(seen.data(), device, kCount * 4));
  ASSERT_OK(queue_->synchronize());
  for (size_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(seen[i], static_cast<int32_t>(4 * i));
    ASSERT_EQ(host[i], static_cast<int32_t>(5 * i));
  }
}

TEST_P(AcceleratorContract, TellsWhatAPointerIs) {
  std::byte *a = allocate(100'000), *b = allocate(100), *pinned = allocate_host(5000);
  for (const std::byte* p : {a, a + 1, a + 99'999}) {
    const Memory m = backend_->query(p);
    EXPECT_EQ(m.place, Memory::Place::kDevice);
    EXPECT_EQ(m.ordinal, 0);
    if (m.base != nullptr) {
      EXPECT_LE(m.base, static_cast<const void*>(a));
      EXPECT_GE(static_cast<const std::byte*>(m.base) + m.bytes, a + 100'000);
    }
    EXPECT_EQ(m.id, backend_->query(a).id);
  }
  const uint64_t id = backend_->query(a).id;
  EXPECT_TRUE(id == 0 || id != backend_->query(b).id);
  EXPECT_EQ(backend_->query(pinned + 4999).place, Memory::Place::kRegisteredHost);
  const Bytes plain(100);
  EXPECT_EQ(backend_->query(plain.data()).place, Memory::Place::kUnknown);
  EXPECT_EQ(backend_->query(&plain).place, Memory::Place::kUnknown);
  EXPECT_EQ(backend_->query(nullptr).place, Memory::Place::kUnknown);
  Memory m;
  const auto owner = owner_of(a + 5, &m);
  ASSERT_OK(owner);
  EXPECT_EQ(*owner, device_);
  EXPECT_EQ(m.place, Memory::Place::kDevice);
}

TEST_P(AcceleratorContract, AnAddressThatComesBackIsAnotherAllocation) {
  std::set<uint64_t> ids;
  for (int k = 0; k < 30; ++k) {
    const Result<void*> memory = device_->allocate(70'000);
    ASSERT_OK(memory);
    const uint64_t id = backend_->query(*memory).id;
    if (id == 0) GTEST_SKIP() << device_->description() << " does not tell allocations apart";
    EXPECT_TRUE(ids.insert(id).second) << "the id of an earlier allocation";
    upload(*memory, pattern(70'000, 8));
    ASSERT_OK(device_->free(*memory));
  }
}

TEST_P(AcceleratorContract, RegistersHostMemory) {
  std::vector<uint8_t> host(100'000);
  const auto place = [&](size_t at) { return backend_->query(host.data() + at).place; };
  ASSERT_OK(device_->register_host(host.data(), host.size()));
  ASSERT_OK(device_->register_host(host.data(), host.size())) << "registered already";
  EXPECT_EQ(place(0), Memory::Place::kRegisteredHost);
  EXPECT_EQ(place(99'999), Memory::Place::kRegisteredHost);
  std::byte* a = allocate(host.size());
  const Bytes data = pattern(50'001, 9);
  upload(a, data);
  ASSERT_OK(queue_->copy(host.data() + 333, a, data.size()));
  ASSERT_OK(queue_->synchronize());
  EXPECT_EQ(std::memcmp(host.data() + 333, data.data(), data.size()), 0);
  ASSERT_OK(device_->unregister_host(host.data()));
  EXPECT_EQ(place(0), Memory::Place::kRegisteredHost) << "once more registered than unregistered";
  ASSERT_OK(device_->unregister_host(host.data()));
  EXPECT_EQ(place(0), Memory::Place::kUnknown);
  EXPECT_FALSE(device_->unregister_host(host.data()).ok());
}

TEST_P(AcceleratorContract, NativeStreamsShareTheirOrder) {
  if (!device_->abilities().gate) GTEST_SKIP() << device_->description() << " cannot hold queues";
  const auto stream = device_->make_stream(), other = device_->make_stream();
  ASSERT_OK(stream);
  ASSERT_OK(other);
  const auto a = device_->adopt(*stream), b = device_->adopt(*stream), c = device_->adopt(*other);
  ASSERT_OK(a);
  ASSERT_OK(b);
  ASSERT_OK(c);
  const auto event = make_event();
  auto gate = (*a)->hold();
  ASSERT_OK(gate);
  ASSERT_OK((*b)->record(event.get()));
  EXPECT_FALSE(done(*event));
  EXPECT_FALSE(idle(b->get()));
  EXPECT_OK((*c)->synchronize());
  (*gate)->open();
  EXPECT_TRUE(becomes_idle(b->get()));
  EXPECT_TRUE(done(*event));
  EXPECT_OK(device_->destroy_stream(*stream));
  EXPECT_OK(device_->destroy_stream(*other));
}

TEST_P(AcceleratorContract, TheDefaultStreamIsAlwaysThere) {
  const auto queue = device_->adopt(HETCCL_STREAM_LEGACY);
  ASSERT_OK(queue);
  std::byte* a = allocate(1000);
  const Bytes data = pattern(1000, 10);
  ASSERT_OK((*queue)->copy(a, data.data(), data.size()));
  ASSERT_OK((*queue)->synchronize());
  EXPECT_EQ(download(a, 1000), data);
  EXPECT_EQ(device_->adopt(nullptr).status().code(), hetcclInvalidArgument);
}

TEST_P(AcceleratorContract, OtherProcessesImportMemory) {
  if (!device_->abilities().ipc) GTEST_SKIP() << device_->description() << " exports no memory";
  constexpr size_t kBytes = 30'000, kInside = 4099;
  (void)allocate(700);  // so that the next one begins within a page
  std::byte* a = allocate(kBytes + kInside);
  upload(a, Bytes(kBytes + kInside, 1));
  upload(a + kInside, Bytes(kBytes, 2));
  const Result<std::string> handle = device_->export_memory(a + kInside);
  ASSERT_OK(handle);
  OtherProcess other(GetParam());
  ASSERT_EQ(other.ask("import " + to_hex(*handle)), "ok");
  EXPECT_EQ(other.ask("read 30000"), "same 2");
  upload(a + kInside, Bytes(kBytes, 3));
  EXPECT_EQ(other.ask("read 30000"), "same 3");
  EXPECT_EQ(other.ask("write 30000 4"), "ok");
  EXPECT_EQ(download(a + kInside, kBytes), Bytes(kBytes, 4));
  EXPECT_EQ(download(a, kInside), Bytes(kInside, 1));
  EXPECT_EQ(other.ask("close"), "ok");
}

TEST_P(AcceleratorContract, ImportsMemoryOfOtherProcesses) {
  if (!device_->abilities().ipc) GTEST_SKIP() << device_->description() << " exports no memory";
  OtherProcess other(GetParam());
  const std::string handle = from_hex(other.ask("export 50000 7"));
  const Result<void*> memory = device_->import_memory(handle);
  ASSERT_OK(memory);
  const Memory m = backend_->query(*memory);
  EXPECT_EQ(m.place, Memory::Place::kDevice);
  EXPECT_EQ(download(*memory, 50'000), Bytes(50'000, 7));
  std::byte* sum = allocate(50'000);
  const Source sources[] = {{*memory, false}, {*memory, false}};
  ASSERT_OK(queue_->combine({hetcclUint8, hetcclSum, 2}, {sum, false, true, sources, 50'000}));
  EXPECT_EQ(download(sum, 50'000), Bytes(50'000, 14));
  EXPECT_OK(device_->close_memory(*memory));
}

TEST_P(AcceleratorContract, AProcessImportsItsOwnMemory) {
  if (!device_->abilities().ipc) GTEST_SKIP() << device_->description() << " exports no memory";
  std::byte* a = allocate(5000);
  const Bytes data = pattern(4000, 11);
  upload(a + 1000, data);
  const Result<std::string> handle = device_->export_memory(a + 1000);
  ASSERT_OK(handle);
  const Result<void*> first = device_->import_memory(*handle);
  ASSERT_OK(first);
  const Result<void*> second = device_->import_memory(*handle);
  ASSERT_OK(second);
  EXPECT_OK(device_->close_memory(*first));
  EXPECT_EQ(download(*second, 4000), data);
  EXPECT_OK(device_->close_memory(*second));
  EXPECT_EQ(download(a + 1000, 4000), data);
}

TEST_P(AcceleratorContract, WhatIsNoHandleIsRefused) {
  for (const std::string& bad : {std::string(), std::string("hello"), std::string(100, '\xff')}) {
    EXPECT_FALSE(device_->import_memory(bad).ok());
  }
  Bytes plain(100);
  EXPECT_FALSE(device_->export_memory(plain.data()).ok());
  EXPECT_FALSE(device_->close_memory(plain.data()).ok());
  EXPECT_OK(queue_->synchronize());
}

}  // namespace
}  // namespace hetccl::device

// The engines of the simulated device: order, errors, time, and devices that get lost.
#include <algorithm>
#include <chrono>
#include <functional>
#include <random>
#include <thread>

#include "test/device/sim_test.h"

namespace hetccl::device {
namespace {

using Seconds = std::chrono::duration<double>;

TEST_F(SimTest, EventsOrderDevices) {
  const auto other = device(1)->make_queue();
  ASSERT_OK(other);
  const auto event = make_event();
  auto gate = queue_->hold();
  ASSERT_OK(gate);
  ASSERT_OK(queue_->record(event.get()));
  ASSERT_OK((*other)->wait(*event));
  EXPECT_FALSE(idle(other->get()));
  (*gate)->open();
  EXPECT_TRUE(becomes_idle(other->get()));
}

// An error of one queue: it says so from then on, and no other.
TEST_F(SimTest, IllegalAddressesFailTheQueue) {
  std::byte *a = allocate(1000), *host = allocate_host(1000);
  Bytes plain(1000);
  const auto freed = device_->allocate(1000);
  ASSERT_OK(freed);
  ASSERT_OK(device_->free(*freed));
  const Source from_plain[] = {{plain.data(), false}};
  const Source from_freed[] = {{*freed, false}};
  const Reduction sum = {hetcclUint8, hetcclSum, 1};
  using Act = std::function<Status(Queue*)>;
  const std::pair<const char*, Act> acts[] = {
      {"never allocated", [&](Queue* q) { return q->copy(*freed, host, 1000); }},
      {"never allocated", [&](Queue* q) { return q->copy(host, *freed, 1); }},
      {"beyond the end", [&](Queue* q) { return q->copy(a, host, 1001); }},
      {"beyond the end", [&](Queue* q) { return q->copy(a + 1, a, 1000); }},
      {"not registered",
       [&](Queue* q) {
         return q->combine(sum, {a, false, true, from_plain, 1000});
       }},
      {"never allocated",
       [&](Queue* q) {
         return q->combine(sum, {a, false, true, from_freed, 1000});
       }},
  };
  for (const auto& [why, act] : acts) {
    const auto bad = make_queue(), after = make_queue();
    const auto event = make_event();
    const Bytes before = pattern(1000, 4);
    upload(a, before);
    (void)act(bad.get()).ok();  // a copy that waits may say it already
    const Status s = bad->synchronize();
    EXPECT_EQ(s.code(), hetcclUnhandledDeviceError);
    EXPECT_TRUE(mentions(s, "sim:cuda:0") && mentions(s, why)) << s.message();
    EXPECT_FALSE(bad->copy(a, host, 1).ok());
    EXPECT_FALSE(bad->idle().ok());
    EXPECT_FALSE(bad->record(event.get()).ok());
    EXPECT_FALSE(device_->done(*event).ok()) << "work before it has failed";
    EXPECT_FALSE(after->wait(*event).ok() && after->synchronize().ok()) << "what needs it fails";
    EXPECT_EQ(download(a, 1000), before);
  }
}

TEST_F(SimTest, MemoryThatIsFreedBeforeItsTurnIsFound) {
  const auto a = device_->allocate(1000);
  ASSERT_OK(a);
  std::byte* host = allocate_host(1000);
  auto gate = queue_->hold();
  ASSERT_OK(gate);
  ASSERT_OK(queue_->copy(*a, host, 1000));
  ASSERT_OK(device_->free(*a));
  (*gate)->open();
  EXPECT_TRUE(mentions(queue_->synchronize(), "illegal address"));
}

TEST_F(SimTest, GatesCanBeOff) {
  SimOptions o = usual();
  o.gate = false;
  ASSERT_OK(configure_sim(o));
  EXPECT_FALSE(device_->abilities().gate);
  EXPECT_EQ(queue_->hold().status().code(), hetcclInvalidUsage);
  EXPECT_OK(queue_->synchronize()) << "the queue goes on";
}

// Not less than the rate says; on a loaded machine, not more than a great deal longer.
TEST_F(SimTest, WorkTakesItsTime) {
  constexpr size_t kBytes = 2 << 20;
  std::byte *a = allocate(kBytes), *b = allocate(kBytes), *host = allocate_host(kBytes);
  SimOptions o = usual();
  o.rates = {20e6, 40e6, 80e6, 160e6};
  ASSERT_OK(configure_sim(o));
  const Source sources[] = {{a, false}, {b, false}};
  const auto time = [&](const std::function<Status()>& act) {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_OK(act());
    EXPECT_OK(queue_->synchronize());
    return Seconds(std::chrono::steady_clock::now() - begin).count();
  };
  const double in = time([&] { return queue_->copy(a, host, kBytes); });
  const double out = time([&] { return queue_->copy(host, a, kBytes); });
  const double within = time([&] { return queue_->copy(b, a, kBytes); });
  const double sum = time([&] {
    return queue_->combine({hetcclUint8, hetcclSum, 2}, {b, false, true, sources, kBytes});
  });
  const double bytes = kBytes;
  EXPECT_GE(in, bytes / 20e6);
  EXPECT_GE(out, bytes / 40e6);
  EXPECT_GE(within, bytes / 80e6);
  EXPECT_GE(sum, 2 * bytes / 160e6) << "a kernel's bytes are those of its sources";
  EXPECT_LT(in + out + within + sum, 10);
}

// Many pieces in both directions at once: as long as one direction takes, not both.
TEST_F(SimTest, DirectionsOverlapAndPiecesDoNotAddUpDelays) {
  constexpr size_t kPiece = 64 << 10, kPieces = 64;
  std::byte *a = allocate(kPiece), *b = allocate(kPiece), *host = allocate_host(kPiece * 2);
  SimOptions o = usual();
  o.rates = {5e6, 5e6, 0, 0};
  ASSERT_OK(configure_sim(o));
  const auto out = make_queue();
  const auto begin = std::chrono::steady_clock::now();
  for (size_t k = 0; k < kPieces; ++k) {
    ASSERT_OK(queue_->copy(a, host, kPiece));
    ASSERT_OK(out->copy(host + kPiece, b, kPiece));
  }
  const double given = Seconds(std::chrono::steady_clock::now() - begin).count();
  ASSERT_OK(queue_->synchronize());
  ASSERT_OK(out->synchronize());
  const double took = Seconds(std::chrono::steady_clock::now() - begin).count();
  const double one_way = kPiece * kPieces / 5e6;
  EXPECT_GE(took, one_way);
  EXPECT_LT(given, one_way) << "copies do not wait";
  EXPECT_LT(took, 1.7 * one_way);
}

// Chunks through three stages on three queues, with two slots that are used again: as fast as the
// slowest stage, because the stages overlap.
TEST_F(SimTest, APipelineRunsAtTheRateOfItsSlowestStage) {
  constexpr size_t kPiece = 64 << 10, kPieces = 64, kSlots = 2;
  std::byte *in = allocate(kPiece * kSlots), *sum = allocate(kPiece * kSlots);
  std::byte* host = allocate_host(kPiece * 2);
  SimOptions o = usual();
  o.rates = {7e6, 5e6, 0, 10e6};
  o.latency = std::chrono::microseconds(20);
  ASSERT_OK(configure_sim(o));
  const auto copies_in = make_queue(), kernels = make_queue(), copies_out = make_queue();
  std::unique_ptr<Event> filled[kSlots], summed[kSlots], emptied[kSlots];
  for (size_t k = 0; k < kSlots; ++k) {
    filled[k] = make_event();
    summed[k] = make_event();
    emptied[k] = make_event();
  }
  const auto begin = std::chrono::steady_clock::now();
  for (size_t piece = 0; piece < kPieces; ++piece) {
    const size_t k = piece % kSlots, at = k * kPiece;
    ASSERT_OK(copies_in->wait(*summed[k]));
    ASSERT_OK(copies_in->copy(in + at, host, kPiece));
    ASSERT_OK(copies_in->record(filled[k].get()));
    ASSERT_OK(kernels->wait(*filled[k]));
    ASSERT_OK(kernels->wait(*emptied[k]));
    const Source source[] = {{in + at, false}};
    ASSERT_OK(
        kernels->combine({hetcclUint8, hetcclSum, 1}, {sum + at, false, true, source, kPiece}));
    ASSERT_OK(kernels->record(summed[k].get()));
    ASSERT_OK(copies_out->wait(*summed[k]));
    ASSERT_OK(copies_out->copy(host + kPiece, sum + at, kPiece));
    ASSERT_OK(copies_out->record(emptied[k].get()));
  }
  ASSERT_OK(copies_out->synchronize());
  const double took = Seconds(std::chrono::steady_clock::now() - begin).count();
  const double slowest = kPiece * kPieces / 5e6;
  RecordProperty("share_of_slowest_stage", std::to_string(slowest / took));
  EXPECT_GE(took, slowest);
  EXPECT_LT(took, 1.6 * slowest) << "one after the other they take 2.2 times as long";
}

TEST_F(SimTest, LatencyIsOfEachPiece) {
  std::byte *a = allocate(100), *host = allocate_host(100);
  SimOptions o = usual();
  o.latency = std::chrono::milliseconds(2);
  ASSERT_OK(configure_sim(o));
  const auto begin = std::chrono::steady_clock::now();
  for (int k = 0; k < 20; ++k) ASSERT_OK(queue_->copy(a, host, 100));
  ASSERT_OK(queue_->synchronize());
  EXPECT_GE(Seconds(std::chrono::steady_clock::now() - begin).count(), 0.040);
}

TEST_F(SimTest, ADeviceIsLostInACopy) {
  Accelerator* lost = device(2);
  const auto queue = lost->make_queue(), other = lost->make_queue();
  ASSERT_OK(queue);
  ASSERT_OK(other);
  const auto memory = lost->allocate(100);
  ASSERT_OK(memory);
  std::byte* host = allocate_host(100);
  const auto event = lost->make_event();
  ASSERT_OK(event);
  SimOptions o = usual();
  o.fail_copy = 3;
  ASSERT_OK(configure_sim(o));
  const auto waiting = make_queue();
  auto gate = (*other)->hold();
  ASSERT_OK(gate);
  ASSERT_OK((*other)->record(event->get()));
  ASSERT_OK((*queue)->copy(*memory, host, 100));
  ASSERT_OK((*queue)->copy(*memory, host, 100));
  ASSERT_OK((*queue)->synchronize());
  (void)(*queue)->copy(*memory, host, 100).ok();
  const Status s = (*queue)->synchronize();
  EXPECT_EQ(s.code(), hetcclUnhandledDeviceError);
  EXPECT_TRUE(mentions(s, "sim:cuda:2: device lost")) << s.message();
  EXPECT_FALSE((*other)->idle().ok()) << "all of the device";
  EXPECT_FALSE(lost->done(**event).ok());
  EXPECT_FALSE(lost->allocate(1).ok());
  EXPECT_FALSE(lost->make_queue().ok());
  EXPECT_FALSE(lost->adopt(HETCCL_STREAM_LEGACY).ok());
  (*gate)->open();
  EXPECT_FALSE((*other)->synchronize().ok());
  EXPECT_OK(lost->free(*memory));
  upload(allocate(100), pattern(100, 6));  // the others go on
}

TEST_F(SimTest, ADeviceIsLostInAKernel) {
  Accelerator* lost = device(3);
  const auto queue = lost->make_queue();
  ASSERT_OK(queue);
  const auto memory = lost->allocate(100);
  ASSERT_OK(memory);
  SimOptions o = usual();
  o.fail_combine = 1;
  ASSERT_OK(configure_sim(o));
  const Source sources[] = {{*memory, false}};
  (void)(*queue)->combine({hetcclUint8, hetcclSum, 1}, {*memory, false, true, sources, 100}).ok();
  const Status s = (*queue)->synchronize();
  EXPECT_TRUE(mentions(s, "device lost") && mentions(s, "fail_combine")) << s.message();
}

// Random work on many queues with events across them, against the same work done in its order.
TEST_F(SimTest, RandomWorkIsOrderedByItsEvents) {
  constexpr size_t kBuffers = 6, kQueues = 5, kBytes = 5000;
  std::mt19937 random(11);
  std::byte* buffers[kBuffers];
  std::vector<Bytes> model;
  for (size_t k = 0; k < kBuffers; ++k) {
    buffers[k] = allocate(kBytes);
    model.push_back(pattern(kBytes, static_cast<unsigned>(k)));
    upload(buffers[k], model[k]);
  }
  std::vector<std::unique_ptr<Queue>> queues;
  for (size_t q = 0; q < kQueues; ++q) {
    queues.push_back(q % 2 == 0 ? make_queue() : std::move(*device(1)->make_queue()));
  }
  // What was done to a buffer last; every use waits for it.
  std::vector<std::unique_ptr<Event>> last;
  for (size_t k = 0; k < kBuffers; ++k) last.push_back(make_event());
  for (int step = 0; step < 3000; ++step) {
    Queue& queue = *queues[random() % kQueues];
    const size_t to = random() % kBuffers, from = random() % kBuffers;
    if (to == from) continue;
    ASSERT_OK(queue.wait(*last[to]));
    ASSERT_OK(queue.wait(*last[from]));
    if (random() % 2 == 0) {
      ASSERT_OK(queue.copy(buffers[to], buffers[from], kBytes / 2));
      std::copy_n(model[from].begin(), kBytes / 2, model[to].begin());
    } else {
      const Source sources[] = {{buffers[to], false}, {buffers[from], false}};
      ASSERT_OK(
          queue.combine({hetcclUint8, hetcclSum, 2}, {buffers[to], false, true, sources, kBytes}));
      for (size_t i = 0; i < kBytes; ++i) model[to][i] += model[from][i];
    }
    ASSERT_OK(queue.record(last[to].get()));
    ASSERT_OK(queue.record(last[from].get()));
  }
  for (const auto& queue : queues) ASSERT_OK(queue->synchronize());
  for (size_t k = 0; k < kBuffers; ++k) EXPECT_EQ(download(buffers[k], kBytes), model[k]) << k;
}

}  // namespace
}  // namespace hetccl::device

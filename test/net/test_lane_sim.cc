// What the simulated network promises beyond the contract of lanes: it repeats from its seed, it
// makes use of the freedom that the contract gives, and it loses a rank when told to.
#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <string>
#include <thread>

#include "lib/net/sim_network.h"

namespace hetccl::net {
namespace {

struct Trace {
  std::string events;
  bool in_place = false;
  bool landed = false;
  bool elsewhere = false;
  bool overtaken = false;  // a message came before an earlier one of another pair
};

// Ranks 1 and 2 each send 20 messages to rank 0.
Trace run(uint64_t seed) {
  SimOptions options;
  options.seed = seed;
  auto lanes = open_sim_lanes(3, options);
  std::vector<std::byte> source(100, std::byte{9}), landing(100);
  Piece piece{source.data(), source.size()};
  Trace trace;
  int sent[3] = {}, announced[3] = {}, received[3] = {};
  while (received[1] + received[2] < 40) {
    for (int peer : {1, 2}) {
      if (sent[peer] < 20) sent[peer] += lanes[peer]->try_send(0, {&piece, 1}, Envelope{1}, true);
      if (announced[peer] < 20) {
        announced[peer] += lanes[0]->try_announce(peer, landing.data(), landing.size(), false);
      }
      Received got;
      if (!lanes[0]->try_receive(peer, 0, &got)) continue;
      ++received[peer];
      trace.in_place |= got.data == source.data();
      trace.landed |= got.data == landing.data();
      trace.elsewhere |= got.data != source.data() && got.data != landing.data();
      trace.overtaken |= received[peer] > received[3 - peer] + 1;
      trace.events += std::to_string(peer) + (got.data == source.data() ? "p" : "c");
      EXPECT_EQ(std::memcmp(got.data, source.data(), got.bytes), 0);
      lanes[0]->release(peer);
    }
    for (auto& lane : lanes) EXPECT_TRUE(lane->progress().ok());
  }
  return trace;
}

TEST(SimNetwork, RepeatsFromItsSeedAndUsesItsFreedom) {
  std::set<std::string> different;
  Trace all;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    Trace first = run(seed), second = run(seed);
    EXPECT_EQ(first.events, second.events);
    different.insert(first.events);
    all.in_place |= first.in_place;
    all.landed |= first.landed;
    all.elsewhere |= first.elsewhere;
    all.overtaken |= first.overtaken;
  }
  EXPECT_GT(different.size(), 5u);
  EXPECT_TRUE(all.in_place && all.landed && all.elsewhere && all.overtaken);
}

TEST(SimNetwork, PiecesThatAreNotDoneAreStillRead) {
  int changed = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SimOptions options;
    options.seed = seed;
    auto lanes = open_sim_lanes(2, options);
    std::byte source{1};
    Piece piece{&source, 1};
    ASSERT_TRUE(lanes[0]->try_send(1, {&piece, 1}, Envelope{1}, true));
    bool done = lanes[0]->sends_done(1) == 1;
    source = std::byte{2};  // too early, unless done
    Received got;
    while (!lanes[1]->try_receive(0, 0, &got)) ASSERT_TRUE(lanes[1]->progress().ok());
    if (done) {
      EXPECT_EQ(*got.data, std::byte{1});
    }
    changed += *got.data == std::byte{2};
  }
  EXPECT_GT(changed, 50);
}

// For each k: everything ends with an error that names the rank, on all others.
TEST(SimNetwork, ALostRankIsReportedWheneverItDies) {
  for (uint64_t k = 1; k <= 60; ++k) {
    SimOptions options;
    options.seed = k;
    options.lost_rank = 1;
    options.lost_at = k;
    auto lanes = open_sim_lanes(3, options);
    std::byte source{1};
    Piece piece{&source, 1};
    std::vector<Status> outcome(3);
    for (int step = 0; step < 3000; ++step) {
      for (int rank = 0; rank < 3; ++rank) {
        for (int peer = 0; peer < 3; ++peer) {
          if (peer == rank) continue;
          (void)lanes[rank]->try_send(peer, {&piece, 1}, Envelope{1}, true);
          Received got;
          if (lanes[rank]->try_receive(peer, 0, &got)) lanes[rank]->release(peer);
        }
        Result<bool> moved = lanes[rank]->progress();
        if (!moved.ok()) outcome[rank] = moved.status();
      }
    }
    EXPECT_EQ(outcome[0].code(), hetcclRemoteError);
    EXPECT_EQ(outcome[2].code(), hetcclRemoteError);
    EXPECT_EQ(outcome[1].code(), hetcclSystemError);
    EXPECT_NE(outcome[0].message().find("rank 1"), std::string::npos);
  }
}

TEST(SimNetwork, LanesMayBeUsedByDifferentThreads) {
  constexpr int kRanks = 4, kMessages = 300;
  SimOptions options;
  options.longest_delay = 5;
  auto lanes = open_sim_lanes(kRanks, options);
  std::vector<int> wrong(kRanks);
  auto body = [&](int rank) {
    Lane& lane = *lanes[rank];
    int next = (rank + 1) % kRanks, previous = (rank + kRanks - 1) % kRanks;
    std::vector<uint64_t> values(kMessages);
    int sent = 0, received = 0;
    while (received < kMessages || lane.sends_done(next) < kMessages) {
      if (sent < kMessages) {
        values[sent] = rank * 1000 + sent;
        Piece piece{reinterpret_cast<std::byte*>(&values[sent]), sizeof(uint64_t)};
        sent += lane.try_send(next, {&piece, 1}, Envelope{1}, true);
      }
      Received got;
      if (received < kMessages && lane.try_receive(previous, 0, &got)) {
        uint64_t value;
        std::memcpy(&value, got.data, sizeof(value));
        wrong[rank] += value != uint64_t(previous * 1000 + received);
        lane.release(previous);
        ++received;
      }
      if (!lane.progress().ok()) ++wrong[rank];
      std::this_thread::yield();
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) threads.emplace_back(body, rank);
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(kRanks));
}

}  // namespace
}  // namespace hetccl::net

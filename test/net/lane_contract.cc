// The contract suite: what a plan may rely on, whatever carries its messages. Run once for each
// transport: `lane_contract sim|shm|am|put`.
#include "test/net/lane_contract.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <chrono>
#include <cstring>
#include <map>
#include <random>
#include <thread>

namespace hetccl::net {

std::string contract_kind;

namespace {

using Lanes = std::vector<std::unique_ptr<Lane>>;

std::byte pattern(uint64_t seed, size_t index) {
  return static_cast<std::byte>((seed * 0x9e3779b97f4a7c15ull + index * 131 + (index >> 8)) >> 3);
}

std::vector<std::byte> filled(uint64_t seed, size_t bytes) {
  std::vector<std::byte> data(bytes);
  for (size_t i = 0; i < bytes; ++i) data[i] = pattern(seed, i);
  return data;
}

bool matches(uint64_t seed, const std::byte* data, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) {
    if (data[i] != pattern(seed, i)) return false;
  }
  return true;
}

class LaneContract : public ::testing::Test {
 protected:
  void SetUp() override { network_ = make_contract_network(contract_kind); }

  // Progresses all lanes until `done`, which fails the test if it takes too long.
  template <typename Done>
  ::testing::AssertionResult drive(const Lanes& lanes, Done done) {
    auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!done()) {
      bool moved = false;
      for (const auto& lane : lanes) {
        if (lane == nullptr) continue;
        Result<bool> result = lane->progress();
        if (!result.ok()) return ::testing::AssertionFailure() << result.status().message();
        moved |= *result;
      }
      if (std::chrono::steady_clock::now() > deadline) {
        return ::testing::AssertionFailure() << "no progress for 60 s";
      }
      if (!moved) std::this_thread::yield();
    }
    return ::testing::AssertionSuccess();
  }

  ::testing::AssertionResult all_quiet(const Lanes& lanes) {
    return drive(lanes, [&] {
      bool quiet = true;
      for (const auto& lane : lanes) quiet &= lane->quiet();
      return quiet;
    });
  }

  // One message from `from` to `to`, received, checked and released.
  void exchange(const Lanes& lanes, int from, int to, std::span<const std::byte> data,
                uint64_t seed, bool stable, std::byte* destination) {
    ASSERT_TRUE(lanes[to]->try_announce(from, destination, destination ? data.size() : 0, false));
    Piece piece{data.data(), data.size()};
    ASSERT_TRUE(drive(lanes, [&] {
      return lanes[from]->try_send(to, {&piece, 1}, Envelope{seed}, stable);
    }));
    Received got{};
    ASSERT_TRUE(drive(lanes, [&] { return lanes[to]->try_receive(from, 0, &got); }));
    EXPECT_EQ(got.bytes, data.size());
    EXPECT_EQ(got.signature, seed);
    EXPECT_TRUE(matches(seed, got.data, got.bytes)) << "wrong data, " << got.bytes << " bytes";
    lanes[to]->release(from);
    ASSERT_TRUE(drive(
        lanes, [&, all = ++sent_[{from, to}]] { return lanes[from]->sends_done(to) == all; }));
  }

  std::unique_ptr<ContractNetwork> network_;
  std::map<std::pair<int, int>, uint64_t> sent_;
};

TEST_F(LaneContract, EverySizeArrivesWholeWithAndWithoutDestination) {
  ContractOptions options;
  Lanes lanes = network_->open(2, options);
  std::vector<std::byte> destination(options.chunk_bytes);
  uint64_t seed = 1;
  for (size_t bytes : {0ul, 1ul, 7ul, 31ul, 32ul, 33ul, 64ul, 2047ul, 2048ul, 2049ul, 4096ul,
                       8191ul, 8192ul, 8193ul, 32768ul, 65535ul, 65536ul}) {
    for (bool stable : {false, true}) {
      for (std::byte* where : {static_cast<std::byte*>(nullptr), destination.data()}) {
        std::vector<std::byte> data = filled(++seed, bytes);
        exchange(lanes, 0, 1, data, seed, stable, where);
        if (HasFatalFailure()) return;
      }
    }
  }
  EXPECT_EQ(lanes[0]->max_message(), options.chunk_bytes);
  EXPECT_TRUE(all_quiet(lanes));
}

TEST_F(LaneContract, MessagesArriveInTheOrderInWhichTheyWereSent) {
  Lanes lanes = network_->open(2, ContractOptions{.chunk_bytes = 20000, .depth = 3});
  std::mt19937 random(7);
  constexpr int kMessages = 400;
  std::vector<size_t> sizes(kMessages);
  for (size_t& size : sizes) size = random() % 4 == 0 ? random() % 20001 : random() % 100;
  std::vector<std::vector<std::byte>> data;
  for (int i = 0; i < kMessages; ++i) data.push_back(filled(i, sizes[i]));
  int sent = 0, announced = 0, received = 0;
  ASSERT_TRUE(drive(lanes, [&] {
    if (announced < kMessages && lanes[1]->try_announce(0, nullptr, 0, false)) ++announced;
    Piece piece{sent < kMessages ? data[sent].data() : nullptr, sent < kMessages ? sizes[sent] : 0};
    if (sent < kMessages && lanes[0]->try_send(1, {&piece, 1}, Envelope{uint64_t(sent)}, true)) {
      ++sent;
    }
    Received got;
    if (received < kMessages && lanes[1]->try_receive(0, 0, &got)) {
      EXPECT_EQ(got.signature, uint64_t(received));
      EXPECT_EQ(got.bytes, sizes[received]);
      EXPECT_TRUE(matches(received, got.data, got.bytes));
      lanes[1]->release(0);
      ++received;
    }
    return received == kMessages;
  }));
  ASSERT_TRUE(drive(lanes, [&] { return lanes[0]->sends_done(1) == uint64_t(kMessages); }));
  EXPECT_TRUE(all_quiet(lanes));
}

TEST_F(LaneContract, CreditRunsOutAndComesBack) {
  ContractOptions options{.chunk_bytes = 16384, .depth = 4};
  Lanes lanes = network_->open(2, options);
  std::vector<std::byte> data = filled(5, 10000);
  Piece piece{data.data(), data.size()};
  for (int round = 0; round < 3; ++round) {
    for (unsigned i = 0; i < options.depth; ++i) {
      ASSERT_TRUE(drive(lanes, [&] { return lanes[1]->try_announce(0, nullptr, 0, false); }));
      ASSERT_TRUE(drive(lanes, [&] {
        return lanes[0]->try_send(1, {&piece, 1}, Envelope{i}, true);
      }));
    }
    EXPECT_FALSE(lanes[0]->try_send(1, {&piece, 1}, Envelope{99}, true));
    EXPECT_FALSE(lanes[0]->quiet());
    // All are there, and can be looked at before the first is released.
    for (unsigned ahead = 0; ahead < options.depth; ++ahead) {
      Received got;
      ASSERT_TRUE(drive(lanes, [&] { return lanes[1]->try_receive(0, ahead, &got); }));
      EXPECT_EQ(got.signature, ahead);
      EXPECT_TRUE(matches(5, got.data, got.bytes));
    }
    Received none;
    EXPECT_FALSE(lanes[1]->try_receive(0, options.depth, &none));
    for (unsigned i = 0; i < options.depth; ++i) lanes[1]->release(0);
    ASSERT_TRUE(all_quiet(lanes));
  }
}

TEST_F(LaneContract, PiecesAreJoined) {
  Lanes lanes = network_->open(2, ContractOptions{});
  uint64_t sends = 0;
  for (size_t bytes : {3ul, 30ul, 900ul, 5000ul, 60000ul}) {
    std::vector<std::byte> data = filled(bytes, bytes);
    std::array<Piece, 4> pieces{Piece{data.data(), bytes / 3}, Piece{nullptr, 0},
                                Piece{data.data() + bytes / 3, bytes / 2 - bytes / 3},
                                Piece{data.data() + bytes / 2, bytes - bytes / 2}};
    std::vector<std::byte> destination(bytes);
    ASSERT_TRUE(lanes[1]->try_announce(0, destination.data(), bytes, false));
    ASSERT_TRUE(
        drive(lanes, [&] { return lanes[0]->try_send(1, pieces, Envelope{bytes}, false); }));
    ++sends;
    ASSERT_TRUE(drive(lanes, [&] { return lanes[0]->sends_done(1) == sends; }));
    std::fill(data.begin(), data.end(), std::byte{0});
    Received got;
    ASSERT_TRUE(drive(lanes, [&] { return lanes[1]->try_receive(0, 0, &got); }));
    EXPECT_EQ(got.bytes, bytes);
    EXPECT_TRUE(matches(bytes, got.data, got.bytes));
    lanes[1]->release(0);
  }
  EXPECT_TRUE(all_quiet(lanes));
}

TEST_F(LaneContract, AnnouncingAfterArrivalIsNotTooLate) {
  Lanes lanes = network_->open(2, ContractOptions{});
  for (size_t bytes : {20ul, 3000ul, 50000ul}) {
    std::vector<std::byte> data = filled(bytes, bytes), destination(bytes);
    Piece piece{data.data(), bytes};
    ASSERT_TRUE(drive(lanes, [&] {
      return lanes[0]->try_send(1, {&piece, 1}, Envelope{1}, true);
    }));
    for (int i = 0; i < 50; ++i) {
      for (const auto& lane : lanes) ASSERT_TRUE(lane->progress().ok());
    }
    ASSERT_TRUE(lanes[1]->try_announce(0, destination.data(), bytes, false));
    Received got;
    ASSERT_TRUE(drive(lanes, [&] { return lanes[1]->try_receive(0, 0, &got); }));
    EXPECT_TRUE(matches(bytes, got.data, got.bytes));
    lanes[1]->release(0);
    ASSERT_TRUE(all_quiet(lanes));
  }
}

// Networks save the copy; where memory is shared the receiver reads in place instead.
TEST_F(LaneContract, WhatWasAnnouncedInTimeLandsThere) {
  if (contract_kind != "am" && contract_kind != "put") GTEST_SKIP() << "not promised here";
  Lanes lanes = network_->open(2, ContractOptions{});
  for (size_t bytes : {3000ul, 50000ul}) {
    std::vector<std::byte> data = filled(bytes, bytes), destination(bytes);
    Piece piece{data.data(), bytes};
    ASSERT_TRUE(lanes[1]->try_announce(0, destination.data(), bytes, false));
    ASSERT_TRUE(drive(lanes, [&] {
      return lanes[0]->try_send(1, {&piece, 1}, Envelope{1}, true);
    }));
    Received got;
    ASSERT_TRUE(drive(lanes, [&] { return lanes[1]->try_receive(0, 0, &got); }));
    EXPECT_EQ(got.data, destination.data());
    EXPECT_TRUE(matches(bytes, got.data, got.bytes));
    lanes[1]->release(0);
    ASSERT_TRUE(all_quiet(lanes));
  }
}

TEST_F(LaneContract, ADestinationThatIsTooSmallIsNotOverrun) {
  Lanes lanes = network_->open(2, ContractOptions{});
  for (size_t bytes : {24ul, 3000ul, 50000ul}) {
    std::vector<std::byte> data = filled(bytes, bytes), destination(bytes, std::byte{0x5a});
    Piece piece{data.data(), bytes};
    ASSERT_TRUE(lanes[1]->try_announce(0, destination.data(), bytes / 2, false));
    ASSERT_TRUE(drive(lanes, [&] {
      return lanes[0]->try_send(1, {&piece, 1}, Envelope{1}, true);
    }));
    Received got;
    ASSERT_TRUE(drive(lanes, [&] { return lanes[1]->try_receive(0, 0, &got); }));
    EXPECT_EQ(got.bytes, bytes);
    EXPECT_TRUE(matches(bytes, got.data, got.bytes));
    for (size_t i = bytes / 2; i < bytes; ++i) ASSERT_EQ(destination[i], std::byte{0x5a});
    lanes[1]->release(0);
    ASSERT_TRUE(all_quiet(lanes));
  }
}

// Every rank talks to every other at once, in both directions, with its own seeded sizes.
TEST_F(LaneContract, ManyPeersInterleaved) {
  constexpr int kRanks = 5, kMessages = 40;
  Lanes lanes = network_->open(kRanks, ContractOptions{.chunk_bytes = 9000, .depth = 2});
  struct Stream {
    std::vector<std::vector<std::byte>> data;
    std::vector<std::byte> landing[2];
    int sent = 0, announced = 0, received = 0;
  };
  std::mt19937 random(11);
  std::map<std::pair<int, int>, Stream> streams;
  for (int from = 0; from < kRanks; ++from) {
    for (int to = 0; to < kRanks; ++to) {
      if (from == to) continue;
      Stream& stream = streams[{from, to}];
      for (int i = 0; i < kMessages; ++i) {
        stream.data.push_back(filled(from * 1000 + to * 100 + i, random() % 9001));
      }
      for (auto& landing : stream.landing) landing.resize(9000);
    }
  }
  ASSERT_TRUE(drive(lanes, [&] {
    bool all = true;
    for (auto& [pair, stream] : streams) {
      auto [from, to] = pair;
      all &= stream.received == kMessages;
      if (stream.announced < kMessages && stream.announced < stream.received + 2 &&
          lanes[to]->try_announce(from, stream.landing[stream.announced % 2].data(), 9000, false)) {
        ++stream.announced;
      }
      if (stream.sent < kMessages) {
        const auto& data = stream.data[stream.sent];
        Piece piece{data.data(), data.size()};
        stream.sent += lanes[from]->try_send(to, {&piece, 1}, Envelope{uint64_t(stream.sent)},
                                             stream.sent % 2 == 0);
      }
      Received got;
      if (random() % 3 == 0 && stream.received < kMessages &&
          lanes[to]->try_receive(from, 0, &got)) {
        EXPECT_EQ(got.bytes, stream.data[stream.received].size());
        EXPECT_TRUE(matches(from * 1000 + to * 100 + stream.received, got.data, got.bytes));
        lanes[to]->release(from);
        ++stream.received;
      }
    }
    return all;
  }));
  EXPECT_TRUE(all_quiet(lanes));
}

TEST_F(LaneContract, TwoLanesDoNotMix) {
  Lanes first = network_->open(2, ContractOptions{});
  Lanes second = network_->open(2, ContractOptions{});
  std::vector<std::byte> one = filled(1, 5000), two = filled(2, 6000);
  Piece piece_one{one.data(), one.size()}, piece_two{two.data(), two.size()};
  for (auto* lanes : {&first, &second}) {
    ASSERT_TRUE((*lanes)[1]->try_announce(0, nullptr, 0, false));
  }
  ASSERT_TRUE(drive(second, [&] {
    return second[0]->try_send(1, {&piece_two, 1}, Envelope{2}, true);
  }));
  Received got;
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(first[0]->progress().ok() && first[1]->progress().ok());
    ASSERT_FALSE(first[1]->try_receive(0, 0, &got));
  }
  ASSERT_TRUE(drive(first, [&] {
    return first[0]->try_send(1, {&piece_one, 1}, Envelope{1}, true);
  }));
  ASSERT_TRUE(drive(first, [&] { return first[1]->try_receive(0, 0, &got); }));
  EXPECT_TRUE(matches(1, got.data, got.bytes));
  ASSERT_TRUE(drive(second, [&] { return second[1]->try_receive(0, 0, &got); }));
  EXPECT_TRUE(matches(2, got.data, got.bytes));
  first[1]->release(0);
  second[1]->release(0);
  EXPECT_TRUE(all_quiet(first));
  EXPECT_TRUE(all_quiet(second));
}

TEST_F(LaneContract, ReadOnlyAndLibraryMemoryCanBeSent) {
  Lanes lanes = network_->open(2, ContractOptions{});
  constexpr size_t kBytes = 40960;
  void* mapped = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  std::memcpy(mapped, filled(3, kBytes).data(), kBytes);
  ASSERT_EQ(mprotect(mapped, kBytes, PROT_READ), 0);
  std::vector<std::byte> destination(kBytes);
  auto* constant = static_cast<const std::byte*>(mapped);
  exchange(lanes, 0, 1, {constant, 100}, 3, true, nullptr);
  exchange(lanes, 0, 1, {constant, kBytes}, 3, true, nullptr);
  exchange(lanes, 0, 1, {constant, kBytes}, 3, true, destination.data());
  munmap(mapped, kBytes);
  // Library memory, also more of it than any one segment holds, freed and made anew each round.
  for (int round = 0; round < 3; ++round) {
    for (size_t bytes : {size_t{100000}, size_t{80} << 20}) {
      std::byte* shared = network_->allocate_shared(bytes);
      ASSERT_NE(shared, nullptr);
      EXPECT_EQ(shared[0], std::byte{0});
      EXPECT_EQ(shared[bytes - 1], std::byte{0});
      std::byte* data = shared + bytes - kBytes;
      std::memcpy(data, filled(10 + round, kBytes).data(), kBytes);
      exchange(lanes, 0, 1, {data, kBytes}, 10 + round, true, nullptr);
      exchange(lanes, 1, 0, {data, kBytes}, 10 + round, true, destination.data());
      network_->free_shared(shared);
    }
  }
  EXPECT_TRUE(all_quiet(lanes));
}

TEST_F(LaneContract, MemoryMappedAgainAtOneAddressIsReadAfresh) {
  Lanes lanes = network_->open(2, ContractOptions{});
  constexpr size_t kBytes = 65536;
  void* source_at = mmap(nullptr, 2 * kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(source_at, MAP_FAILED);
  void* landing_at = static_cast<std::byte*>(source_at) + kBytes;
  for (int round = 0; round < 30; ++round) {
    for (void* where : {source_at, landing_at}) {
      ASSERT_EQ(mmap(where, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
                     -1, 0),
                where);
    }
    std::memcpy(source_at, filled(round, kBytes).data(), kBytes);
    exchange(lanes, 0, 1, {static_cast<std::byte*>(source_at), kBytes}, round, true,
             static_cast<std::byte*>(landing_at));
    ASSERT_TRUE(all_quiet(lanes));
    ASSERT_EQ(munmap(source_at, kBytes), 0);
    ASSERT_EQ(munmap(landing_at, kBytes), 0);
  }
}

TEST_F(LaneContract, MessagesMayComeBeforeTheReceiverConnects) {
  ContractOptions options;
  auto halfway = network_->open_all_but_last(3, options);
  std::vector<std::byte> small = filled(1, 100), large = filled(2, 50000);
  std::array<Piece, 2> pieces{Piece{small.data(), small.size()}, Piece{large.data(), large.size()}};
  for (const Piece& piece : pieces) {
    ASSERT_TRUE(drive(halfway.lanes, [&] {
      return halfway.lanes[0]->try_send(2, {&piece, 1}, Envelope{piece.bytes}, true);
    }));
  }
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(halfway.lanes[0]->progress().ok());
  Lanes lanes = std::move(halfway.lanes);
  lanes.back() = halfway.connect_last();
  for (uint64_t i = 0; i < 2; ++i) {
    ASSERT_TRUE(lanes[2]->try_announce(0, nullptr, 0, false));
    Received got;
    ASSERT_TRUE(drive(lanes, [&] { return lanes[2]->try_receive(0, 0, &got); }));
    EXPECT_EQ(got.signature, pieces[i].bytes);
    EXPECT_TRUE(matches(i + 1, got.data, got.bytes));
    lanes[2]->release(0);
  }
  EXPECT_TRUE(all_quiet(lanes));
}

TEST_F(LaneContract, LanesComeAndGo) {
  std::vector<std::byte> data = filled(4, 8000);
  for (int round = 0; round < 40; ++round) {
    Lanes lanes = network_->open(3, ContractOptions{});
    sent_.clear();
    exchange(lanes, round % 3, (round + 1) % 3, data, 4, round % 2 == 0, nullptr);
    if (HasFatalFailure()) return;
    // Every other time with messages under way.
    Piece piece{data.data(), data.size()};
    if (round % 2 == 0) (void)lanes[0]->try_send(2, {&piece, 1}, Envelope{4}, false);
    if (round % 2 == 1) {
      ASSERT_TRUE(all_quiet(lanes));
    }
  }
}

TEST_F(LaneContract, EachRankCanTalkToItself) {
  Lanes lanes = network_->open(2, ContractOptions{});
  exchange(lanes, 1, 1, filled(8, 4000), 8, true, nullptr);
  EXPECT_FALSE(lanes[1]->describe(1).empty());
  EXPECT_FALSE(lanes[1]->describe(0).empty());
  EXPECT_TRUE(all_quiet(lanes));
}

}  // namespace
}  // namespace hetccl::net

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  hetccl::net::contract_kind = argc > 1 ? argv[1] : "sim";
  return RUN_ALL_TESTS();
}

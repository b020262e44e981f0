// The memory behind the lanes: the arena that peers map, the cards that tell of it, and regions
// that are used again only when nobody can touch them any more.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <set>

#include "lib/net/fabric.h"
#include "lib/net/net_card.h"
#include "lib/net/ucx_hub.h"

namespace hetccl::net {
namespace {

UcxHub& hub() {
  static UcxHub* const made = [] {
    auto result = UcxHub::create(WorkerOptions{});
    EXPECT_TRUE(result.ok());
    return result->release();
  }();
  return *made;
}

TEST(Arena, MemoryIsZeroedDisjointAndFoundAgain) {
  Arena& arena = hub().arena();
  std::mt19937 random(3);
  std::map<std::byte*, size_t> blocks;
  for (int step = 0; step < 400; ++step) {
    if (blocks.size() > 20 || (!blocks.empty() && random() % 3 == 0)) {
      auto victim = std::next(blocks.begin(), random() % blocks.size());
      ASSERT_TRUE(arena.free(victim->first).ok());
      blocks.erase(victim);
      continue;
    }
    size_t bytes = random() % 40000;
    auto memory = arena.allocate(bytes, true);
    ASSERT_TRUE(memory.ok());
    for (size_t i = 0; i < bytes; ++i) ASSERT_EQ((*memory)[i], std::byte{0});
    std::memset(*memory, 0xff, bytes);
    for (auto [other, size] : blocks) {
      ASSERT_TRUE(*memory + bytes <= other || other + size <= *memory);
    }
    blocks[*memory] = bytes;
    Location location;
    ASSERT_TRUE(arena.locate(*memory, bytes, &location));
  }
  for (auto [memory, bytes] : blocks) ASSERT_TRUE(arena.free(memory).ok());
  // All of it has grown together again.
  auto large = arena.allocate(kSegmentBytes / 2, false);
  ASSERT_TRUE(large.ok());
  Location location;
  ASSERT_TRUE(arena.locate(*large, kSegmentBytes / 2, &location));
  EXPECT_EQ(location.segment, 0u);
  EXPECT_TRUE(arena.free(*large).ok());
}

TEST(Arena, AFreedSegmentIsNeverTakenForItsSuccessor) {
  Arena& arena = hub().arena();
  auto self = ShmPeer::self(&hub().worker(), arena);
  std::set<uint32_t> generations;
  for (int round = 0; round < 5; ++round) {
    auto memory = arena.allocate(kSegmentBytes, true);
    ASSERT_TRUE(memory.ok());
    Location location;
    ASSERT_TRUE(arena.locate(*memory + 100, 1, &location));
    EXPECT_TRUE(generations.insert(location.generation).second);
    EXPECT_EQ(self->map(location), *memory + 100);
    ASSERT_TRUE(arena.free(*memory).ok());
    EXPECT_FALSE(arena.locate(*memory, 1, &location));
    self->drop_stale();
    EXPECT_EQ(self->map(location), nullptr);
    EXPECT_FALSE(self->status().ok());
  }
}

TEST(Arena, MisuseIsAnError) {
  int local = 0;
  EXPECT_EQ(hub().arena().free(&local).code(), hetcclInvalidArgument);
  EXPECT_EQ(hub().arena().allocate(SIZE_MAX, true).status().code(), hetcclInvalidArgument);
  EXPECT_FALSE(hub().arena().allocate(size_t{1} << 60, true).ok());
  auto memory = hub().arena().allocate(10, true);
  ASSERT_TRUE(memory.ok());
  EXPECT_TRUE(hub().arena().free(*memory).ok());
  EXPECT_FALSE(hub().arena().free(*memory).ok());
}

Card sample_card() {
  Card card;
  card.process = {1, 2};
  card.full_address = std::string(215, 'f');
  card.network_address = "net";
  card.table_key = std::string("k\0y", 3);
  card.region = Location{3, 4, 5};
  card.lane = 6;
  card.chunk_bytes = 1 << 20;
  return card;
}

TEST(Card, SurvivesTheJourney) {
  Result<Card> back = read_card(write_card(sample_card()));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->table_key, sample_card().table_key);
  EXPECT_EQ(back->full_address, sample_card().full_address);
  EXPECT_EQ(back->region.offset, 5u);
  EXPECT_EQ(back->lane, 6u);
}

TEST(Card, DamageIsAnErrorAndNeverACrash) {
  std::string good = write_card(sample_card());
  for (size_t length = 0; length < good.size(); ++length) {
    EXPECT_FALSE(read_card(good.substr(0, length)).ok());
  }
  EXPECT_FALSE(read_card(good + "x").ok());
  std::mt19937 random(5);
  for (int i = 0; i < 20000; ++i) {
    std::string bad = good;
    for (int k = 0; k < 3; ++k) bad[random() % bad.size()] = static_cast<char>(random());
    Result<Card> card = read_card(bad);
    if (card.ok()) {
      EXPECT_LE(card->full_address.size(), bad.size());
    }
  }
}

// Whether peers share memory or put over the network, a lane's memory comes back.
void lanes_come_and_go(Fabric* fabric, bool shared) {
  std::set<std::pair<uint32_t, uint64_t>> regions;
  for (int round = 0; round < 60; ++round) {
    std::vector<std::unique_ptr<LaneSetup>> setups;
    std::vector<std::string> cards;
    for (int rank = 0; rank < 2; ++rank) {
      auto setup = fabric->open_lane(2, rank, LaneOptions{4096, 2});
      ASSERT_TRUE(setup.ok());
      cards.push_back((*setup)->card());
      Location region = read_card(cards.back())->region;
      regions.insert({region.segment, region.offset});
      setups.push_back(std::move(*setup));
    }
    std::vector<std::unique_ptr<Lane>> lanes;
    for (auto& setup : setups) {
      auto lane = setup->connect(cards, {shared, shared});
      ASSERT_TRUE(lane.ok()) << lane.status().message();
      lanes.push_back(std::move(*lane));
    }
    std::byte byte{7};
    Piece piece{&byte, 1};
    ASSERT_TRUE(lanes[0]->try_send(1, {&piece, 1}, Envelope{1}, false));
    Received got;
    while (!lanes[1]->try_receive(0, 0, &got)) {
      for (auto& lane : lanes) ASSERT_TRUE(lane->progress().ok());
    }
    EXPECT_EQ(*got.data, byte);
  }
  EXPECT_LE(regions.size(), 12u);
}

TEST(Fabric, TheMemoryOfLanesIsUsedAgain) {
  auto fabric = Fabric::create(FabricOptions{.interfaces = "", .segment_bytes = 0, .put = "yes"});
  ASSERT_TRUE(fabric.ok());
  lanes_come_and_go(*fabric, true);
  lanes_come_and_go(*fabric, false);
}

TEST(Fabric, LanesThatDoNotFitTogetherAreRefused) {
  auto fabric = Fabric::create(FabricOptions{.interfaces = "", .segment_bytes = 0, .put = "yes"});
  ASSERT_TRUE(fabric.ok());
  EXPECT_FALSE((*fabric)->open_lane(2, 2, LaneOptions{4096, 2}).ok());
  EXPECT_FALSE((*fabric)->open_lane(2, 0, LaneOptions{4096, 0}).ok());
  auto one = (*fabric)->open_lane(2, 0, LaneOptions{4096, 2});
  auto two = (*fabric)->open_lane(2, 1, LaneOptions{8192, 2});
  ASSERT_TRUE(one.ok() && two.ok());
  auto lane = (*one)->connect({(*one)->card(), (*two)->card()}, {true, true});
  EXPECT_EQ(lane.status().code(), hetcclInvalidUsage);
  lane = (*one)->connect({(*one)->card(), "nonsense"}, {true, true});
  EXPECT_FALSE(lane.ok());
}

}  // namespace
}  // namespace hetccl::net

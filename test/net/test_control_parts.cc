// The parts of the control plane that need no socket: tree, frames, interfaces, comparison.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "lib/net/control_tree.h"
#include "lib/net/frames.h"
#include "lib/net/interfaces.h"
#include "lib/net/place.h"
#include "lib/net/session_compare.h"

namespace hetccl::net {
namespace {

// ---- tree

std::vector<std::string> nodes_of(int ranks, int nodes) {
  std::vector<std::string> names;
  for (int r = 0; r < ranks; ++r) names.push_back("n" + std::to_string(r * 7 % nodes));
  return names;
}

std::vector<ControlTree> trees_of(const std::vector<std::string>& nodes) {
  std::vector<ControlTree> trees;
  for (size_t r = 0; r < nodes.size(); ++r) trees.emplace_back(nodes, static_cast<int>(r));
  return trees;
}

// From every rank that is left to every other, along neighbours that agree.
void expect_connected(const std::vector<ControlTree>& trees) {
  const int ranks = static_cast<int>(trees.size());
  int roots = 0;
  for (int from = 0; from < ranks; ++from) {
    const ControlTree& own = trees[static_cast<size_t>(from)];
    if (own.gone(from)) continue;
    const int parent = own.parent(from);
    roots += parent < 0 ? 1 : 0;
    EXPECT_LT(parent, from);
    if (parent >= 0) {
      EXPECT_FALSE(own.gone(parent));
      const auto children = trees[static_cast<size_t>(parent)].children();
      EXPECT_TRUE(std::count(children.begin(), children.end(), from) == 1);
    }
    for (int to = 0; to < ranks; ++to) {
      if (own.gone(to) || to == from) {
        EXPECT_EQ(own.next_hop(to), -1);
        continue;
      }
      int at = from;
      for (int hops = 0; at != to; ++hops) {
        ASSERT_LT(hops, ranks);
        const int next = trees[static_cast<size_t>(at)].next_hop(to);
        ASSERT_GE(next, 0);
        // Only along edges of the tree.
        ASSERT_TRUE(own.parent(next) == at || own.parent(at) == next);
        at = next;
      }
    }
  }
  EXPECT_EQ(roots, 1);
}

TEST(ControlTree, ConnectsEveryNumberOfRanksAndNodes) {
  for (int ranks : {1, 2, 3, 4, 5, 6, 17, 33}) {
    for (int nodes : {1, 2, 3, 33}) expect_connected(trees_of(nodes_of(ranks, nodes)));
  }
}

TEST(ControlTree, KeepsNodesTogether) {
  const std::vector<std::string> nodes = {"a", "b", "a", "b", "a", "b", "c"};
  const ControlTree tree(nodes, 0);
  int between = 0;
  for (int r = 1; r < 7; ++r) {
    const int parent = tree.parent(r);
    between += nodes[static_cast<size_t>(r)] != nodes[static_cast<size_t>(parent)] ? 1 : 0;
  }
  EXPECT_EQ(between, 2);
}

TEST(ControlTree, StaysConnectedWhoeverGoes) {
  std::mt19937 random(11);
  for (int round = 0; round < 60; ++round) {
    const int ranks = 2 + static_cast<int>(random() % 24);
    auto trees = trees_of(nodes_of(ranks, 1 + static_cast<int>(random() % 5)));
    for (int left = ranks; left > 1; --left) {
      int victim = 0;
      do {
        victim = static_cast<int>(random() % static_cast<unsigned>(ranks));
      } while (trees[0].gone(victim));
      for (auto& tree : trees) tree.set_gone(victim);
      expect_connected(trees);
    }
  }
}

// ---- frames

Frame random_frame(std::mt19937& random) {
  Frame frame;
  frame.type = static_cast<FrameType>(1 + random() % static_cast<unsigned>(FrameType::kLast));
  frame.hops = static_cast<uint8_t>(random());
  frame.from = static_cast<int>(random());
  frame.to = static_cast<int>(random());
  frame.payload.resize(random() % 300);
  for (char& c : frame.payload) c = static_cast<char>(random());
  return frame;
}

TEST(Frames, SurviveAnyCutOfTheStream) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<Frame> sent;
    std::string stream;
    for (int i = 0; i < 20; ++i) {
      sent.push_back(random_frame(random));
      stream += *encode(sent.back());
    }
    FrameParser parser(kMaxPayload);
    size_t received = 0;
    for (size_t at = 0; at < stream.size();) {
      const size_t piece = std::min<size_t>(1 + random() % 700, stream.size() - at);
      parser.feed(stream.data() + at, piece);
      at += piece;
      Frame frame;
      while (parser.next(&frame)) {
        ASSERT_LT(received, sent.size());
        const Frame& expected = sent[received++];
        EXPECT_EQ(frame.type, expected.type);
        EXPECT_EQ(frame.hops, expected.hops);
        EXPECT_EQ(frame.from, expected.from);
        EXPECT_EQ(frame.to, expected.to);
        EXPECT_EQ(frame.payload, expected.payload);
      }
    }
    EXPECT_EQ(received, sent.size());
    EXPECT_FALSE(parser.broken());
    EXPECT_EQ(parser.buffered(), 0u);
  }
}

TEST(Frames, RandomBytesNeverGiveMoreThanTheyHold) {
  std::mt19937 random(2);
  for (int round = 0; round < 3000; ++round) {
    std::string bytes(random() % 400, '\0');
    for (char& c : bytes) c = static_cast<char>(random() % (round % 2 == 0 ? 256 : 4));
    FrameParser parser(64);
    size_t handed_out = 0;
    for (char c : bytes) {
      parser.feed(&c, 1);
      Frame frame;
      while (parser.next(&frame)) {
        EXPECT_LE(frame.payload.size(), 64u);
        handed_out += kFrameHeaderBytes + frame.payload.size();
      }
      if (parser.broken()) {
        EXPECT_EQ(parser.buffered(), 0u);
      }
    }
    EXPECT_LE(handed_out, bytes.size());
  }
}

TEST(Frames, OversizedAndUnknownBreakTheStreamForGood) {
  Frame frame;
  frame.payload.assign(65, 'x');
  FrameParser parser(64);
  EncodedFrame bytes = encode(frame);
  parser.feed(bytes->data(), kFrameHeaderBytes);
  Frame out;
  EXPECT_FALSE(parser.next(&out));
  EXPECT_TRUE(parser.broken());
  frame.payload.clear();
  bytes = encode(frame);
  parser.feed(bytes->data(), bytes->size());
  EXPECT_FALSE(parser.next(&out));
}

TEST(Frames, ReaderStopsAtTheEnd) {
  std::mt19937 random(3);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes(random() % 60, '\0');
    for (char& c : bytes) c = static_cast<char>(random() % 3 == 0 ? random() : 0);
    Reader reader(bytes);
    size_t read = 0;
    while (reader.ok() && !reader.rest().empty()) {
      switch (random() % 3) {
        case 0:
          reader.number<uint64_t>();
          break;
        case 1:
          reader.number<uint8_t>();
          break;
        default:
          read += reader.text().size();
      }
    }
    EXPECT_LE(read, bytes.size());
  }
  const std::string written = Writer().number<int>(-3).text("abc").text("").take();
  Reader reader(written);
  EXPECT_EQ(reader.number<int>(), -3);
  EXPECT_EQ(reader.text(), "abc");
  EXPECT_EQ(reader.text(), "");
  EXPECT_TRUE(reader.done());
  reader.number<uint8_t>();
  EXPECT_FALSE(reader.ok());
}

// ---- interfaces

InterfaceAddress interface_v4(const std::string& name, uint8_t last, bool loopback = false) {
  InterfaceAddress i;
  i.name = name;
  i.address.family = 4;
  i.address.bytes[0] = loopback ? 127 : 10;
  i.address.bytes[3] = last;
  i.loopback = loopback;
  return i;
}

InterfaceAddress interface_v6(const std::string& name) {
  InterfaceAddress i;
  i.name = name;
  i.address.family = 6;
  i.address.bytes[0] = 0x20;
  return i;
}

std::string chosen(const std::string& spec, const std::vector<InterfaceAddress>& found) {
  auto addresses = select_addresses(spec, found);
  if (!addresses.ok()) return addresses.status().message();
  std::string text;
  for (const Address& a : *addresses) text += to_string(a) + " ";
  return text;
}

TEST(Interfaces, ChoiceFollowsTheList) {
  const std::vector<InterfaceAddress> found = {interface_v4("lo", 1, true), interface_v6("eth1"),
                                               interface_v4("eth1", 2), interface_v4("eth10", 3),
                                               interface_v4("ib0", 4)};
  EXPECT_EQ(chosen("", found), "10.0.0.2 ");
  EXPECT_EQ(chosen("eth1", found), "10.0.0.2 2000:: ");
  EXPECT_EQ(chosen("eth", found), "10.0.0.2 10.0.0.3 2000:: ");
  EXPECT_EQ(chosen(" ib0 , lo", found), "10.0.0.4 127.0.0.1 ");
  EXPECT_EQ(chosen("^eth", found), "10.0.0.4 ");
  EXPECT_EQ(chosen("^eth,ib,absent", found), "127.0.0.1 ");
  EXPECT_EQ(chosen("", {interface_v4("lo", 1, true)}), "127.0.0.1 ");
  EXPECT_EQ(chosen("", {interface_v4("lo", 1, true), interface_v6("eth1")}), "2000:: ");
  EXPECT_EQ(chosen("", {}), "127.0.0.1 ");
}

TEST(Interfaces, ErrorsNameVariableValueAndWhatThereIs) {
  const std::vector<InterfaceAddress> found = {interface_v4("lo", 1, true),
                                               interface_v4("eth1", 2)};
  for (const char* spec : {"no_such0", "eth1,no_such0", "^lo,eth", "^", ","}) {
    auto addresses = select_addresses(spec, found);
    ASSERT_FALSE(addresses.ok()) << spec;
    EXPECT_EQ(addresses.status().code(), hetcclInvalidArgument);
    const std::string& text = addresses.status().message();
    EXPECT_NE(text.find(std::string("HETCCL_SOCKET_IFNAME=") + spec), std::string::npos) << text;
    EXPECT_NE(text.find("eth1 (10.0.0.2)"), std::string::npos) << text;
  }
}

TEST(Interfaces, EverySystemHasSomething) {
  auto addresses = select_addresses("", list_interfaces());
  ASSERT_TRUE(addresses.ok());
  EXPECT_NE((*addresses)[0].family, 0);
}

// ---- place

TEST(PlaceOfProcess, IsStableAndFollowsTheName) {
  auto a = find_place("");
  auto b = find_place("");
  auto c = find_place("other");
  ASSERT_TRUE(a.ok() && b.ok() && c.ok());
  EXPECT_EQ(a->place.node, b->place.node);
  EXPECT_EQ(a->place.shared_memory, b->place.shared_memory);
  EXPECT_EQ(c->place.node, "other");
  EXPECT_NE(a->place.shared_memory, c->place.shared_memory);
  EXPECT_EQ(a->machine, c->machine);
  EXPECT_EQ(a->place.pid, getpid());
  EXPECT_FALSE(a->place.host.empty());
}

// ---- comparison

std::vector<std::optional<CallRecord>> calls_of(const std::string& letters) {
  std::vector<std::optional<CallRecord>> calls;
  for (char c : letters) {
    if (c == '-') {
      calls.emplace_back();
    } else {
      calls.push_back(CallRecord{static_cast<uint64_t>(c), std::string(1, c)});
    }
  }
  return calls;
}

TEST(CallComparison, NamesWhoDiffersFromTheMajority) {
  using Pair = std::optional<std::pair<int, int>>;
  EXPECT_EQ(find_disagreement(calls_of("aaaa")), Pair());
  EXPECT_EQ(find_disagreement(calls_of("a--a")), Pair());
  EXPECT_EQ(find_disagreement(calls_of("----")), Pair());
  EXPECT_EQ(find_disagreement(calls_of("")), Pair());
  EXPECT_EQ(find_disagreement(calls_of("ab")), Pair({0, 1}));
  EXPECT_EQ(find_disagreement(calls_of("aab")), Pair({0, 2}));
  EXPECT_EQ(find_disagreement(calls_of("baa")), Pair({0, 1}));
  EXPECT_EQ(find_disagreement(calls_of("-caab")), Pair({1, 2}));
  EXPECT_EQ(find_disagreement(calls_of("abbc")), Pair({0, 1}));
  EXPECT_EQ(find_disagreement(calls_of("-a-b")), Pair({1, 3}));
  EXPECT_EQ(describe_disagreement(5, {1, 3}, calls_of("-a-b")),
            "ranks 1 and 3 disagree in call 5: rank 1: a; rank 3: b");
}

}  // namespace
}  // namespace hetccl::net

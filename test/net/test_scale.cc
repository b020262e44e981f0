// What creation asks of the program and what it keeps, when ranks are many.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <vector>

#include "lib/net/control_tree.h"
#include "lib/net/mailbox.h"
#include "lib/net/session_record.h"
#include "test/net/control_ranks.h"

namespace hetccl::net {
namespace {

using testing::for_each_rank;
using testing::LocalAllgather;
using testing::Sessions;

// The program's own allgather is called once by each rank, with so many bytes as are no matter of
// how many ranks there are; what follows goes through the library's own connections.
TEST(Scale, TheProgramsAllgatherIsCalledOnceAndSmall) {
  constexpr size_t kSmall = 2048;
  for (int ranks : {1, 2, 9, 24}) {
    LocalAllgather allgather(ranks);
    std::atomic<int> calls{0};
    Sessions sessions(static_cast<size_t>(ranks));
    for_each_rank(ranks, [&](int r) {
      const Allgather exchange = allgather.of_rank(r);
      SessionOptions options;
      options.timeout_s = 60;
      auto made = Session::create(
          ranks, r,
          [&](const void* mine, void* all, size_t bytes) {
            ++calls;
            EXPECT_EQ(bytes, sizeof(SessionRecord));
            EXPECT_LE(bytes, kSmall);
            return exchange(mine, all, bytes);
          },
          options);
      ASSERT_TRUE(made.ok()) << made.status().message();
      sessions[static_cast<size_t>(r)] = *made;
    });
    EXPECT_EQ(calls, ranks);
  }
}

// A rank holds connections to its neighbours in the tree alone, and a message passes few others.
TEST(Scale, TheControlTreeIsNarrowAndShallow) {
  constexpr int kRanksOnNode = 8;
  for (int ranks : {64, 1000, 5000}) {
    std::vector<std::string> nodes;
    for (int r = 0; r < ranks; ++r) nodes.push_back(std::to_string(r / kRanksOnNode));
    for (int self : {0, 1, kRanksOnNode, ranks / 2, ranks - 1}) {
      const ControlTree tree(nodes, self);
      // Other leaders, and ranks of the own node.
      EXPECT_LE(tree.children().size(), 2u * ControlTree::kArity);
      int depth = 0;
      for (int rank = self; rank >= 0; rank = tree.parent(rank)) ++depth;
      EXPECT_LE(depth, 11) << ranks << " ranks, from " << self;
    }
  }
}

// A lane keeps a mailbox for every other rank, used or not: this much for each, and no more.
TEST(Scale, AMailboxIsSmall) {
  constexpr size_t kDepth = 16, kChunk = 256 << 10, kMost = 44 << 10;
  const size_t few = MailLayout(8, kDepth, kChunk).region_bytes();
  const size_t many = MailLayout(1024, kDepth, kChunk).region_bytes();
  EXPECT_LE(few, 8 * kMost);
  EXPECT_LE(many, 1024 * kMost);
}

}  // namespace
}  // namespace hetccl::net

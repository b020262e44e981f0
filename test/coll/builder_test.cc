// What the builder makes of hand-made steps.
#include "lib/coll/builder.h"

#include <gtest/gtest.h>

#include "lib/coll/arithmetic.h"

namespace hetccl::coll {
namespace {

Builder builder(int ranks, int rank, int blocks) {
  return Builder(Collective::kAllReduce, ranks, rank, 0, blocks);
}
Plan finished(Builder& b) { return std::move(b).finish("hand-made"); }

TEST(Builder, ReaderWaitsForWriterChunkByChunk) {
  Builder b = builder(3, 0, 2);
  b.receive(1, Buffer::kOutput, {1});
  b.send(2, Buffer::kOutput, {1});
  EXPECT_EQ(to_text(finished(b)),
            "0 combine output[1] <- message(1)\n"
            "1 send output[1] to 2  after 0\n");
}

TEST(Builder, WriterWaitsForReaderAndWriter) {
  Builder b = builder(4, 0, 1);
  b.send(1, Buffer::kInput, {0});
  b.receive(2, Buffer::kOutput, {0});  // may be the input's memory
  b.receive(3, Buffer::kOutput, {0});
  EXPECT_EQ(to_text(finished(b)),
            "0 send input[0] to 1\n"
            "1 combine output[0] <- message(2)  after 0\n"
            "2 combine output[0] <- message(3)  after 1\n");
}

TEST(Builder, WorkMayBeTheOutput) {
  Builder b = builder(3, 0, 1);
  b.combine(Buffer::kWork, {0}, {message(1), local(Buffer::kInput, 0)});
  b.receive(2, Buffer::kOutput, {0});
  const Plan plan = finished(b);
  EXPECT_EQ(to_text(plan, 1), "1 combine output[0] <- message(2)  after 0");
  EXPECT_TRUE(plan.uses_work);
  EXPECT_FALSE(plan.uses_temp);
}

TEST(Builder, TempIsApart) {
  Builder b = builder(3, 0, 1);
  b.send(1, Buffer::kInput, {0});
  b.receive(2, Buffer::kTemp, {0});
  const Plan plan = finished(b);
  EXPECT_EQ(to_text(plan, 1), "1 combine temp[0] <- message(2)");
  EXPECT_TRUE(plan.uses_temp);
}

TEST(Builder, OtherBlocksDoNotMatter) {
  Builder b = builder(3, 0, 4);
  b.send(1, Buffer::kInput, {0, 2});
  b.receive(2, Buffer::kOutput, {2, 2});
  EXPECT_EQ(to_text(finished(b), 1), "1 combine output[2..3] <- message(2)");
}

TEST(Builder, BlocksThatDoNotLineUpAreWaitedForWhole) {
  Builder b = builder(3, 0, 4);
  b.receive(1, Buffer::kOutput, {0, 2});
  b.send(2, Buffer::kOutput, {1, 2});
  EXPECT_EQ(to_text(finished(b), 1), "1 send output[1..2] to 2  after 0*");
}

TEST(Builder, OperandFromOtherBlocksIsWaitedForWhole) {
  Builder b = builder(3, 0, 2);
  b.receive(1, Buffer::kTemp, {1});
  b.copy(Buffer::kOutput, {0}, Buffer::kTemp, 1);
  b.receive(2, Buffer::kTemp, {1});
  EXPECT_EQ(to_text(finished(b)),
            "0 combine temp[1] <- message(1)\n"
            "1 combine output[0] <- temp[1]  after 0*\n"
            "2 combine temp[1] <- message(2)  after 1*\n");
}

TEST(Builder, MessagesOfOnePairStayInOrder) {
  Builder b = builder(3, 0, 4);
  b.send(1, Buffer::kInput, {0});
  b.send(2, Buffer::kInput, {0});
  b.send(1, Buffer::kInput, {1});
  b.receive(1, Buffer::kTemp, {2});
  b.combine(Buffer::kTemp, {3}, {message(2), message(1)});
  EXPECT_EQ(to_text(finished(b)),
            "0 send input[0] to 1\n"
            "1 send input[0] to 2\n"
            "2 send input[1] to 1  after 0*\n"
            "3 combine temp[2] <- message(1)\n"
            "4 combine temp[3] <- message(2) + message(1)  after 3*\n");
}

TEST(Builder, CopyOfTheInputHoldsNobodyUp) {
  Builder b = builder(4, 0, 1);
  b.send(1, Buffer::kInput, {0});
  b.copy(Buffer::kOutput, {0}, Buffer::kInput, 0);
  b.send(2, Buffer::kInput, {0});
  b.send(3, Buffer::kOutput, {0});
  EXPECT_EQ(to_text(finished(b)),
            "0 send input[0] to 1\n"
            "1 combine output[0] <- input[0]\n"
            "2 send input[0] to 2\n"
            "3 send output[0] to 3  after 1\n");
}

TEST(Builder, WriterAfterCopyOfTheInputWaitsForCopyAndReaders) {
  Builder b = builder(3, 0, 1);
  b.send(1, Buffer::kInput, {0});
  b.copy(Buffer::kOutput, {0}, Buffer::kInput, 0);
  b.receive(2, Buffer::kOutput, {0});
  EXPECT_EQ(to_text(finished(b), 2), "2 combine output[0] <- message(2)  after 1,0");
}

TEST(Builder, CopyToAnotherBlockIsAHazardToReadersOfTheInput) {
  Builder b = builder(3, 0, 2);
  b.send(1, Buffer::kInput, {1});
  b.copy(Buffer::kOutput, {1}, Buffer::kInput, 0);
  EXPECT_EQ(to_text(finished(b), 1), "1 combine output[1] <- input[0]  after 0");
}

TEST(Builder, DropsWhatOthersImply) {
  Builder b = builder(3, 0, 1);
  b.combine(Buffer::kWork, {0}, {message(1), local(Buffer::kInput, 0)});
  b.send(2, Buffer::kWork, {0});
  b.receive(2, Buffer::kOutput, {0});  // waits for the send, which waits for the combine
  EXPECT_EQ(to_text(finished(b), 2), "2 combine output[0] <- message(2)  after 1");
}

TEST(Builder, KeepsAWholeDependencyThatOnlyChunksWouldImply) {
  Builder b = builder(3, 0, 1);
  b.receive(1, Buffer::kOutput, {0});
  b.send(2, Buffer::kOutput, {0});
  b.receive(1, Buffer::kOutput, {0});  // the message's order needs all of step 0
  EXPECT_EQ(to_text(finished(b), 2), "2 combine output[0] <- message(1)  after 1,0*");
}

TEST(Builder, CountsBlocksModuloTheirNumber) {
  Builder b = builder(3, 0, 3);
  b.send(1, Buffer::kInput, {-1});
  b.combine(Buffer::kOutput, {5, 2}, {message(1), local(Buffer::kInput, -4)});
  const Plan plan = finished(b);
  EXPECT_EQ(to_text(plan, 0), "0 send input[2] to 1");
  EXPECT_EQ(to_text(plan, 1), "1 combine output[2..0] <- message(1) + input[2..0]  after 0*");
}

TEST(Builder, MarksFanOut) {
  Builder b = builder(4, 0, 1);
  const int peers[] = {2, 3, 1};
  b.send_to_all(peers, Buffer::kInput, {0});
  const Plan plan = finished(b);
  ASSERT_EQ(plan.steps.size(), 3u);
  EXPECT_FALSE(plan.steps[0].fan_out);
  EXPECT_TRUE(plan.steps[1].fan_out);
  EXPECT_TRUE(plan.steps[2].fan_out);
  EXPECT_EQ(to_text(plan, 2), "2 send input[0] to 1 too");
}

TEST(Builder, TextShowsWidthAndEnd) {
  Builder b = builder(2, 0, 1);
  b.combine(Buffer::kOutput, {0}, {wide_message(1), local(Buffer::kInput, 0)}, true);
  EXPECT_EQ(to_text(finished(b)), "0 finalize output[0] <- wide message(1) + input[0]\n");
}

TEST(Arithmetic, FloorPowerOfTwo) {
  for (int n = 1; n < 2000; ++n) {
    const int power = floor_power_of_two(n);
    EXPECT_LE(power, n);
    EXPECT_GT(2 * power, n);
    EXPECT_EQ(power & (power - 1), 0);
  }
}

TEST(Arithmetic, FoldCoversEachRankAndBlockOnce) {
  for (int n = 1; n < 200; ++n) {
    const Fold fold(n);
    EXPECT_EQ(fold.power + fold.extra, n);
    int next = 0;
    for (int p = 0; p < fold.power; ++p) {
      EXPECT_EQ(fold.participant(fold.rank(p)), p);
      const BlockRange own = fold.blocks(p, 1);
      EXPECT_EQ(own.first, next);
      EXPECT_EQ(own.count, fold.is_pair(p) ? 2 : 1);
      EXPECT_EQ(own.first + own.count - 1, fold.rank(p));
      next += own.count;
      if (fold.is_pair(p)) {
        EXPECT_EQ(fold.participant(fold.rank(p) - 1), -1);
      }
    }
    EXPECT_EQ(next, n);
  }
}

TEST(Arithmetic, BinomialTreeReachesEachRankOnce) {
  for (int n = 1; n < 70; ++n) {
    for (int root = 0; root < n; ++root) {
      std::vector<int> parents(n, 0);
      for (int r = 0; r < n; ++r) {
        const BinomialTree tree(n, r, root);
        EXPECT_EQ(tree.parent < 0, r == root);
        for (const int child : tree.children) {
          ++parents[child];
          const BinomialTree below(n, child, root);
          EXPECT_EQ(below.parent, r);
          EXPECT_EQ(tree.is_leaf(child), below.children.empty());
        }
      }
      for (int r = 0; r < n; ++r) EXPECT_EQ(parents[r], r == root ? 0 : 1);
    }
  }
}

}  // namespace
}  // namespace hetccl::coll

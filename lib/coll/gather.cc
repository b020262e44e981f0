// Gathers to one rank and scatters from one: straight, or along a binomial tree.
#include <vector>

#include "lib/coll/algorithms.h"
#include "lib/coll/arithmetic.h"

namespace hetccl::coll {

// Every rank sends its block to the root.
// 1 round; the root receives n-1 messages, (n-1)/n of the vector.
void direct_gather(Builder& b) {
  if (b.rank() != b.root()) return b.send(b.root(), Buffer::kInput, {b.rank()});
  b.copy(Buffer::kOutput, {b.rank()}, Buffer::kInput, b.rank());
  for (int i = 1; i < b.ranks(); ++i) {
    const int q = (b.rank() + i) % b.ranks();
    b.receive(q, Buffer::kOutput, {q});
  }
}

// The root sends every rank its block.
// 1 round; the root sends n-1 messages, (n-1)/n of the vector.
void direct_scatter(Builder& b) {
  if (b.rank() != b.root()) return b.receive(b.root(), Buffer::kOutput, {b.rank()});
  for (int i = 1; i < b.ranks(); ++i) {
    const int q = (b.rank() + i) % b.ranks();
    b.send(q, Buffer::kInput, {q});
  }
  b.copy(Buffer::kOutput, {b.rank()}, Buffer::kInput, b.rank());
}

// Each rank collects the blocks of its subtree, which are those of consecutive ranks, and hands
// them to its parent in one message.
// ceil(log2 n) rounds; the root receives that many messages, (n-1)/n of the vector; a block crosses
// up to log2 n links.
void binomial_gather(Builder& b) {
  const BinomialTree tree(b.ranks(), b.rank(), b.root());
  if (tree.size == 1) return b.send(tree.parent, Buffer::kInput, {b.rank()});
  const bool root = tree.parent < 0;
  const Buffer collected = root ? Buffer::kOutput : Buffer::kTemp;
  b.copy(collected, {b.rank()}, Buffer::kInput, b.rank());
  for (int child : tree.children) b.receive(child, collected, {child, tree.size_of(child)});
  if (!root) b.send(tree.parent, collected, {b.rank(), tree.size});
}

// The same the other way: each rank gets the blocks of its subtree and passes on those of its
// children's, the largest first.
// ceil(log2 n) rounds; the root sends that many messages, (n-1)/n of the vector.
void binomial_scatter(Builder& b) {
  const BinomialTree tree(b.ranks(), b.rank(), b.root());
  if (tree.size == 1) return b.receive(tree.parent, Buffer::kOutput, {b.rank()});
  const bool root = tree.parent < 0;
  const Buffer from = root ? Buffer::kInput : Buffer::kTemp;
  if (!root) b.receive(tree.parent, from, {b.rank(), tree.size});
  const std::vector<int> farthest_first(tree.children.rbegin(), tree.children.rend());
  for (int child : farthest_first) b.send(child, from, {child, tree.size_of(child)});
  b.copy(Buffer::kOutput, {b.rank()}, from, b.rank());
}

}  // namespace hetccl::coll

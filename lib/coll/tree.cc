// Trees and dissemination: about log2 n rounds.
#include <vector>

#include "lib/coll/algorithms.h"
#include "lib/coll/arithmetic.h"

namespace hetccl::coll {

// Each rank that has the vector hands it to its children, the largest subtree first.
// ceil(log2 n) rounds; the root sends the vector that many times.
void binomial_broadcast(Builder& b) {
  const BinomialTree tree(b.ranks(), b.rank(), b.root());
  const bool root = tree.parent < 0;
  if (!root) b.receive(tree.parent, Buffer::kOutput, {0});
  const std::vector<int> farthest_first(tree.children.rbegin(), tree.children.rend());
  b.send_to_all(farthest_first, root ? Buffer::kInput : Buffer::kOutput, {0});
  if (root) b.copy(Buffer::kOutput, {0}, Buffer::kInput, 0);
}

// Each rank adds its own vector and those of its children's subtrees in one step, and hands the
// partial to its parent; a leaf hands on its bare contribution.
// ceil(log2 n) rounds; the root receives the vector that many times.
void binomial_reduce(Builder& b) {
  const BinomialTree tree(b.ranks(), b.rank(), b.root());
  if (tree.children.empty()) return b.send(tree.parent, Buffer::kInput, {0});
  std::vector<Operand> operands = {local(Buffer::kInput, 0)};
  for (int child : tree.children) {
    operands.push_back(tree.is_leaf(child) ? message(child) : wide_message(child));
  }
  const bool root = tree.parent < 0;
  b.combine(root ? Buffer::kOutput : Buffer::kWork, {0}, operands, root);
  if (!root) b.send(tree.parent, Buffer::kWork, {0});
}

// A rank holds `held` consecutive blocks from its own on; it sends them to the rank that many below
// and receives as many from the rank that many above. Blocks are numbered modulo n, so everything
// lands in its place and nothing is rotated at the end.
// ceil(log2 n) rounds; (n-1)/n of the vector.
// Bruck et al., "Efficient algorithms for all-to-all communications in multiport message-passing
// systems", 1997.
void bruck_all_gather(Builder& b) {
  const int n = b.ranks();
  b.copy(Buffer::kOutput, {b.rank()}, Buffer::kInput, b.rank());
  for (int held = 1; held < n; held *= 2) {
    const int count = held < n - held ? held : n - held;
    b.send((b.rank() + n - held) % n, held == 1 ? Buffer::kInput : Buffer::kOutput,
           {b.rank(), count});
    b.receive((b.rank() + held) % n, Buffer::kOutput, {b.rank() + held, count});
  }
}

// In round k every rank tells the rank 2^k above that it, and all that it has heard from, are here.
// The empty messages go through one block, whose dependencies order the rounds.
// ceil(log2 n) rounds; no bytes. Hensgen, Finkel, Manber, "Two algorithms for barrier
// synchronization", 1988.
void dissemination_barrier(Builder& b) {
  const int n = b.ranks();
  for (int distance = 1; distance < n; distance *= 2) {
    b.send((b.rank() + distance) % n, Buffer::kTemp, {0});
    b.receive((b.rank() + n - distance) % n, Buffer::kTemp, {0});
  }
}

}  // namespace hetccl::coll

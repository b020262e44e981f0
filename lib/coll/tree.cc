// Trees and dissemination: about log2 n rounds.
#include <algorithm>
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

// A block for the rank i above has i ranks to go, and lies at place n-i of temp. In round k all
// blocks with bit k in i travel 2^k ranks together: they are packed into the front of the output,
// which nobody reads before the end; what arrives behind them is unpacked into the same places.
// Each ends, with i ranks behind it, i places below the rank's own; so in the last round, whose
// blocks are consecutive, it arrives where it belongs. ceil(log2 n) rounds; each rank sends about
// half its input in each, and copies as much: for the smallest blocks. Source as for the
// all-gather.
void bruck_all_to_all(Builder& b) {
  const int n = b.ranks();
  for (int place = 0; place < n; ++place) {
    b.copy(Buffer::kTemp, {place}, Buffer::kInput, b.rank() - place);
  }
  const auto run_of = [n](int low, int bit) {  // of the blocks with low <= i < low + bit
    const int count = std::min(bit, n - low);
    return BlockRange{n - low - count + 1, count};
  };
  int bit = 1;
  for (; 2 * bit < n; bit *= 2) {
    int packed = 0;
    for (int low = bit; low < n; low += 2 * bit) {
      const BlockRange run = run_of(low, bit);
      b.copy(Buffer::kOutput, {packed, run.count}, Buffer::kTemp, run.first);
      packed += run.count;
    }
    b.send((b.rank() + bit) % n, Buffer::kOutput, {0, packed});
    b.receive((b.rank() + n - bit) % n, Buffer::kOutput, {packed, packed});
    for (int low = bit, at = packed; low < n; low += 2 * bit) {
      const BlockRange run = run_of(low, bit);
      b.copy(Buffer::kTemp, run, Buffer::kOutput, at);
      at += run.count;
    }
  }
  const BlockRange last = run_of(bit, bit);
  b.send((b.rank() + bit) % n, Buffer::kTemp, last);
  b.receive((b.rank() + n - bit) % n, Buffer::kOutput, {b.rank() + last.first, last.count});
  b.copy(Buffer::kOutput, {b.rank() + n - bit + 1, bit}, Buffer::kTemp, n - bit + 1);
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

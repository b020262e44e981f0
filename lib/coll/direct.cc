// Direct algorithms: data go from the rank that has them to the rank that needs them, in one hop.
// Sums are combined in rank order in one step, so they round once and no partials travel. Fan-out
// begins at the next rank, so that not everyone turns to rank 0 first.
#include <vector>

#include "lib/coll/algorithms.h"

namespace hetccl::coll {
namespace {

std::vector<int> others(const Builder& b) {
  std::vector<int> ranks;
  for (int i = 1; i < b.ranks(); ++i) ranks.push_back((b.rank() + i) % b.ranks());
  return ranks;
}

// What all ranks contribute to `block`, in rank order: this rank's from its input, the others' from
// their messages.
std::vector<Operand> contributions(const Builder& b, int block) {
  std::vector<Operand> operands;
  for (int q = 0; q < b.ranks(); ++q) {
    operands.push_back(q == b.rank() ? local(Buffer::kInput, block) : message(q));
  }
  return operands;
}

}  // namespace

// Every rank sends each block straight to its owner, who combines all contributions at once.
// 1 round; each rank sends (n-1)/n of the vector, in n-1 messages, all of them contributions.
void direct_reduce_scatter(Builder& b, Buffer result) {
  for (int p : others(b)) b.send(p, Buffer::kInput, {p});
  b.combine(result, {b.rank()}, contributions(b, b.rank()), true);
}

// Every rank sends its block to all others.
// 1 round; each rank sends its block n-1 times, (n-1)/n of the vector.
void direct_all_gather(Builder& b, Buffer own) {
  b.send_to_all(others(b), own, {b.rank()});
  for (int i = 1; i < b.ranks(); ++i) {
    const int q = (b.rank() + b.ranks() - i) % b.ranks();
    b.receive(q, Buffer::kOutput, {q});
  }
}

// Every rank sends its whole vector to all others, and each combines everything for itself.
// 1 round; each rank sends the vector n-1 times: for the smallest vectors.
void one_shot_all_reduce(Builder& b) {
  b.send_to_all(others(b), Buffer::kInput, {0});
  b.combine(Buffer::kOutput, {0}, contributions(b, 0), true);
}

// The root sends the vector to all others.
// 1 round; the root sends the vector n-1 times: for memory that all ranks share.
void direct_broadcast(Builder& b) {
  if (b.rank() != b.root()) return b.receive(b.root(), Buffer::kOutput, {0});
  b.send_to_all(others(b), Buffer::kInput, {0});
  b.copy(Buffer::kOutput, {0}, Buffer::kInput, 0);
}

// All ranks send their vector to the root, who combines everything at once.
// 1 round; the root receives the vector n-1 times.
void direct_reduce(Builder& b) {
  if (b.rank() != b.root()) return b.send(b.root(), Buffer::kInput, {0});
  b.combine(Buffer::kOutput, {0}, contributions(b, 0), true);
}

// The root hands block p to rank p, and every rank hands its block to all others but the root.
// 2 rounds; each rank sends less than the vector once, the root less than twice.
void scatter_direct_broadcast(Builder& b) {
  const int root = b.root();
  if (b.rank() == root) {
    for (int p : others(b)) b.send(p, Buffer::kInput, {p});
    b.send_to_all(others(b), Buffer::kInput, {root});
    return b.copy(Buffer::kOutput, {0, b.blocks()}, Buffer::kInput, 0);
  }
  b.receive(root, Buffer::kOutput, {b.rank()});
  std::vector<int> peers = others(b);
  std::erase(peers, root);
  b.send_to_all(peers, Buffer::kOutput, {b.rank()});
  for (int i = 1; i < b.ranks(); ++i) {
    const int q = (b.rank() + b.ranks() - i) % b.ranks();
    b.receive(q, Buffer::kOutput, {q});
  }
}

// After a reduce-scatter that left block r in temp of rank r, and the root's in its output: all
// hand their results to the root.
// 1 round; the root receives (n-1)/n of the vector.
void gather_results(Builder& b) {
  if (b.rank() != b.root()) return b.send(b.root(), Buffer::kTemp, {b.rank()});
  for (int q : others(b)) b.receive(q, Buffer::kOutput, {q});
}

// Every rank sends block p to rank p.
// 1 round; each rank sends (n-1)/n of its input. In place, a block is received only when its
// predecessor in the same memory has left: so messages must be buffered.
void direct_all_to_all(Builder& b) {
  for (int p : others(b)) b.send(p, Buffer::kInput, {p});
  b.copy(Buffer::kOutput, {b.rank()}, Buffer::kInput, b.rank());
  for (int i = 1; i < b.ranks(); ++i) {
    const int q = (b.rank() + b.ranks() - i) % b.ranks();
    b.receive(q, Buffer::kOutput, {q});
  }
}

// As above, but of two ranks the higher one receives into temp, so that the lower one's block can
// leave without a buffer in between; then the other block goes straight to where the first was.
// 2 rounds, the same bytes, and a copy of half the blocks.
void pairwise_all_to_all(Builder& b) {
  for (int p : others(b)) {
    if (b.rank() < p) {
      b.send(p, Buffer::kInput, {p});
    } else {
      b.receive(p, Buffer::kTemp, {p});
    }
  }
  b.copy(Buffer::kOutput, {b.rank()}, Buffer::kInput, b.rank());
  for (int p : others(b)) {
    if (b.rank() < p) {
      b.receive(p, Buffer::kOutput, {p});
    } else {
      b.send(p, Buffer::kInput, {p});
      b.copy(Buffer::kOutput, {p}, Buffer::kTemp, p);
    }
  }
}

}  // namespace hetccl::coll

// Rings and chains: every rank talks to its two neighbours only, and all links carry data at once.
#include "lib/coll/algorithms.h"

namespace hetccl::coll {
namespace {

int right_of(const Builder& b) { return (b.rank() + 1) % b.ranks(); }
int left_of(const Builder& b) { return (b.rank() + b.ranks() - 1) % b.ranks(); }

}  // namespace

// Block b starts at rank b+1 as its bare contribution and travels once around the ring; every rank
// on the way adds its own, and the owner, rank b, comes last and finalizes.
// n-1 rounds; each rank sends (n-1)/n of the vector, all but the first block as partials.
// Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009.
void ring_reduce_scatter(Builder& b, Buffer result) {
  const int n = b.ranks();
  b.send(right_of(b), Buffer::kInput, {b.rank() - 1});
  for (int k = 1; k < n; ++k) {
    const int block = b.rank() - 1 - k;
    const bool last = k == n - 1;
    const Operand partial = k == 1 ? message(left_of(b)) : wide_message(left_of(b));
    b.combine(last ? result : Buffer::kWork, {block}, {partial, local(Buffer::kInput, block)},
              last);
    if (!last) b.send(right_of(b), Buffer::kWork, {block});
  }
}

// Every rank passes on what came from its left, beginning with its own block.
// n-1 rounds; each rank sends (n-1)/n of the vector. Same source.
void ring_all_gather(Builder& b, Buffer own) {
  const int n = b.ranks();
  b.send(right_of(b), own, {b.rank()});
  for (int k = 1; k < n; ++k) {
    b.receive(left_of(b), Buffer::kOutput, {b.rank() - k});
    if (k < n - 1) b.send(right_of(b), Buffer::kOutput, {b.rank() - k});
  }
}

// The vector runs through all ranks one after the other, beginning at the root; as dependencies
// hold chunk by chunk, a rank passes a chunk on while the next one arrives.
// n-1 rounds for the first chunk, one more for each further chunk; each link carries the vector
// once. The pipelined linear tree of the textbooks.
void chain_broadcast(Builder& b) {
  const bool root = b.rank() == b.root();
  if (!root) b.receive(left_of(b), Buffer::kOutput, {0});
  if (right_of(b) != b.root()) {
    b.send(right_of(b), root ? Buffer::kInput : Buffer::kOutput, {0});
  }
  if (root) b.copy(Buffer::kOutput, {0}, Buffer::kInput, 0);
}

// Partials run from rank 0 to rank n-1, chunk after chunk, so that contributions are added in rank
// order; the last rank finalizes and hands the result to the root.
// n-1 rounds (one more where the root is not the last); each link carries the vector once.
void chain_reduce(Builder& b) {
  const int last = b.ranks() - 1;
  if (b.rank() == 0) {
    b.send(1, Buffer::kInput, {0});
  } else {
    const Operand partial = b.rank() == 1 ? message(0) : wide_message(b.rank() - 1);
    const Buffer result = b.root() == last ? Buffer::kOutput : Buffer::kTemp;
    b.combine(b.rank() == last ? result : Buffer::kWork, {0}, {partial, local(Buffer::kInput, 0)},
              b.rank() == last);
    if (b.rank() != last) b.send(b.rank() + 1, Buffer::kWork, {0});
  }
  if (b.root() == last) return;
  if (b.rank() == last) b.send(b.root(), Buffer::kTemp, {0});
  if (b.rank() == b.root()) b.receive(last, Buffer::kOutput, {0});
}

// The root hands block p to rank p; then the blocks go around as in the ring all-gather, except
// that the root receives nothing: it feeds its right neighbour from its own input.
// n rounds; the root sends 2(n-1)/n of the vector, the others at most (n-1)/n.
// Barnett et al., "Building a high-performance collective communication library", 1994.
void scatter_ring_broadcast(Builder& b) {
  const int n = b.ranks();
  if (b.rank() == b.root()) {
    for (int i = 1; i < n; ++i) {
      const int p = (b.rank() + i) % n;
      b.send(p, Buffer::kInput, {p});
    }
    for (int k = 0; k < n - 1; ++k) b.send(right_of(b), Buffer::kInput, {b.rank() - k});
    b.copy(Buffer::kOutput, {0, n}, Buffer::kInput, 0);
    return;
  }
  const bool passes_on = right_of(b) != b.root();
  b.receive(b.root(), Buffer::kOutput, {b.rank()});
  if (passes_on) b.send(right_of(b), Buffer::kOutput, {b.rank()});
  for (int k = 1; k < n; ++k) {
    b.receive(left_of(b), Buffer::kOutput, {b.rank() - k});
    if (passes_on && k < n - 1) b.send(right_of(b), Buffer::kOutput, {b.rank() - k});
  }
}

}  // namespace hetccl::coll

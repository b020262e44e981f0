// Recursive halving and doubling: log2 n rounds of exchanges between partners that differ in one
// bit. Ranks beyond a power of two join through a partner that takes part for both (see Fold).
// In every exchange the lower side is the left operand, so that both sides build one order.
// Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH",
// 2005.
#include "lib/coll/algorithms.h"
#include "lib/coll/arithmetic.h"

namespace hetccl::coll {
namespace {

// A rank that does not take part hands its whole input to its partner, who adds its own. False:
// this rank does not take part. 1 round; the whole vector.
bool fold_input(Builder& b, const Fold& fold) {
  const int participant = fold.participant(b.rank());
  if (participant < 0) {
    b.send(b.rank() + 1, Buffer::kInput, {0, b.blocks()});
    return false;
  }
  if (fold.is_pair(participant)) {
    b.combine(Buffer::kWork, {0, b.blocks()}, {message(b.rank() - 1), local(Buffer::kInput, 0)});
  }
  return true;
}

void combine_in_order(Builder& b, bool mine_first, Buffer to, BlockRange blocks, Operand mine,
                      Operand theirs, bool finalize) {
  if (mine_first) {
    b.combine(to, blocks, {mine, theirs}, finalize);
  } else {
    b.combine(to, blocks, {theirs, mine}, finalize);
  }
}

// Each participant keeps the half of its blocks that holds its own and sends the other half, as
// partials, to its partner; then halves again. The last round leaves its own blocks in `last_to`.
// log2 n rounds; (n-1)/n of the vector.
void halve(Builder& b, const Fold& fold, Buffer last_to, bool finalize) {
  const int me = fold.participant(b.rank());
  Buffer from = fold.is_pair(me) ? Buffer::kWork : Buffer::kInput;
  for (int half = fold.power / 2; half > 0; half /= 2) {
    const int partner = me ^ half;
    const int peer = fold.rank(partner);
    const BlockRange mine = fold.blocks(me & ~(half - 1), half);
    const bool wide = half < fold.power / 2 || fold.is_pair(partner);
    const bool last = half == 1;
    b.send(peer, from, fold.blocks(partner & ~(half - 1), half));
    combine_in_order(b, me < partner, last ? last_to : Buffer::kWork, mine, local(from, mine.first),
                     wide ? wide_message(peer) : message(peer), last && finalize);
    from = Buffer::kWork;
  }
}

// Participants exchange all that they have, each time with a partner twice as far.
// log2 n rounds; (n-1)/n of the vector.
void double_up(Builder& b, const Fold& fold) {
  const int me = fold.participant(b.rank());
  for (int held = 1; held < fold.power; held *= 2) {
    const int partner = me ^ held;
    const int peer = fold.rank(partner);
    b.send(peer, Buffer::kOutput, fold.blocks(me & ~(held - 1), held));
    b.receive(peer, Buffer::kOutput, fold.blocks(partner & ~(held - 1), held));
  }
}

// A rank that did not take part gets the result from its partner. 1 round.
void unfold(Builder& b, const Fold& fold, BlockRange blocks) {
  const int participant = fold.participant(b.rank());
  if (participant < 0) {
    b.receive(b.rank() + 1, Buffer::kOutput, blocks);
  } else if (fold.is_pair(participant)) {
    b.send(b.rank() - 1, Buffer::kOutput, blocks);
  }
}

}  // namespace

// A participant that stands for two ranks ends with the partials of two blocks: it finalizes its
// own and hands the other, still a partial, to its partner.
void halving_reduce_scatter(Builder& b) {
  const Fold fold(b.ranks());
  if (!fold_input(b, fold)) {
    return b.combine(Buffer::kOutput, {b.rank()}, {wide_message(b.rank() + 1)}, true);
  }
  const bool pair = fold.is_pair(fold.participant(b.rank()));
  halve(b, fold, pair ? Buffer::kWork : Buffer::kOutput, !pair);
  if (pair) {
    b.send(b.rank() - 1, Buffer::kWork, {b.rank() - 1});
    b.combine(Buffer::kOutput, {b.rank()}, {local(Buffer::kWork, b.rank())}, true);
  }
}

// log2 n rounds, two more where n is not a power of two; the blocks that a rank outside the power
// of two lacks reach it in one message.
void doubling_all_gather(Builder& b) {
  const Fold fold(b.ranks());
  const int participant = fold.participant(b.rank());
  const int n = b.ranks();
  b.copy(Buffer::kOutput, {b.rank()}, Buffer::kInput, b.rank());
  if (participant < 0) {
    b.send(b.rank() + 1, Buffer::kInput, {b.rank()});
    return unfold(b, fold, {b.rank() + 1, n - 1});
  }
  if (fold.is_pair(participant)) b.receive(b.rank() - 1, Buffer::kOutput, {b.rank() - 1});
  double_up(b, fold);
  unfold(b, fold, {b.rank(), n - 1});
}

// Halving, then doubling: 2 log2 n rounds, 2(n-1)/n of the vector.
void halving_doubling_all_reduce(Builder& b) {
  const Fold fold(b.ranks());
  if (fold_input(b, fold)) {
    halve(b, fold, Buffer::kOutput, true);
    double_up(b, fold);
  }
  unfold(b, fold, {0, b.blocks()});
}

// Partners exchange their whole partial vectors; after round k each has the sum of 2^k ranks.
// log2 n rounds, the vector in each: for small vectors. A partial is overwritten while its copy is
// under way, so messages must be buffered.
void recursive_doubling_all_reduce(Builder& b) {
  const Fold fold(b.ranks());
  if (fold_input(b, fold)) {
    const int me = fold.participant(b.rank());
    Buffer from = fold.is_pair(me) ? Buffer::kWork : Buffer::kInput;
    for (int distance = 1; distance < fold.power; distance *= 2) {
      const int partner = me ^ distance;
      const int peer = fold.rank(partner);
      const bool wide = distance > 1 || fold.is_pair(partner);
      const bool last = distance == fold.power / 2;
      b.send(peer, from, {0});
      combine_in_order(b, me < partner, last ? Buffer::kOutput : Buffer::kWork, {0}, local(from, 0),
                       wide ? wide_message(peer) : message(peer), last);
      from = Buffer::kWork;
    }
  }
  unfold(b, fold, {0});
}

}  // namespace hetccl::coll

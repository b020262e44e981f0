// Prefix sums: rank r gets what ranks 0 to r (inclusive scan) or 0 to r-1 (exclusive) give,
// combined in the order of ranks. A prefix of one rank is that rank's data, bit for bit; rank 0
// gets nothing from an exclusive scan.
#include <numeric>
#include <vector>

#include "lib/coll/algorithms.h"

namespace hetccl::coll {
namespace {

// An inclusive scan over the ranks from `begin` on, whose contributions lie in `own`. After round k
// a rank holds the partial of the 2^k ranks up to it, or of all: it hands that to the rank 2^k
// above and puts what comes from as far below before it. Hillis, Steele, "Data parallel
// algorithms", 1986.
void doubling_scan(Builder& b, int begin, Buffer own) {
  const int place = b.rank() - begin, places = b.ranks() - begin;
  Buffer from = own;
  bool done = false;
  for (int distance = 1; distance < places; distance *= 2) {
    if (place + distance < places) b.send(b.rank() + distance, from, {0});
    if (place < distance) continue;
    const int below = b.rank() - distance;
    const bool bare = distance == 1 || below == begin;
    const bool complete = place < 2 * distance;
    done = complete && place + 2 * distance >= places;
    b.combine(done ? Buffer::kOutput : Buffer::kWork, {0},
              {bare ? message(below) : wide_message(below), local(from, 0)}, done);
    from = Buffer::kWork;
  }
  if (done || from == Buffer::kOutput) return;
  if (from == Buffer::kWork) {
    b.combine(Buffer::kOutput, {0}, {local(Buffer::kWork, 0)}, true);
  } else {
    b.copy(Buffer::kOutput, {0}, from, 0);
  }
}

// Every rank sends its contribution to all above it.
void send_up(Builder& b) {
  std::vector<int> above(b.ranks() - 1 - b.rank());
  std::iota(above.begin(), above.end(), b.rank() + 1);
  b.send_to_all(above, Buffer::kInput, {0});
}

std::vector<Operand> from_below(const Builder& b) {
  std::vector<Operand> operands;
  for (int q = 0; q < b.rank(); ++q) operands.push_back(message(q));
  return operands;
}

}  // namespace

// Every rank sends its vector to all above it, and each combines for itself.
// 1 round; rank 0 sends the vector n-1 times: for the smallest vectors.
void direct_scan(Builder& b) {
  send_up(b);
  if (b.rank() == 0) return b.copy(Buffer::kOutput, {0}, Buffer::kInput, 0);
  std::vector<Operand> operands = from_below(b);
  operands.push_back(local(Buffer::kInput, 0));
  b.combine(Buffer::kOutput, {0}, operands, true);
}

void direct_exscan(Builder& b) {
  send_up(b);
  if (b.rank() > 0) b.combine(Buffer::kOutput, {0}, from_below(b), b.rank() > 1);
}

// ceil(log2 n) rounds; most ranks send the vector in each.
void doubling_inclusive_scan(Builder& b) { doubling_scan(b, 0, Buffer::kInput); }

// Every rank hands its contribution to the next; then an inclusive scan of what arrived.
// 1 + ceil(log2 (n-1)) rounds, the vector in each.
void doubling_exscan(Builder& b) {
  if (b.rank() + 1 < b.ranks()) b.send(b.rank() + 1, Buffer::kInput, {0});
  if (b.rank() == 0) return;
  const Buffer own = b.rank() == 1 ? Buffer::kOutput : Buffer::kTemp;
  b.receive(b.rank() - 1, own, {0});
  doubling_scan(b, 1, own);
}

// Partials run from rank 0 to rank n-1, chunk after chunk; every rank adds its own and keeps a
// result.
// n-1 rounds for the first chunk, one more for each further chunk; each link carries the vector
// once.
void chain_scan(Builder& b) {
  if (b.rank() == 0) {
    b.send(1, Buffer::kInput, {0});
    return b.copy(Buffer::kOutput, {0}, Buffer::kInput, 0);
  }
  const bool last = b.rank() == b.ranks() - 1;
  const Operand partial = b.rank() == 1 ? message(0) : wide_message(b.rank() - 1);
  b.combine(last ? Buffer::kOutput : Buffer::kWork, {0}, {partial, local(Buffer::kInput, 0)}, last);
  if (last) return;
  b.send(b.rank() + 1, Buffer::kWork, {0});
  b.combine(Buffer::kOutput, {0}, {local(Buffer::kWork, 0)}, true);
}

// As above; what arrives is the rank's result, and with its own contribution what it hands on. In
// place the result takes the contribution's memory, so a copy of that is made while the first
// partial is still on its way.
void chain_exscan(Builder& b) {
  if (b.rank() == 0) return b.send(1, Buffer::kInput, {0});
  const bool last = b.rank() == b.ranks() - 1;
  const int below = b.rank() - 1;
  if (!last) b.copy(Buffer::kTemp, {0}, Buffer::kInput, 0);
  if (b.rank() == 1) {
    b.receive(below, Buffer::kOutput, {0});
  } else if (last) {
    b.combine(Buffer::kOutput, {0}, {wide_message(below)}, true);
  } else {
    b.combine(Buffer::kWork, {0}, {wide_message(below)});
    b.combine(Buffer::kOutput, {0}, {local(Buffer::kWork, 0)}, true);
  }
  if (last) return;
  const Buffer before = b.rank() == 1 ? Buffer::kOutput : Buffer::kWork;
  b.combine(Buffer::kWork, {0}, {local(before, 0), local(Buffer::kTemp, 0)});
  b.send(b.rank() + 1, Buffer::kWork, {0});
}

}  // namespace hetccl::coll

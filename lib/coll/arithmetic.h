// Rank and block arithmetic that algorithms share. Pure functions of rank counts.
#pragma once

#include <algorithm>
#include <vector>

#include "lib/coll/plan.h"

namespace hetccl::coll {

// The largest power of two that is at most n. REQUIRES: n > 0.
constexpr int floor_power_of_two(int n) {
  int power = 1;
  while (power <= n / 2) power *= 2;
  return power;
}

// Maps any number of ranks to a power of two of participants: the first 2 * extra ranks form pairs,
// in which the odd rank takes part for both. Participants keep the order of ranks, and the blocks
// that consecutive participants stand for are consecutive.
struct Fold {
  explicit constexpr Fold(int ranks) : power(floor_power_of_two(ranks)), extra(ranks - power) {}

  // -1 for a rank whose partner takes part for it.
  constexpr int participant(int rank) const {
    if (rank >= 2 * extra) return rank - extra;
    return rank % 2 == 1 ? rank / 2 : -1;
  }
  constexpr int rank(int participant) const {
    return participant < extra ? 2 * participant + 1 : participant + extra;
  }
  constexpr bool is_pair(int participant) const { return participant < extra; }
  // Where there is one block a rank: those of participants first, first+1, ..., `count` of them.
  constexpr BlockRange blocks(int first, int count) const {
    return {first_block(first), first_block(first + count) - first_block(first)};
  }

  int power;
  int extra;

 private:
  constexpr int first_block(int participant) const {
    return participant < extra ? 2 * participant : participant + extra;
  }
};

// A rank's place in the binomial tree over all ranks with `root` at the top: the subtree of a child
// at distance d holds the (up to d) ranks that follow the child.
struct BinomialTree {
  BinomialTree(int ranks, int rank, int root) : ranks_(ranks), root_(root) {
    const int relative = (rank - root + ranks) % ranks;
    int distance = 1;
    for (; distance < ranks && (relative & distance) == 0; distance *= 2) {
      if (relative + distance < ranks) children.push_back((rank + distance) % ranks);
    }
    if (relative != 0) parent = (rank - distance + ranks) % ranks;
    size = std::min(distance, ranks - relative);
  }
  // Whether a child has no children of its own.
  bool is_leaf(int child) const {
    const int relative = (child - root_ + ranks_) % ranks_;
    return relative % 2 == 1 || relative + 1 == ranks_;
  }

  // Ranks of a child's subtree: the child and those that follow it.
  int size_of(int child) const { return BinomialTree(ranks_, child, root_).size; }

  int parent = -1;            // -1: the root
  int size = 1;               // ranks of the own subtree
  std::vector<int> children;  // nearest first

 private:
  int ranks_, root_;
};

}  // namespace hetccl::coll

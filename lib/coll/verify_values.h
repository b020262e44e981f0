// What blocks hold while plans run symbolically. Private to verify.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace hetccl::coll {

// Values are numbered, and equal numbers mean equal trees: 0 is "never written"; 1..n are the bare
// contributions of ranks 0..n-1; the others are (left + right) or the result of finalizing one.
class Values {
 public:
  using Id = uint32_t;
  static constexpr Id kUnwritten = 0;

  explicit Values(int ranks) : words_((ranks + 63) / 64) {
    nodes_.resize(1 + ranks);
    bits_.resize(static_cast<size_t>(1 + ranks) * words_);
    for (int r = 0; r < ranks; ++r) {
      nodes_[1 + r] = {1, false, r, r, true};
      bits_[static_cast<size_t>(1 + r) * words_ + r / 64] |= uint64_t{1} << (r % 64);
    }
  }

  Id contribution(int rank) const { return 1 + static_cast<Id>(rank); }
  bool is_final(Id id) const { return nodes_[id].final; }
  int contributions(Id id) const { return nodes_[id].contributions; }
  // Of consecutive ranks from 0, each left of the next, whatever the parentheses.
  bool is_prefix(Id id) const { return nodes_[id].ordered && nodes_[id].first == 0; }

  // A rank that both contain, or -1.
  int shared_contribution(Id a, Id b) const {
    for (int w = 0; w < words_; ++w) {
      const uint64_t both = word(a, w) & word(b, w);
      if (both != 0) return w * 64 + __builtin_ctzll(both);
    }
    return -1;
  }

  Id combined(Id left, Id right) {
    const auto [entry, added] = known_.try_emplace(key(left, right), next());
    if (added) {
      const Node &l = nodes_[left], &r = nodes_[right];
      const bool ordered = l.ordered && r.ordered && l.last + 1 == r.first;
      nodes_.push_back({l.contributions + r.contributions, false, l.first, r.last, ordered});
      for (int w = 0; w < words_; ++w) bits_.push_back(word(left, w) | word(right, w));
    }
    return entry->second;
  }
  Id finalized(Id id) {
    const auto [entry, added] = known_.try_emplace(key(id, kUnwritten), next());
    if (added) {
      Node node = nodes_[id];
      node.final = true;
      nodes_.push_back(node);
      for (int w = 0; w < words_; ++w) bits_.push_back(word(id, w));
    }
    return entry->second;
  }
  // (((0 + 1) + 2) + ...) of the first `ranks`, finalized; of one rank its bare contribution.
  Id result_in_rank_order(int ranks) {
    Id sum = contribution(0);
    for (int r = 1; r < ranks; ++r) sum = combined(sum, contribution(r));
    return ranks > 1 ? finalized(sum) : sum;
  }

 private:
  struct Node {
    int contributions = 0;
    bool final = false;
    int first = -1, last = -1;  // leftmost and rightmost contribution
    bool ordered = false;       // every contribution is that of the rank after its left neighbour
  };
  static uint64_t key(Id left, Id right) { return uint64_t{left} << 32 | right; }
  uint64_t word(Id id, int w) const { return bits_[static_cast<size_t>(id) * words_ + w]; }
  Id next() const { return static_cast<Id>(nodes_.size()); }

  int words_;
  std::vector<Node> nodes_;
  std::vector<uint64_t> bits_;  // which ranks contribute, `words_` words a node
  std::unordered_map<uint64_t, Id> known_;
};

// A block's value: whose value it is travels along, so that a block that lands elsewhere is found.
struct Cell {
  Values::Id value = Values::kUnwritten;
  int32_t block = -1;
};

}  // namespace hetccl::coll

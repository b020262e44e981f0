// The tree along which the control plane's messages travel, from where ranks are: one leader a
// node, the lowest rank there; leaders form a heap, and so do the ranks of each node below their
// leader. A parent's rank is always lower than its child's.
//
// Ranks that are gone leave the tree: their children move to the nearest ancestor that is left.
// Where no ancestor is left, the lowest such rank is the root and takes in the others. Since every
// rank's parent is lower, ranks that know of different losses never form a circle.
//
// Thread rule: one thread at a time.
#pragma once

#include <string>
#include <vector>

namespace hetccl::net {

class ControlTree {
 public:
  static constexpr int kArity = 4;

  // `nodes[r]`: equal for ranks of one node.
  ControlTree(const std::vector<std::string>& nodes, int self);

  int parent(int rank) const;  // -1: the root
  std::vector<int> children() const;
  // The neighbour of this rank that is next on the way to `to`; -1: gone, or this rank itself.
  int next_hop(int to) const;
  bool gone(int rank) const { return gone_[static_cast<size_t>(rank)]; }
  void set_gone(int rank);

 private:
  int ancestor(int rank) const;  // nearest that is left, or -1
  void find_root();

  int self_;
  int root_ = 0;
  std::vector<int> parents_;  // with nobody gone
  std::vector<bool> gone_;
};

}  // namespace hetccl::net

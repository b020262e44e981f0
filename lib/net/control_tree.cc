#include "lib/net/control_tree.h"

#include <unordered_map>

namespace hetccl::net {

ControlTree::ControlTree(const std::vector<std::string>& nodes, int self)
    : self_(self), parents_(nodes.size(), -1), gone_(nodes.size(), false) {
  std::vector<std::vector<int>> members;  // of each node, in the order of appearance
  std::unordered_map<std::string, size_t> index;
  for (size_t rank = 0; rank < nodes.size(); ++rank) {
    const auto [found, is_new] = index.try_emplace(nodes[rank], members.size());
    if (is_new) members.emplace_back();
    members[found->second].push_back(static_cast<int>(rank));
  }
  for (size_t node = 0; node < members.size(); ++node) {
    const std::vector<int>& ranks = members[node];
    if (node > 0) {
      parents_[static_cast<size_t>(ranks[0])] = members[(node - 1) / kArity][0];
    }
    for (size_t i = 1; i < ranks.size(); ++i) {
      parents_[static_cast<size_t>(ranks[i])] = ranks[(i - 1) / kArity];
    }
  }
}

int ControlTree::ancestor(int rank) const {
  int up = parents_[static_cast<size_t>(rank)];
  while (up >= 0 && gone(up)) up = parents_[static_cast<size_t>(up)];
  return up;
}

int ControlTree::parent(int rank) const {
  const int up = ancestor(rank);
  return up >= 0 ? up : rank == root_ ? -1 : root_;
}

std::vector<int> ControlTree::children() const {
  std::vector<int> found;
  for (int rank = 0; rank < static_cast<int>(parents_.size()); ++rank) {
    if (!gone(rank) && rank != self_ && parent(rank) == self_) found.push_back(rank);
  }
  return found;
}

int ControlTree::next_hop(int to) const {
  if (gone(to) || to == self_) return -1;
  for (int at = to, up = parent(to); up >= 0; at = up, up = parent(up)) {
    if (up == self_) return at;
  }
  return parent(self_);
}

void ControlTree::find_root() {
  const int ranks = static_cast<int>(parents_.size());
  for (root_ = 0; root_ < ranks; ++root_) {
    if (!gone(root_) && ancestor(root_) < 0) return;
  }
  root_ = self_;
}

void ControlTree::set_gone(int rank) {
  gone_[static_cast<size_t>(rank)] = true;
  if (rank == root_) find_root();
}

}  // namespace hetccl::net

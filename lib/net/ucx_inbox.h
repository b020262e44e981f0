// Where a lane's active messages arrive. It is there from the moment the lane's card is made, so
// that a fast peer's messages are kept until this rank connects. Its pairs are made when first
// needed, by the first message or by the lane.
//
// Thread rule: under the worker's lock. The pairs have their own rule.
#pragma once

#include <memory>
#include <vector>

#include "lib/net/ucx_am_pair.h"

namespace hetccl::net {

class UcxInbox {
 public:
  UcxInbox(UcxWorker* worker, int ranks, int self, size_t depth, size_t chunk_bytes)
      : worker_(worker), self_(self), depth_(depth), chunk_bytes_(chunk_bytes), pairs_(ranks) {}

  int ranks() const { return static_cast<int>(pairs_.size()); }
  AmPair* pair(int peer) {
    if (pairs_[peer] == nullptr) {
      pairs_[peer] = std::make_unique<AmPair>(worker_, depth_, chunk_bytes_, self_, peer);
    }
    return pairs_[peer].get();
  }
  // The pair if it is there already.
  AmPair* known_pair(int peer) { return pairs_[peer].get(); }

  size_t requests() const {
    size_t all = 0;
    for (const auto& pair : pairs_) all += pair == nullptr ? 0 : pair->requests();
    return all;
  }

 private:
  UcxWorker* worker_;
  int self_;
  size_t depth_;
  size_t chunk_bytes_;
  std::vector<std::unique_ptr<AmPair>> pairs_;
};

}  // namespace hetccl::net

// A communicator of those that are left. No rank leads: each takes the set of members that it knows
// to be there, and joins the group that this set names. Ranks that know the same are in the same
// group, and making the communicator is their agreement. One that has not heard of a death yet
// waits in a group of a dead rank's; the news, which reaches everybody, fails that group, and it
// tries again with those left. What is known to be lost only grows, so that all come to one set.
//
// A group is named by its members, by what the communicators go back to by shrinking, and by how
// often these members have succeeded before. So a rank that was done already when another one died,
// and shrinks what it has got, still meets those that were not and shrink anew what they had.
#include <algorithm>
#include <map>

#include "lib/base/hash.h"
#include "lib/communicator.h"

namespace hetccl {

using Clock = std::chrono::steady_clock;

// Shared by a communicator and all that come of it by shrinking.
struct Communicator::Lineage {
  std::mutex mutex;
  net::GroupId origin = 0;
  std::map<std::vector<int>, uint64_t> made;  // by members: how many communicators

  net::GroupId name(const std::vector<int>& members) {
    std::lock_guard lock(mutex);
    net::GroupId id = hash_mix(hash_mix(origin, 0x736872696e6bull), made[members]);
    for (int member : members) id = hash_mix(id, static_cast<uint64_t>(member) + 1);
    return id;
  }
  void add(const std::vector<int>& members) {
    std::lock_guard lock(mutex);
    ++made[members];
  }
};

Result<std::vector<int>> Communicator::others_than(const int* exclude, int nexclude) const {
  if (nexclude < 0 || (nexclude > 0 && exclude == nullptr)) {
    return invalid_argument("shrink: the list of " + std::to_string(nexclude) +
                            " ranks to leave out is not one");
  }
  std::vector<bool> out(members_.size());
  for (int k = 0; k < nexclude; ++k) {
    if (exclude[k] < 0 || exclude[k] >= ranks()) {
      return invalid_argument("shrink: rank " + std::to_string(exclude[k]) +
                              " to leave out is not a rank of 0 to " + std::to_string(ranks() - 1));
    }
    if (exclude[k] == rank_) {
      return invalid_argument("shrink: a rank that is left out does not call, but rank " +
                              std::to_string(rank_) + " leaves out itself");
    }
    out[static_cast<size_t>(exclude[k])] = true;
  }
  std::vector<int> rest;
  for (int r = 0; r < ranks(); ++r) {
    if (!out[static_cast<size_t>(r)]) rest.push_back(members_[r]);
  }
  return rest;
}

Result<std::unique_ptr<Communicator>> Communicator::shrink(const int* exclude, int nexclude,
                                                           const SplitConfig& config) {
  Result<std::vector<int>> rest = others_than(exclude, nexclude);
  if (!rest.ok()) return rest.status();
  Settings settings = settings_;
  if (config.timeout_s >= 0) settings.timeout_s = config.timeout_s;
  if (config.device_kind >= 0) settings.device_kind = config.device_kind;
  if (config.device_kind >= 0 || config.device >= 0) settings.device = config.device;
  std::lock_guard lock(mutex_);
  if (lineage_ == nullptr) {
    lineage_ = std::make_shared<Lineage>();
    lineage_->origin = id_;
  }
  std::vector<int> members = std::move(*rest);
  const auto lost = [&](int member) { return session_->is_lost(member); };
  for (;;) {
    std::erase_if(members, lost);
    const auto self = std::find(members.begin(), members.end(), session_->rank());
    if (self == members.end()) {
      return remote_error("shrink: the other ranks have given up rank " + std::to_string(rank_));
    }
    const int rank = static_cast<int>(self - members.begin());
    auto made = create(session_, lineage_->name(members), members, rank, settings, {}, {});
    if (made.ok()) {
      lineage_->add(members);
      (*made)->lineage_ = lineage_;
      return made;
    }
    if (std::none_of(members.begin(), members.end(), lost)) return made.status();
  }
}

}  // namespace hetccl

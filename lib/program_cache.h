// Programs by the shape of the call, least recently used out first. Not thread-safe: the
// communicator's mutex is held.
#pragma once

#include <array>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "lib/call.h"
#include "lib/coll/registry.h"
#include "lib/run/program.h"

namespace hetccl {

struct CachedProgram {
  const coll::Algorithm* algorithm;
  Extents extents;
  uint64_t hash;     // of the call
  uint64_t what;     // the call's collective, type, operator and root, for CallHistory
  size_t count;      // of the call
  std::string text;  // of the call, where it has lists of counts or an operator of its own
  // A call that is run piece after piece, so that what one phase leaves in the cache is there for
  // the next: `program` serves each piece of `piece` elements, `last` the shorter one at the end,
  // if any. 0: the call is run as a whole.
  size_t piece;
  run::Program program;
  std::optional<run::Program> last;
  // The vendor's library that runs the call, once all ranks have met in `program`; null: none.
  const char* delegate = nullptr;
  // Nothing but its steps is needed for a call: no scratch memory, no pieces.
  bool ready_made = false;
  // The call's, if made at run time: calls in queues outlive its handle.
  std::shared_ptr<const MadeOperator> made_operator = nullptr;
};

// What decides a program. Counts and displacements are kept whole: a hash could lie.
struct ProgramKey {
  coll::Collective collective;
  DataType type;
  RedOp op;
  int root;
  size_t count;
  bool own_counts;
  std::vector<size_t> lists;

  bool operator==(const ProgramKey&) const = default;
  bool matches(const Call& c) const {
    return !c.has_lists() && !own_counts && lists.empty() && collective == c.collective &&
           type == c.type && op == c.op && root == c.root && count == c.count;
  }
};

class ProgramCache {
 public:
  explicit ProgramCache(size_t capacity) : capacity_(capacity) {}

  // The call's program, if it is one of those used last; found without a look-up.
  const CachedProgram* latest(const Call& call) const {
    const Entry* const entry = recent_[place_of(call)];
    if (entry == nullptr || !entry->first.matches(call)) return nullptr;
    return entry->second.get();
  }

  // nullptr: none. The pointer is good until the next insert.
  const std::shared_ptr<const CachedProgram>* find(const Call& call, int ranks) {
    if (order_.empty() || !order_.front().first.matches(call)) {
      const auto found = index_.find(key_of(call, ranks));
      if (found == index_.end()) return nullptr;
      order_.splice(order_.begin(), order_, found->second);
    }
    recent_[place_of(call)] = &order_.front();
    return &order_.front().second;
  }

  const std::shared_ptr<const CachedProgram>* insert(const Call& call, int ranks,
                                                     std::shared_ptr<const CachedProgram> program) {
    ProgramKey key = key_of(call, ranks);
    order_.emplace_front(key, std::move(program));
    index_[std::move(key)] = order_.begin();
    if (order_.size() > capacity_) {
      leave_recent(&order_.back());
      index_.erase(order_.back().first);
      order_.pop_back();
    }
    recent_[place_of(call)] = &order_.front();
    return &order_.front().second;
  }

  // No call with this operator will come again.
  void forget(RedOp op) {
    for (auto at = order_.begin(); at != order_.end();) {
      const auto entry = at++;
      if (entry->first.op != op) continue;
      leave_recent(&*entry);
      index_.erase(entry->first);
      order_.erase(entry);
    }
  }

 private:
  struct Hash {
    size_t operator()(const ProgramKey& k) const {
      size_t h = k.count * 0x9E3779B97F4A7C15ull + static_cast<size_t>(k.collective) * 131 +
                 static_cast<size_t>(k.type) * 17 + static_cast<size_t>(k.op) * 7 +
                 static_cast<size_t>(k.root);
      for (size_t v : k.lists) h = (h ^ v) * 0x100000001B3ull;
      return h;
    }
  };
  static ProgramKey key_of(const Call& c, int ranks) {
    ProgramKey key{c.collective, c.type, c.op, c.root, c.count, c.own_counts, {}};
    for (const size_t* list : {c.counts, c.displacements, c.send_counts, c.send_displacements}) {
      if (list != nullptr) key.lists.insert(key.lists.end(), list, list + ranks);
    }
    return key;
  }

  using Entry = std::pair<ProgramKey, std::shared_ptr<const CachedProgram>>;
  using Order = std::list<Entry>;

  static constexpr size_t kRecent = 16;
  static size_t place_of(const Call& c) {
    return (c.count + (c.count >> 4) + static_cast<size_t>(c.collective) * 5 +
            static_cast<size_t>(c.root)) %
           kRecent;
  }

  void leave_recent(const Entry* entry) {
    for (const Entry*& recent : recent_) {
      if (recent == entry) recent = nullptr;
    }
  }

  size_t capacity_;
  Order order_;
  std::array<const Entry*, kRecent> recent_{};  // those of order_, by place_of()
  std::unordered_map<ProgramKey, Order::iterator, Hash> index_;
};

}  // namespace hetccl

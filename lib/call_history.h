// The argument lists of the latest calls of a communicator, for comparison with other ranks.
// Written by whoever makes the calls, read by the control thread.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>

#include "lib/call.h"

namespace hetccl {

class CallHistory {
 public:
  struct Entry {
    uint64_t sequence = 0;  // from 1; 0: none
    uint64_t hash = 0;
    Call call{};       // without pointers; `counts` is only in `text`
    std::string text;  // of v-forms
  };

  void add(uint64_t sequence, uint64_t hash, const Call& call, int ranks) {
    std::lock_guard lock(mutex_);
    Entry& e = entries_[sequence % entries_.size()];
    e.sequence = sequence;
    e.hash = hash;
    e.call = call;
    e.call.counts = nullptr;
    if (call.counts != nullptr) {
      e.text = text_of(call, ranks);
    } else if (!e.text.empty()) {
      e.text.clear();
    }
    latest_ = sequence;
  }

  // False: not made yet, or too long ago.
  bool find(uint64_t sequence, int ranks, uint64_t* hash, std::string* text) const {
    std::lock_guard lock(mutex_);
    const Entry& e = entries_[sequence % entries_.size()];
    if (sequence == 0 || e.sequence != sequence) return false;
    *hash = e.hash;
    *text = e.text.empty() ? text_of(e.call, ranks) : e.text;
    return true;
  }

 private:
  mutable std::mutex mutex_;  // uncontended but for a comparison
  std::array<Entry, 128> entries_;
  uint64_t latest_ = 0;
};

}  // namespace hetccl

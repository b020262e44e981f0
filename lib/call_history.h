// The argument lists of the latest calls of a communicator, for comparison with other ranks. One
// thread at a time writes, as it makes the calls; the control thread reads whenever it is asked, so
// an entry is guarded by its own sequence number (a seqlock) and writing costs a few stores.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include "lib/call.h"
#include "lib/program_cache.h"

namespace hetccl {

class CallHistory {
 public:
  void add(uint64_t sequence, const CachedProgram& program) {
    Entry& e = entries_[sequence % entries_.size()];
    e.sequence.store(0, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    e.hash.store(program.hash, std::memory_order_relaxed);
    e.what.store(program.what, std::memory_order_relaxed);
    e.count.store(program.count, std::memory_order_relaxed);
    if (!program.text.empty()) [[unlikely]]
      add_text(sequence, program.text);
    e.sequence.store(sequence, std::memory_order_release);
  }
  // CachedProgram::what of a call.
  static uint64_t pack(const Call& c) {
    return static_cast<uint64_t>(c.collective) | static_cast<uint64_t>(c.type) << 8 |
           static_cast<uint64_t>(c.op & 0xffff) << 16 |
           static_cast<uint64_t>(static_cast<uint32_t>(c.root)) << 32;
  }

  // False: not made yet, or too long ago.
  bool find(uint64_t sequence, int ranks, uint64_t* hash, std::string* text) const {
    const Entry& e = entries_[sequence % entries_.size()];
    if (sequence == 0 || e.sequence.load(std::memory_order_acquire) != sequence) return false;
    *hash = e.hash.load(std::memory_order_relaxed);
    Call call = unpack(e.what.load(std::memory_order_relaxed));
    call.count = e.count.load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (e.sequence.load(std::memory_order_relaxed) != sequence) return false;
    *text = text_of(call, ranks);
    std::lock_guard lock(texts_mutex_);
    const Text& t = texts_[sequence % texts_.size()];
    if (t.sequence == sequence) *text = t.text;
    return true;
  }

 private:
  struct Entry {
    std::atomic<uint64_t> sequence{0};  // from 1; 0: none, or being written
    std::atomic<uint64_t> hash{0};
    std::atomic<uint64_t> what{0};
    std::atomic<uint64_t> count{0};
  };
  struct Text {
    uint64_t sequence = 0;
    std::string text;
  };

  static Call unpack(uint64_t w) {
    Call c{static_cast<coll::Collective>(w & 0xff)};
    c.type = static_cast<DataType>(w >> 8 & 0xff);
    c.op = static_cast<RedOp>(w >> 16 & 0xffff);
    c.root = static_cast<int>(w >> 32);
    return c;
  }
  __attribute__((noinline)) void add_text(uint64_t sequence, const std::string& text) {
    std::lock_guard lock(texts_mutex_);
    texts_[sequence % texts_.size()] = {sequence, text};
  }

  std::array<Entry, 128> entries_;
  mutable std::mutex texts_mutex_;
  std::array<Text, 128> texts_;  // of calls with lists of counts
};

}  // namespace hetccl

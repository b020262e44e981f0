// Several ranks of one session in one process, one thread each, for tests of the control plane.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "lib/net/control.h"

namespace hetccl::net::testing {

// Stands for the exchange that a program's launcher offers.
class LocalAllgather {
 public:
  explicit LocalAllgather(int ranks) : ranks_(ranks) {}

  Allgather of_rank(int rank) {
    return [this, rank](const void* mine, void* all, size_t bytes) {
      std::unique_lock lock(mutex_);
      table_.resize(bytes * static_cast<size_t>(ranks_));
      std::memcpy(table_.data() + bytes * static_cast<size_t>(rank), mine, bytes);
      ++arrived_;
      condition_.notify_all();
      condition_.wait(lock, [&] { return arrived_ == ranks_; });
      std::memcpy(all, table_.data(), table_.size());
      return 0;
    };
  }

 private:
  int ranks_;
  int arrived_ = 0;
  std::vector<char> table_;
  std::mutex mutex_;
  std::condition_variable condition_;
};

class RecordingListener : public GroupListener {
 public:
  void on_failure(const Status& why) override {
    std::lock_guard lock(mutex_);
    failures_.push_back(why);
    condition_.notify_all();
  }
  bool describe_call(uint64_t sequence, CallRecord* record) override {
    return describe != nullptr && describe(sequence, record);
  }
  // Success: nothing came in time.
  Status wait_for_failure(std::chrono::milliseconds limit) {
    std::unique_lock lock(mutex_);
    condition_.wait_for(lock, limit, [&] { return !failures_.empty(); });
    return failures_.empty() ? Status() : failures_.front();
  }
  size_t failures() {
    std::lock_guard lock(mutex_);
    return failures_.size();
  }

  std::function<bool(uint64_t, CallRecord*)> describe;  // set before joining

 private:
  std::mutex mutex_;
  std::condition_variable condition_;
  std::vector<Status> failures_;
};

using Sessions = std::vector<std::shared_ptr<Session>>;

inline void for_each_rank(int ranks, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) threads.emplace_back([&body, r] { body(r); });
  for (auto& thread : threads) thread.join();
}

// Null where creation failed; `errors`, if given, says why.
inline Sessions make_sessions(
    int ranks,
    const std::function<SessionOptions(int)>& options =
        [](int) {
          SessionOptions o;
          o.timeout_s = 60;
          return o;
        },
    std::vector<Status>* errors = nullptr) {
  LocalAllgather allgather(ranks);
  Sessions sessions(static_cast<size_t>(ranks));
  if (errors != nullptr) errors->assign(static_cast<size_t>(ranks), Status());
  for_each_rank(ranks, [&](int r) {
    auto made = Session::create(ranks, r, allgather.of_rank(r), options(r));
    if (made.ok()) {
      sessions[static_cast<size_t>(r)] = *made;
    } else if (errors != nullptr) {
      (*errors)[static_cast<size_t>(r)] = made.status();
    }
  });
  return sessions;
}

inline std::chrono::steady_clock::time_point in_seconds(double seconds) {
  return std::chrono::steady_clock::now() +
         std::chrono::duration_cast<std::chrono::steady_clock::duration>(
             std::chrono::duration<double>(seconds));
}

inline std::vector<int> all_ranks(int ranks) {
  std::vector<int> list;
  for (int r = 0; r < ranks; ++r) list.push_back(r);
  return list;
}

}  // namespace hetccl::net::testing

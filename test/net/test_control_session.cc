// Sessions whose ranks are threads of one process: creation, groups, exchanges, failures.
#include <gtest/gtest.h>

#include <dirent.h>

#include "test/net/control_ranks.h"

namespace hetccl::net {
namespace {

using namespace std::chrono_literals;
using testing::all_ranks;
using testing::for_each_rank;
using testing::in_seconds;
using testing::make_sessions;
using testing::RecordingListener;
using testing::Sessions;

constexpr auto kPatience = 30s;

std::string share_of(int rank, size_t bytes) {
  std::string text = "rank " + std::to_string(rank) + ":";
  while (text.size() < bytes) text += static_cast<char>('a' + (rank + text.size()) % 26);
  return text;
}

SessionOptions options_with_node(const std::string& node) {
  SessionOptions options;
  options.timeout_s = 60;
  options.node_override = node;
  return options;
}

class SessionSizes : public ::testing::TestWithParam<int> {};

TEST_P(SessionSizes, AllgatherKeepsOrderAndRounds) {
  const int n = GetParam();
  Sessions sessions = make_sessions(n);
  for (const auto& s : sessions) ASSERT_NE(s, nullptr);
  std::vector<RecordingListener> listeners(static_cast<size_t>(n));
  for_each_rank(n, [&](int r) {
    Session& s = *sessions[static_cast<size_t>(r)];
    EXPECT_EQ(s.ranks(), n);
    EXPECT_EQ(s.rank(), r);
    ASSERT_TRUE(s.join(7, all_ranks(n), &listeners[static_cast<size_t>(r)]).ok());
    for (size_t round = 0; round < 4; ++round) {
      std::vector<std::string> all;
      const Status status =
          s.allgather(7, share_of(r, round * static_cast<size_t>(r) * 10), &all, in_seconds(60));
      ASSERT_TRUE(status.ok()) << status.message();
      ASSERT_EQ(all.size(), static_cast<size_t>(n));
      for (int other = 0; other < n; ++other) {
        EXPECT_EQ(all[static_cast<size_t>(other)],
                  share_of(other, round * static_cast<size_t>(other) * 10));
      }
    }
    s.leave(7);
  });
  for (auto& listener : listeners) EXPECT_EQ(listener.failures(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Ranks, SessionSizes, ::testing::Values(1, 2, 3, 5, 8, 17));

}  // namespace
}  // namespace hetccl::net

// Sessions whose ranks are threads of one process: creation, groups, exchanges, failures.
#include <gtest/gtest.h>

#include <dirent.h>

#include <atomic>

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

TEST(ControlSession, PlacesFollowTheNodeNames) {
  Sessions sessions = make_sessions(3, [](int r) { return options_with_node(r < 2 ? "a" : "b"); });
  for (const auto& s : sessions) {
    ASSERT_NE(s, nullptr);
    EXPECT_EQ(s->place(0).node, "a");
    EXPECT_EQ(s->place(2).node, "b");
    EXPECT_EQ(s->place(0).shared_memory, s->place(1).shared_memory);
    EXPECT_NE(s->place(0).shared_memory, s->place(2).shared_memory);
    EXPECT_EQ(s->place(1).pid, getpid());
  }
}

TEST(ControlSession, GroupsAreSubsetsInAnyOrderAndDoNotMix) {
  constexpr int kRanks = 7;
  Sessions sessions =
      make_sessions(kRanks, [](int r) { return options_with_node("n" + std::to_string(r % 3)); });
  const std::vector<std::vector<int>> groups = {{6, 2, 0}, {5}, {1, 3}, {4, 0, 6, 1, 2, 3, 5}};
  std::vector<RecordingListener> listeners(kRanks);
  for_each_rank(kRanks, [&](int r) {
    ASSERT_NE(sessions[static_cast<size_t>(r)], nullptr);
    Session& s = *sessions[static_cast<size_t>(r)];
    for (int round = 0; round < 20; ++round) {
      for (size_t g = 0; g < groups.size(); ++g) {
        const auto& members = groups[g];
        if (std::find(members.begin(), members.end(), r) == members.end()) continue;
        const GroupId id = 100 + static_cast<GroupId>(round) * 10 + g;
        ASSERT_TRUE(s.join(id, members, &listeners[static_cast<size_t>(r)]).ok());
        std::vector<std::string> all;
        const Status status =
            s.allgather(id, share_of(r, 1) + std::to_string(g), &all, in_seconds(60));
        ASSERT_TRUE(status.ok()) << status.message();
        ASSERT_EQ(all.size(), members.size());
        for (size_t i = 0; i < members.size(); ++i) {
          EXPECT_EQ(all[i], share_of(members[i], 1) + std::to_string(g));
        }
        s.leave(id);
      }
    }
  });
  for (auto& listener : listeners) EXPECT_EQ(listener.failures(), 0u);
}

TEST(ControlSession, AllgatherCarriesMegabytes) {
  constexpr int kRanks = 4;
  Sessions sessions = make_sessions(kRanks);
  std::vector<RecordingListener> listeners(kRanks);
  for_each_rank(kRanks, [&](int r) {
    ASSERT_NE(sessions[static_cast<size_t>(r)], nullptr);
    Session& s = *sessions[static_cast<size_t>(r)];
    ASSERT_TRUE(s.join(1, all_ranks(kRanks), &listeners[static_cast<size_t>(r)]).ok());
    std::vector<std::string> all;
    const size_t bytes = (size_t{3} << 20) + static_cast<size_t>(r) * 12345;
    ASSERT_TRUE(
        s.allgather(1, std::string(bytes, static_cast<char>('A' + r)), &all, in_seconds(60)).ok());
    for (size_t other = 0; other < kRanks; ++other) {
      EXPECT_EQ(all[other],
                std::string((size_t{3} << 20) + other * 12345, static_cast<char>('A' + other)));
    }
  });
}

TEST(ControlSession, JoinRefusesUnsoundGroups) {
  Sessions sessions = make_sessions(2);
  RecordingListener listener;
  Session& s = *sessions[0];
  EXPECT_EQ(s.join(1, {1}, &listener).code(), hetcclInternalError);
  EXPECT_EQ(s.join(1, {0, 2}, &listener).code(), hetcclInternalError);
  EXPECT_EQ(s.join(1, {0, 0}, &listener).code(), hetcclInternalError);
  EXPECT_EQ(s.join(1, {}, &listener).code(), hetcclInternalError);
  EXPECT_TRUE(s.join(1, {1, 0}, &listener).ok());
  EXPECT_EQ(s.join(1, {1, 0}, &listener).code(), hetcclInternalError);
  std::vector<std::string> all;
  EXPECT_EQ(s.allgather(2, "", &all, in_seconds(1)).code(), hetcclInternalError);
}

TEST(ControlSession, MemberThatJoinsLateFindsWhatCameBefore) {
  Sessions sessions = make_sessions(3);
  std::vector<RecordingListener> listeners(3);
  for_each_rank(3, [&](int r) {
    if (r == 0) std::this_thread::sleep_for(300ms);
    Session& s = *sessions[static_cast<size_t>(r)];
    ASSERT_TRUE(s.join(9, {0, 1, 2}, &listeners[static_cast<size_t>(r)]).ok());
    std::vector<std::string> all;
    ASSERT_TRUE(s.allgather(9, std::to_string(r), &all, in_seconds(60)).ok());
    EXPECT_EQ(all, (std::vector<std::string>{"0", "1", "2"}));
  });
}

TEST(ControlSession, AnnouncedFailureReachesAllOthersOnce) {
  Sessions sessions = make_sessions(5);
  std::vector<RecordingListener> listeners(5);
  RecordingListener bystander;
  // Rank 4 joins only after the announcement.
  for (size_t r = 0; r < 4; ++r) {
    ASSERT_TRUE(sessions[r]->join(3, {0, 1, 2, 3, 4}, &listeners[r]).ok());
  }
  ASSERT_TRUE(sessions[0]->join(4, {0, 1}, &bystander).ok());
  sessions[2]->announce_failure(3, hetcclRemoteError, "rank 2 aborted");
  sessions[2]->leave(3);
  for (size_t r : {size_t{0}, size_t{1}, size_t{3}}) {
    const Status why = listeners[r].wait_for_failure(kPatience);
    EXPECT_EQ(why.code(), hetcclRemoteError) << r;
    EXPECT_EQ(why.message(), "rank 2 aborted");
  }
  ASSERT_TRUE(sessions[4]->join(3, {0, 1, 2, 3, 4}, &listeners[4]).ok());
  EXPECT_EQ(listeners[4].wait_for_failure(kPatience).message(), "rank 2 aborted");
  std::vector<std::string> all;
  EXPECT_EQ(sessions[0]->allgather(3, "", &all, in_seconds(30)).code(), hetcclRemoteError);
  EXPECT_EQ(listeners[2].failures(), 0u);
  EXPECT_EQ(bystander.failures(), 0u);
  // What the failed group hears next changes nothing for those that have heard.
  sessions[1]->announce_failure(3, hetcclTimeout, "another");
  std::this_thread::sleep_for(100ms);
  EXPECT_EQ(listeners[0].failures(), 1u);
}

TEST(ControlSession, WaitingAllgatherEndsWithTheGroup) {
  Sessions sessions = make_sessions(3);
  std::vector<RecordingListener> listeners(3);
  for (size_t r = 0; r < 3; ++r) {
    ASSERT_TRUE(sessions[r]->join(3, {0, 1, 2}, &listeners[r]).ok());
  }
  for_each_rank(3, [&](int r) {
    if (r == 2) {
      std::this_thread::sleep_for(100ms);
      return sessions[2]->announce_failure(3, hetcclSystemError, "rank 2: no memory");
    }
    std::vector<std::string> all;
    const Status status = sessions[static_cast<size_t>(r)]->allgather(3, "", &all, in_seconds(60));
    EXPECT_EQ(status.code(), hetcclSystemError);
    EXPECT_EQ(status.message(), "rank 2: no memory");
  });
}

TEST(ControlSession, TimeoutNamesWhoIsMissing) {
  Sessions sessions = make_sessions(4);
  std::vector<RecordingListener> listeners(4);
  for (size_t r = 0; r < 4; ++r) {
    ASSERT_TRUE(sessions[r]->join(3, {0, 1, 2, 3}, &listeners[r]).ok());
  }
  for_each_rank(4, [&](int r) {
    if (r == 1 || r == 3) return;
    std::vector<std::string> all;
    const auto start = std::chrono::steady_clock::now();
    const Status status = sessions[static_cast<size_t>(r)]->allgather(3, "", &all, in_seconds(0.3));
    EXPECT_EQ(status.code(), hetcclTimeout);
    EXPECT_NE(status.message().find("ranks 1, 3 of 4"), std::string::npos) << status.message();
    EXPECT_LT(std::chrono::steady_clock::now() - start, 20s);
  });
}

TEST(ControlSession, TimeoutWhereRankZeroIsMissingSaysSo) {
  Sessions sessions = make_sessions(2);
  RecordingListener listener;
  ASSERT_TRUE(sessions[1]->join(3, {0, 1}, &listener).ok());
  std::vector<std::string> all;
  const Status status = sessions[1]->allgather(3, "", &all, in_seconds(0.1));
  EXPECT_EQ(status.code(), hetcclTimeout);
  EXPECT_NE(status.message().find("rank 0"), std::string::npos) << status.message();
}

// ---- comparison of calls

CallRecord call_of(const std::string& text) { return {std::hash<std::string>()(text), text}; }

TEST(ControlSession, ComparisonNamesTwoRanksAndBothLists) {
  Sessions sessions = make_sessions(4);
  std::vector<RecordingListener> listeners(4);
  for (int r = 0; r < 4; ++r) {
    // Rank 3 has not come to call 5.
    listeners[static_cast<size_t>(r)].describe = [r](uint64_t sequence, CallRecord* record) {
      if (sequence != 5 || r == 3) return false;
      *record = call_of(r == 2 ? "allreduce count=101" : "allreduce count=100");
      return true;
    };
    ASSERT_TRUE(sessions[static_cast<size_t>(r)]
                    ->join(3, {0, 1, 2, 3}, &listeners[static_cast<size_t>(r)])
                    .ok());
  }
  for (auto& s : sessions) s->compare_calls(3, 5);
  for (auto& listener : listeners) {
    const Status why = listener.wait_for_failure(kPatience);
    EXPECT_EQ(why.code(), hetcclInvalidUsage);
    EXPECT_EQ(why.message(),
              "ranks 0 and 2 disagree in call 5: rank 0: allreduce count=100; rank 2: allreduce "
              "count=101");
  }
}

TEST(ControlSession, ComparisonOfEqualCallsSaysNothing) {
  Sessions sessions = make_sessions(3);
  std::vector<RecordingListener> listeners(3);
  std::atomic<int> asked{0};
  std::atomic<bool> made{false};
  for (int r = 0; r < 3; ++r) {
    listeners[static_cast<size_t>(r)].describe = [&, r](uint64_t, CallRecord* record) {
      ++asked;
      *record = call_of(made && r == 1 ? "barrier" : "broadcast");
      return r != 1 || made;
    };
    ASSERT_TRUE(sessions[static_cast<size_t>(r)]
                    ->join(3, {2, 1, 0}, &listeners[static_cast<size_t>(r)])
                    .ok());
  }
  sessions[0]->compare_calls(3, 1);
  const auto limit = in_seconds(30);
  while (asked < 3 && std::chrono::steady_clock::now() < limit) std::this_thread::sleep_for(5ms);
  std::this_thread::sleep_for(200ms);
  EXPECT_EQ(asked, 3);
  for (auto& listener : listeners) EXPECT_EQ(listener.failures(), 0u);
  // Rank 1 makes another call at last: asked again, the ranks find out.
  made = true;
  sessions[0]->compare_calls(3, 1);
  for (auto& listener : listeners) {
    const Status why = listener.wait_for_failure(kPatience);
    EXPECT_EQ(why.message(),
              "ranks 0 and 1 disagree in call 1: rank 0: broadcast; rank 1: barrier");
  }
}

// ---- the end

TEST(ControlSession, NoCallbackAfterLeave) {
  Sessions sessions = make_sessions(3);
  for (int round = 0; round < 50; ++round) {
    const auto id = static_cast<GroupId>(round);
    auto listener = std::make_unique<RecordingListener>();
    RecordingListener other;
    ASSERT_TRUE(sessions[0]->join(id, {0, 2}, &other).ok());
    ASSERT_TRUE(sessions[2]->join(id, {0, 2}, listener.get()).ok());
    std::thread announcer([&] { sessions[0]->announce_failure(id, hetcclRemoteError, "end"); });
    sessions[2]->leave(id);
    listener.reset();  // a callback after this would be seen by the sanitizers, and often crash
    announcer.join();
    sessions[0]->leave(id);
  }
}

TEST(ControlSession, GoodByeIsNoDeath) {
  Sessions sessions = make_sessions(6);
  std::vector<RecordingListener> listeners(6);
  for (size_t r = 0; r < 6; ++r) {
    ASSERT_TRUE(sessions[r]->join(3, all_ranks(6), &listeners[r]).ok());
  }
  // An inner rank of the tree, and the one that others' messages pass.
  sessions[1]->leave(3);
  sessions[1].reset();
  sessions[0]->leave(3);
  sessions[0].reset();
  std::vector<RecordingListener> rest(6);
  for_each_rank(6, [&](int r) {
    if (r < 2) return;
    Session& s = *sessions[static_cast<size_t>(r)];
    ASSERT_TRUE(s.join(4, {5, 2, 3, 4}, &rest[static_cast<size_t>(r)]).ok());
    std::vector<std::string> all;
    const Status status = s.allgather(4, std::to_string(r), &all, in_seconds(60));
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(all, (std::vector<std::string>{"5", "2", "3", "4"}));
  });
  for (auto& listener : listeners) EXPECT_EQ(listener.failures(), 0u);
  // The one that would collect has gone.
  std::vector<std::string> all;
  EXPECT_EQ(sessions[3]->allgather(3, "", &all, in_seconds(30)).code(), hetcclRemoteError);
}

size_t open_descriptors() {
  size_t count = 0;
  DIR* dir = opendir("/proc/self/fd");
  while (readdir(dir) != nullptr) ++count;
  closedir(dir);
  return count;
}

TEST(ControlSession, ManySessionsLeakNoDescriptors) {
  { Sessions warm = make_sessions(3); }
  std::this_thread::sleep_for(300ms);
  const size_t before = open_descriptors();
  for (int i = 0; i < 200; ++i) {
    Sessions sessions = make_sessions(3);
    for (const auto& s : sessions) ASSERT_NE(s, nullptr);
  }
  const auto limit = in_seconds(30);
  while (open_descriptors() > before && std::chrono::steady_clock::now() < limit) {
    std::this_thread::sleep_for(20ms);
  }
  EXPECT_LE(open_descriptors(), before);
}

}  // namespace
}  // namespace hetccl::net

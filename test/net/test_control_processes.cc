// Sessions whose ranks are processes of their own: deaths, exits, forks.
#include <dirent.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>

#include "test/net/control_ranks.h"

namespace hetccl::net {
namespace {

using namespace std::chrono_literals;
using testing::all_ranks;
using testing::in_seconds;
using testing::RecordingListener;

constexpr auto kPatience = 60s;
// The promise is 5 s; a loaded machine may take longer over its own part of that.
constexpr auto kDeathLimit = 10s;

// Memory that the test and its children share.
struct Shared {
  std::atomic<int> arrived;
  std::atomic<int> ready;
  std::atomic<int> step;
  std::atomic<int> grandchild;
  char table[1 << 20];
};

class ControlProcesses : public ::testing::Test {
 protected:
  void SetUp() override {
    void* memory =
        mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    shared_ = new (memory) Shared{};
  }
  void TearDown() override {
    for (pid_t pid : pids_) {
      if (pid > 0) {
        kill(pid, SIGKILL);
        waitpid(pid, nullptr, 0);
      }
    }
    munmap(shared_, sizeof(Shared));
  }

  static void wait_until(const std::function<bool()>& condition) {
    const auto limit = std::chrono::steady_clock::now() + kPatience;
    while (!condition() && std::chrono::steady_clock::now() < limit) {
      std::this_thread::sleep_for(2ms);
    }
  }

  std::shared_ptr<Session> make_session(int ranks, int rank, const std::string& node = "") {
    SessionOptions options;
    options.timeout_s = 60;
    options.node_override = node;
    auto made = Session::create(
        ranks, rank,
        [&](const void* mine, void* all, size_t bytes) {
          std::memcpy(shared_->table + bytes * static_cast<size_t>(rank), mine, bytes);
          ++shared_->arrived;
          wait_until([&] { return shared_->arrived >= ranks; });
          std::memcpy(all, shared_->table, bytes * static_cast<size_t>(ranks));
          return 0;
        },
        options);
    if (!made.ok()) {
      fprintf(stderr, "rank %d: %s\n", rank, made.status().message().c_str());
      return nullptr;
    }
    return *made;
  }

  // Runs `body` in a process a rank; what it returns is the process's exit code.
  void start(int ranks, const std::function<int(int)>& body) {
    for (int r = 0; r < ranks; ++r) {
      const pid_t pid = fork();
      ASSERT_GE(pid, 0);
      if (pid == 0) _exit(body(r));
      pids_.push_back(pid);
    }
  }

  int wait_for(int rank) {
    int status = 0;
    waitpid(pids_[static_cast<size_t>(rank)], &status, 0);
    pids_[static_cast<size_t>(rank)] = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

  // An exit code for a rank that found something wrong, and the reason on standard error.
  static int wrong(int rank, int code, const std::string& why) {
    fprintf(stderr, "rank %d: %s\n", rank, why.c_str());
    return code;
  }

  void kill_rank(int rank) {
    kill(pids_[static_cast<size_t>(rank)], SIGKILL);
    EXPECT_EQ(wait_for(rank), -SIGKILL);
  }

  Shared* shared_ = nullptr;
  std::vector<pid_t> pids_;
};

struct Victim {
  int ranks;
  int rank;
  int nodes;
};

class ControlDeaths : public ControlProcesses, public ::testing::WithParamInterface<Victim> {};

// Everybody hears of it, and those that are left still reach each other.
TEST_P(ControlDeaths, AreNoticedByAllAndTheRestGoesOn) {
  const Victim victim = GetParam();
  start(victim.ranks, [&](int r) {
    auto session =
        make_session(victim.ranks, r, victim.nodes > 1 ? std::to_string(r % victim.nodes) : "");
    if (session == nullptr) return 1;
    RecordingListener all_of_us;
    RecordingListener the_rest;
    std::vector<int> rest;
    for (int other = victim.ranks - 1; other >= 0; --other) {
      if (other != victim.rank) rest.push_back(other);
    }
    if (!session->join(1, all_ranks(victim.ranks), &all_of_us).ok()) return 2;
    if (r != victim.rank && !session->join(2, rest, &the_rest).ok()) return 3;
    ++shared_->ready;
    if (r == victim.rank) std::this_thread::sleep_for(kPatience * 2);
    const Status why = all_of_us.wait_for_failure(kPatience);
    if (why.code() != hetcclRemoteError) return 4;
    const std::string who = "rank " + std::to_string(victim.rank) + " (host ";
    if (why.message().find(who) == std::string::npos) return 5;
    ++shared_->step;
    std::vector<std::string> all;
    const Status status = session->allgather(2, std::to_string(r), &all, in_seconds(60));
    if (!status.ok()) return wrong(r, 6, status.message());
    for (size_t i = 0; i < rest.size(); ++i) {
      if (all[i] != std::to_string(rest[i])) return 7;
    }
    return the_rest.failures() == 0 ? 0 : 8;
  });
  wait_until([&] { return shared_->ready == victim.ranks; });
  ASSERT_EQ(shared_->ready, victim.ranks);
  const auto killed = std::chrono::steady_clock::now();
  kill_rank(victim.rank);
  wait_until([&] { return shared_->step == victim.ranks - 1; });
  EXPECT_LT(std::chrono::steady_clock::now() - killed, kDeathLimit);
  for (int r = 0; r < victim.ranks; ++r) {
    if (r != victim.rank) {
      EXPECT_EQ(wait_for(r), 0) << "rank " << r;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, ControlDeaths,
                         ::testing::Values(Victim{2, 1, 1}, Victim{3, 0, 1}, Victim{8, 0, 1},
                                           Victim{8, 1, 1}, Victim{8, 7, 1}, Victim{9, 3, 3},
                                           Victim{9, 2, 3}),
                         [](const auto& info) {
                           return "Rank" + std::to_string(info.param.rank) + "Of" +
                                  std::to_string(info.param.ranks) + "On" +
                                  std::to_string(info.param.nodes);
                         });

TEST_F(ControlProcesses, TwoDeathsAtOnce) {
  start(8, [&](int r) {
    auto session = make_session(8, r);
    if (session == nullptr) return 1;
    RecordingListener with_first;
    RecordingListener with_second;
    const bool alive = r > 1;
    // A parent and its child die together: nobody was left to see the child's end.
    if (r != 5 && !session->join(1, {0, 1, 2, 3, 4, 6, 7}, &with_first).ok()) return 2;
    if (r != 1 && !session->join(2, {0, 2, 3, 4, 5, 6, 7}, &with_second).ok()) return 3;
    ++shared_->ready;
    if (r == 1 || r == 5) std::this_thread::sleep_for(kPatience * 2);
    const std::string first = with_first.wait_for_failure(kPatience).message();
    const std::string second = with_second.wait_for_failure(kPatience).message();
    if (alive && first.find("rank 1 ") == std::string::npos) return 4;
    if (second.find("rank 4 ") == std::string::npos) return 5;  // session rank 5
    return 0;
  });
  wait_until([&] { return shared_->ready == 8; });
  kill(pids_[1], SIGSTOP);
  kill(pids_[5], SIGKILL);
  kill(pids_[1], SIGKILL);
  for (int r : {0, 2, 3, 4, 6, 7}) EXPECT_EQ(wait_for(r), 0) << "rank " << r;
}

TEST_F(ControlProcesses, ExitAfterGoodByeIsNoDeath) {
  start(7, [&](int r) {
    auto session = make_session(7, r);
    if (session == nullptr) return 1;
    RecordingListener world;
    RecordingListener rest;
    if (!session->join(1, all_ranks(7), &world).ok()) return 2;
    std::vector<std::string> all;
    const Status first = session->allgather(1, "", &all, in_seconds(60));
    if (!first.ok()) return wrong(r, 3, first.message());
    if (r == 0 || r == 1) {
      // The root, and an inner rank, leave early.
      session->leave(1);
      session.reset();
      ++shared_->ready;
      return 0;
    }
    if (!session->join(2, {6, 5, 4, 3, 2}, &rest).ok()) return 4;
    wait_until([&] { return shared_->step == 1; });
    const Status status = session->allgather(2, std::to_string(r), &all, in_seconds(60));
    if (!status.ok()) return wrong(r, 5, status.message());
    if (world.failures() + rest.failures() != 0) {
      return wrong(r, 6, world.wait_for_failure(0ms).message());
    }
    ++shared_->ready;
    if (r == 5) std::this_thread::sleep_for(kPatience * 2);
    // Deaths are still noticed.
    if (rest.wait_for_failure(kPatience).message().find("rank 1 ") == std::string::npos) return 7;
    return 0;
  });
  EXPECT_EQ(wait_for(0), 0);
  EXPECT_EQ(wait_for(1), 0);
  std::this_thread::sleep_for(200ms);
  shared_->step = 1;
  wait_until([&] { return shared_->ready == 7; });
  ASSERT_EQ(shared_->ready, 7);
  const auto killed = std::chrono::steady_clock::now();
  kill_rank(5);
  for (int r : {2, 3, 4, 6}) EXPECT_EQ(wait_for(r), 0) << "rank " << r;
  EXPECT_LT(std::chrono::steady_clock::now() - killed, kDeathLimit);
}

int open_sockets() {
  int count = 0;
  DIR* dir = opendir("/proc/self/fd");
  while (const dirent* entry = readdir(dir)) {
    struct stat status {};
    if (fstatat(dirfd(dir), entry->d_name, &status, 0) == 0 && S_ISSOCK(status.st_mode)) ++count;
  }
  closedir(dir);
  return count;
}

// A child that outlives its parent keeps none of the parent's connections open, and can have a
// session of its own.
TEST_F(ControlProcesses, ForkedChildDoesNotHideDeath) {
  start(3, [&](int r) {
    const int before = open_sockets();
    auto session = make_session(3, r);
    if (session == nullptr) return 1;
    RecordingListener world;
    if (!session->join(1, {0, 1, 2}, &world).ok()) return 2;
    if (r == 1) {
      if (fork() == 0) {
        // Inert here, and harmless.
        RecordingListener other;
        std::vector<std::string> all;
        const bool inert =
            session->join(2, {0, 1}, &other).code() == hetcclInvalidUsage &&
            session->allgather(1, "", &all, in_seconds(5)).code() == hetcclInvalidUsage;
        const bool closed = open_sockets() == before;
        session.reset();
        auto own = testing::make_sessions(2);
        if (inert && closed && own[0] != nullptr && own[1] != nullptr) shared_->step = 1;
        shared_->grandchild = getpid();
        ++shared_->ready;
        std::this_thread::sleep_for(kPatience);
        _exit(0);
      }
      std::this_thread::sleep_for(kPatience * 2);
    }
    const Status why = world.wait_for_failure(kPatience);
    return why.message().find("rank 1 ") != std::string::npos ? 0 : 3;
  });
  wait_until([&] { return shared_->ready == 1; });
  EXPECT_EQ(shared_->step, 1);
  const auto killed = std::chrono::steady_clock::now();
  kill_rank(1);
  EXPECT_EQ(wait_for(0), 0);
  EXPECT_EQ(wait_for(2), 0);
  EXPECT_LT(std::chrono::steady_clock::now() - killed, kDeathLimit);
  if (shared_->grandchild > 0) kill(shared_->grandchild, SIGKILL);
}

TEST_F(ControlProcesses, ExitWithoutDestroyKeepsTheExitCode) {
  start(3, [&](int r) {
    static std::shared_ptr<Session> session;  // destroyed while the process exits
    static RecordingListener world;
    session = make_session(3, r);
    if (session == nullptr) return 1;
    if (!session->join(1, {0, 1, 2}, &world).ok()) return 2;
    if (r == 0) exit(37);
    if (r == 1) {
      auto* leaked = new std::shared_ptr<Session>(session);
      (void)leaked;
      std::this_thread::sleep_for(100ms);
      exit(38);
    }
    std::this_thread::sleep_for(100ms);
    return 39;
  });
  EXPECT_EQ(wait_for(0), 37);
  EXPECT_EQ(wait_for(1), 38);
  EXPECT_EQ(wait_for(2), 39);
}

TEST_F(ControlProcesses, StoppedProcessIsSilentNotDead) {
  start(3, [&](int r) {
    auto session = make_session(3, r);
    if (session == nullptr) return 1;
    RecordingListener world;
    if (!session->join(1, {0, 1, 2}, &world).ok()) return 2;
    ++shared_->ready;
    wait_until([&] { return shared_->step == 1; });
    if (r == 2) std::this_thread::sleep_for(kPatience * 2);
    std::vector<std::string> all;
    const Status status = session->allgather(1, "", &all, in_seconds(2));
    if (status.code() != hetcclTimeout) return 3;
    return status.message().find("rank 2 of 3") != std::string::npos && world.failures() == 0 ? 0
                                                                                              : 4;
  });
  wait_until([&] { return shared_->ready == 3; });
  kill(pids_[2], SIGSTOP);
  shared_->step = 1;
  EXPECT_EQ(wait_for(0), 0);
  EXPECT_EQ(wait_for(1), 0);
}

// A process that never comes to connect, since it died right after the exchange of records.
TEST_F(ControlProcesses, DeathDuringCreationEndsIt) {
  start(4, [&](int r) {
    SessionOptions options;
    options.timeout_s = 60;
    auto made = Session::create(
        4, r,
        [&](const void* mine, void* all, size_t bytes) {
          std::memcpy(shared_->table + bytes * static_cast<size_t>(r), mine, bytes);
          ++shared_->arrived;
          wait_until([&] { return shared_->arrived >= 4; });
          if (r == 2) raise(SIGKILL);
          std::memcpy(all, shared_->table, bytes * 4);
          return 0;
        },
        options);
    return made.status().code() == hetcclRemoteError &&
                   made.status().message().find("rank 2 ") != std::string::npos
               ? 0
               : 1;
  });
  EXPECT_EQ(wait_for(2), -SIGKILL);
  const auto killed = std::chrono::steady_clock::now();
  for (int r : {0, 1, 3}) EXPECT_EQ(wait_for(r), 0) << "rank " << r;
  EXPECT_LT(std::chrono::steady_clock::now() - killed, kDeathLimit);
}

}  // namespace
}  // namespace hetccl::net

// What may go wrong when a session is made, and strangers at its door.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <random>

#include "lib/net/frames.h"
#include "lib/net/session_record.h"
#include "test/net/control_ranks.h"

namespace hetccl::net {
namespace {

using namespace std::chrono_literals;
using testing::for_each_rank;
using testing::in_seconds;
using testing::LocalAllgather;
using testing::make_sessions;
using testing::RecordingListener;
using testing::Sessions;

SessionOptions short_options() {
  SessionOptions options;
  options.timeout_s = 30;
  return options;
}

// Creates sessions with `change` applied to each rank's view of the exchanged records.
std::vector<Status> create_with(int ranks, const std::function<void(int, SessionRecord*)>& change) {
  LocalAllgather allgather(ranks);
  std::vector<Status> results(static_cast<size_t>(ranks));
  for_each_rank(ranks, [&](int r) {
    const Allgather exchange = allgather.of_rank(r);
    auto made = Session::create(
        ranks, r,
        [&](const void* mine, void* all, size_t bytes) {
          EXPECT_EQ(bytes, sizeof(SessionRecord));
          const int result = exchange(mine, all, bytes);
          change(r, static_cast<SessionRecord*>(all));
          return result;
        },
        short_options());
    if (!made.ok()) results[static_cast<size_t>(r)] = made.status();
  });
  return results;
}

TEST(ControlCreate, RefusesImpossibleRanks) {
  const Allgather never = [](const void*, void*, size_t) {
    ADD_FAILURE() << "called";
    return 0;
  };
  for (auto [ranks, rank] : {std::pair{0, 0}, {2, 2}, {2, -1}, {-1, 0}}) {
    EXPECT_EQ(Session::create(ranks, rank, never, short_options()).status().code(),
              hetcclInvalidArgument);
  }
}

TEST(ControlCreate, FailedAllgatherIsASystemError) {
  int calls = 0;
  auto made = Session::create(
      1, 0,
      [&](const void*, void*, size_t) {
        ++calls;
        return 42;
      },
      short_options());
  EXPECT_EQ(made.status().code(), hetcclSystemError);
  EXPECT_NE(made.status().message().find("42"), std::string::npos);
  EXPECT_EQ(calls, 1);
}

TEST(ControlCreate, OtherVersionIsNamed) {
  for (const Status& status :
       create_with(3, [](int, SessionRecord* all) { all[2].version += 1; })) {
    EXPECT_EQ(status.code(), hetcclInvalidUsage);
    EXPECT_NE(status.message().find("rank 2 runs another version"), std::string::npos)
        << status.message();
  }
  for (const Status& status : create_with(2, [](int, SessionRecord* all) { all[0].magic = 7; })) {
    EXPECT_EQ(status.code(), hetcclInvalidUsage);
    EXPECT_NE(status.message().find("rank 0"), std::string::npos) << status.message();
  }
}

TEST(ControlCreate, RecordsInWrongOrderAreNoticed) {
  for (const Status& s :
       create_with(2, [](int, SessionRecord* all) { std::swap(all[0], all[1]); })) {
    EXPECT_EQ(s.code(), hetcclInvalidUsage) << s.message();
  }
}

TEST(ControlCreate, RankWithBadInterfaceTellsAllOthers) {
  std::vector<Status> errors;
  make_sessions(
      3,
      [](int r) {
        SessionOptions options = short_options();
        if (r == 1) options.interfaces = "no_such0";
        return options;
      },
      &errors);
  EXPECT_EQ(errors[1].code(), hetcclInvalidArgument);
  for (const char* part : {"HETCCL_SOCKET_IFNAME", "no_such0", "lo"}) {
    EXPECT_NE(errors[1].message().find(part), std::string::npos) << errors[1].message();
  }
  for (size_t r : {size_t{0}, size_t{2}}) {
    EXPECT_EQ(errors[r].code(), hetcclRemoteError);
    EXPECT_NE(errors[r].message().find("rank 1"), std::string::npos) << errors[r].message();
    EXPECT_NE(errors[r].message().find("no_such0"), std::string::npos) << errors[r].message();
  }
}

TEST(ControlCreate, TooLongNodeNameIsRefused) {
  std::vector<Status> errors;
  make_sessions(
      1,
      [](int) {
        SessionOptions options;
        options.node_override = std::string(1000, 'x');
        return options;
      },
      &errors);
  EXPECT_EQ(errors[0].code(), hetcclInvalidArgument);
  EXPECT_NE(errors[0].message().find("HETCCL_NODE"), std::string::npos);
}

TEST(ControlCreate, UnreachableRankFailsOnAllRanks) {
  // Rank 0's port leads nowhere: nobody listens at port 1.
  const auto results = create_with(3, [](int, SessionRecord* all) { all[0].port = 1; });
  for (const Status& status : results) {
    EXPECT_EQ(status.code(), hetcclRemoteError) << status.message();
  }
  // Rank 0 waits for children that gave up: it finds out by looking after them.
  EXPECT_NE(results[1].message().find("127.0.0.1:1"), std::string::npos) << results[1].message();
}

TEST(ControlCreate, WrongKeyIsTurnedAway) {
  // Rank 1 believes in another key of rank 0.
  const auto results = create_with(2, [](int r, SessionRecord* all) {
    if (r == 1) all[0].key[3] ^= 1;
  });
  EXPECT_EQ(results[0].code(), hetcclRemoteError) << results[0].message();
  EXPECT_EQ(results[1].code(), hetcclRemoteError) << results[1].message();
}

// ---- strangers

int connect_to(uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_port = htons(port);
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&name), sizeof(name)), 0);
  return fd;
}

bool closed_by_peer(int fd) {
  pollfd poll_fd{fd, POLLIN, 0};
  if (poll(&poll_fd, 1, 30'000) <= 0) return false;
  char byte;
  return recv(fd, &byte, 1, 0) <= 0;
}

TEST(ControlStrangers, AreDroppedWithoutEffect) {
  constexpr int kRanks = 3;
  LocalAllgather allgather(kRanks);
  Sessions sessions(kRanks);
  std::vector<SessionRecord> records(kRanks);
  for_each_rank(kRanks, [&](int r) {
    const Allgather exchange = allgather.of_rank(r);
    auto made = Session::create(
        kRanks, r,
        [&](const void* mine, void* all, size_t bytes) {
          const int result = exchange(mine, all, bytes);
          if (r == 0) std::memcpy(records.data(), all, bytes * kRanks);
          return result;
        },
        short_options());
    ASSERT_TRUE(made.ok()) << made.status().message();
    sessions[static_cast<size_t>(r)] = *made;
  });
  std::mt19937 random(1);
  std::vector<int> silent;
  for (int i = 0; i < 30; ++i) {
    const uint16_t port = records[static_cast<size_t>(i % kRanks)].port;
    std::string garbage(200 + random() % 5000, '\0');
    for (char& c : garbage) c = static_cast<char>(random());
    garbage[1] |= 1;  // announces more than a stranger may send
    const int fd = connect_to(port);
    ASSERT_GT(send(fd, garbage.data(), garbage.size(), MSG_NOSIGNAL), 0);
    EXPECT_TRUE(closed_by_peer(fd));
    close(fd);
    silent.push_back(connect_to(port));
  }
  // A well-formed hello without the key.
  Frame hello;
  hello.payload = Writer().number<uint64_t>(1).number<int32_t>(1).raw(std::string(16, 'k')).take();
  const int fd = connect_to(records[0].port);
  const EncodedFrame bytes = encode(hello);
  ASSERT_EQ(send(fd, bytes->data(), bytes->size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(bytes->size()));
  EXPECT_TRUE(closed_by_peer(fd));
  close(fd);
  std::vector<RecordingListener> listeners(kRanks);
  for_each_rank(kRanks, [&](int r) {
    Session& s = *sessions[static_cast<size_t>(r)];
    ASSERT_TRUE(s.join(1, {0, 1, 2}, &listeners[static_cast<size_t>(r)]).ok());
    std::vector<std::string> all;
    EXPECT_TRUE(s.allgather(1, "x", &all, in_seconds(30)).ok());
  });
  for (auto& listener : listeners) EXPECT_EQ(listener.failures(), 0u);
  for (int s : silent) close(s);
}

}  // namespace
}  // namespace hetccl::net

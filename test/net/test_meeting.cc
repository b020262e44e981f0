// Ranks that meet by a unique id, in threads of one process.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <random>

#include "lib/net/meeting.h"
#include "test/net/control_ranks.h"

namespace hetccl::net {
namespace {

using namespace std::chrono_literals;
using testing::for_each_rank;
using testing::in_seconds;
using testing::RecordingListener;

SessionOptions options_of(double timeout_s) {
  SessionOptions options;
  options.timeout_s = timeout_s;
  return options;
}

hetcclUniqueId new_id() {
  auto id = open_meeting(options_of(60));
  EXPECT_TRUE(id.ok()) << id.status().message();
  return *id;
}

// One record of eight bytes.
Status meet(const hetcclUniqueId& id, int ranks, int rank, double timeout_s,
            std::vector<uint64_t>* table) {
  Status why;
  const uint64_t mine = 1000 + static_cast<uint64_t>(rank);
  table->assign(static_cast<size_t>(std::max(ranks, 1)), 0);
  const int result = meeting_allgather(id, ranks, rank, options_of(timeout_s), &why)(
      &mine, table->data(), sizeof(mine));
  EXPECT_EQ(result == 0, why.ok());
  return why;
}

class MeetingSizes : public ::testing::TestWithParam<int> {};

TEST_P(MeetingSizes, SessionsComeOutOfIt) {
  const int n = GetParam();
  const hetcclUniqueId id = new_id();
  std::vector<RecordingListener> listeners(static_cast<size_t>(n));
  for_each_rank(n, [&](int r) {
    Status why;
    auto made =
        Session::create(n, r, meeting_allgather(id, n, r, options_of(60), &why), options_of(60));
    ASSERT_TRUE(made.ok()) << made.status().message() << " / " << why.message();
    Session& s = **made;
    ASSERT_TRUE(s.join(1, testing::all_ranks(n), &listeners[static_cast<size_t>(r)]).ok());
    std::vector<std::string> all;
    ASSERT_TRUE(s.allgather(1, std::to_string(r), &all, in_seconds(60)).ok());
    for (int other = 0; other < n; ++other) {
      EXPECT_EQ(all[static_cast<size_t>(other)], std::to_string(other));
    }
    s.leave(1);
  });
  for (auto& listener : listeners) EXPECT_EQ(listener.failures(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Ranks, MeetingSizes, ::testing::Values(1, 2, 3, 8, 40));

TEST(Meeting, TableIsInRankOrder) {
  const hetcclUniqueId id = new_id();
  for_each_rank(5, [&](int r) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20 * (5 - r)));
    std::vector<uint64_t> table;
    ASSERT_TRUE(meet(id, 5, r, 60, &table).ok());
    EXPECT_EQ(table, (std::vector<uint64_t>{1000, 1001, 1002, 1003, 1004}));
  });
}

TEST(Meeting, SeveralAtOnceDoNotMix) {
  const std::vector<hetcclUniqueId> ids = {new_id(), new_id(), new_id()};
  for_each_rank(9, [&](int r) {
    std::vector<uint64_t> table;
    EXPECT_TRUE(meet(ids[static_cast<size_t>(r % 3)], 3, r / 3, 60, &table).ok());
  });
}

TEST(Meeting, DisagreementOnTheNumberOfRanksIsToldToAll) {
  const hetcclUniqueId id = new_id();
  for_each_rank(3, [&](int r) {
    std::vector<uint64_t> table;
    const Status status = meet(id, r == 2 ? 4 : 3, r, 60, &table);
    EXPECT_EQ(status.code(), hetcclInvalidUsage);
    EXPECT_NE(status.message().find("disagree on how many"), std::string::npos) << status.message();
  });
}

TEST(Meeting, SameRankTwiceIsToldToAll) {
  const hetcclUniqueId id = new_id();
  for_each_rank(3, [&](int r) {
    std::vector<uint64_t> table;
    const Status status = meet(id, 4, r == 2 ? 1 : r, 60, &table);
    EXPECT_EQ(status.code(), hetcclInvalidUsage);
    EXPECT_NE(status.message().find("rank 1 of 4"), std::string::npos) << status.message();
  });
}

TEST(Meeting, IdServesOnce) {
  const hetcclUniqueId id = new_id();
  std::vector<uint64_t> table;
  ASSERT_TRUE(meet(id, 1, 0, 60, &table).ok());
  const Status again = meet(id, 1, 0, 60, &table);
  EXPECT_EQ(again.code(), hetcclSystemError);
  EXPECT_NE(again.message().find("one communicator"), std::string::npos) << again.message();
}

TEST(Meeting, GarbageIdIsRefusedAtOnce) {
  std::mt19937 random(3);
  for (int i = 0; i < 200; ++i) {
    hetcclUniqueId id = i == 0 ? hetcclUniqueId{} : new_id();
    if (i > 0) id.internal[random() % sizeof(MeetingId)] ^= static_cast<char>(1 + random() % 255);
    std::vector<uint64_t> table;
    EXPECT_EQ(meet(id, 2, 0, 60, &table).code(), hetcclInvalidArgument);
  }
}

TEST(Meeting, ImpossibleRanksAreRefused) {
  const hetcclUniqueId id = new_id();
  std::vector<uint64_t> table;
  EXPECT_EQ(meet(id, 2, 2, 60, &table).code(), hetcclInvalidArgument);
  EXPECT_EQ(meet(id, 0, 0, 60, &table).code(), hetcclInvalidArgument);
}

TEST(Meeting, TimeoutNamesWhoIsMissing) {
  const hetcclUniqueId id = new_id();
  std::vector<uint64_t> table;
  const Status status = meet(id, 3, 1, 0.3, &table);
  EXPECT_EQ(status.code(), hetcclTimeout);
  EXPECT_NE(status.message().find("rank 0, rank 2 of 3"), std::string::npos) << status.message();
  // The others learn that it has given up.
  const Status late = meet(id, 3, 0, 30, &table);
  EXPECT_EQ(late.code(), hetcclInvalidUsage);
  EXPECT_NE(late.message().find("rank 1 left"), std::string::npos) << late.message();
}

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

TEST(Meeting, StrangersDoNoHarm) {
  const hetcclUniqueId id = new_id();
  auto known = decode(id);
  ASSERT_TRUE(known.ok());
  std::mt19937 random(5);
  std::vector<int> silent;
  // More that say nothing than the door keeps.
  for (int i = 0; i < 100; ++i) silent.push_back(connect_to(known->port));
  for (int i = 0; i < 20; ++i) {
    const int fd = connect_to(known->port);
    std::string garbage(100 + random() % 3000, '\0');
    for (char& c : garbage) c = static_cast<char>(random());
    garbage[2] |= 1;
    ASSERT_GT(send(fd, garbage.data(), garbage.size(), MSG_NOSIGNAL), 0);
    EXPECT_TRUE(closed_by_peer(fd));
    close(fd);
  }
  // The right form, the wrong secret.
  MeetingHello hello{};
  hello.ranks = 2;
  hello.record_bytes = 8;
  const EncodedFrame bytes = encode(make_hello(hello));
  const int fd = connect_to(known->port);
  ASSERT_GT(send(fd, bytes->data(), bytes->size(), MSG_NOSIGNAL), 0);
  EXPECT_TRUE(closed_by_peer(fd));
  close(fd);
  for_each_rank(2, [&](int r) {
    std::vector<uint64_t> table;
    EXPECT_TRUE(meet(id, 2, r, 60, &table).ok());
  });
  for (int s : silent) close(s);
}

TEST(Meeting, BadInterfaceIsAnError) {
  SessionOptions options = options_of(60);
  options.interfaces = "no_such0";
  const auto id = open_meeting(options);
  EXPECT_EQ(id.status().code(), hetcclInvalidArgument);
  EXPECT_NE(id.status().message().find("HETCCL_SOCKET_IFNAME=no_such0"), std::string::npos);
}

}  // namespace
}  // namespace hetccl::net

// Lanes between real processes: ranks are forked before UCX is touched, exchange their cards over
// socket pairs, and exchange random messages with every other rank. Which ranks share memory is the
// test's choice, so that several nodes are emulated on one.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <random>
#include <thread>

#include "lib/net/fabric.h"

namespace hetccl::net {
namespace {

constexpr auto kLimit = std::chrono::seconds(60);

void write_all(int fd, const void* data, size_t bytes) {
  auto* at = static_cast<const char*>(data);
  while (bytes > 0) {
    ssize_t n = write(fd, at, bytes);
    if (n <= 0) _exit(90);
    at += n;
    bytes -= n;
  }
}

void read_all(int fd, void* data, size_t bytes) {
  auto* at = static_cast<char*>(data);
  while (bytes > 0) {
    ssize_t n = read(fd, at, bytes);
    if (n <= 0) _exit(91);
    at += n;
    bytes -= n;
  }
}

void write_text(int fd, const std::string& text) {
  uint64_t size = text.size();
  write_all(fd, &size, sizeof(size));
  write_all(fd, text.data(), size);
}

std::string read_text(int fd) {
  uint64_t size = 0;
  read_all(fd, &size, sizeof(size));
  std::string text(size, '\0');
  read_all(fd, text.data(), size);
  return text;
}

// One rank's side of a test. A failed requirement ends the process with the line as its message.
struct Rank {
  int rank;
  int ranks;
  int parent;             // socket to the test
  std::vector<int> node;  // of each rank
  Fabric* fabric = nullptr;
  std::unique_ptr<Lane> lane;

  void require(bool good, const std::string& what) const {
    if (good) return;
    std::string text = "rank " + std::to_string(rank) + ": " + what + "\n";
    (void)!write(STDERR_FILENO, text.data(), text.size());
    _exit(1);
  }

  std::vector<std::string> allgather(const std::string& mine) const {
    write_text(parent, mine);
    std::vector<std::string> all;
    for (int i = 0; i < ranks; ++i) all.push_back(read_text(parent));
    return all;
  }

  void open(const std::string& put, const LaneOptions& options) {
    Result<Fabric*> made =
        Fabric::create(FabricOptions{.interfaces = "", .segment_bytes = 0, .put = put});
    require(made.ok(), made.status().message());
    fabric = *made;
    Result<std::unique_ptr<LaneSetup>> setup = fabric->open_lane(ranks, rank, options);
    require(setup.ok(), setup.status().message());
    std::vector<std::string> cards = allgather((*setup)->card());
    std::vector<bool> shares(ranks);
    for (int i = 0; i < ranks; ++i) shares[i] = node[i] == node[rank];
    Result<std::unique_ptr<Lane>> connected = (*setup)->connect(cards, shares);
    require(connected.ok(), connected.status().message());
    lane = std::move(*connected);
  }

  void drive(const std::function<bool()>& done, const std::string& what) const {
    auto deadline = std::chrono::steady_clock::now() + kLimit;
    while (!done()) {
      Result<bool> moved = lane->progress();
      require(moved.ok(), moved.status().message());
      require(std::chrono::steady_clock::now() < deadline, "stuck: " + what);
      std::this_thread::yield();
    }
  }
};

// Runs `body` as `ranks` processes. `expected[rank]`: exit status, or minus the signal.
void run_ranks(const std::vector<int>& node, const std::function<void(Rank&)>& body,
               std::vector<int> expected = {}, bool exchange_stops_early = false) {
  int ranks = static_cast<int>(node.size());
  expected.resize(ranks, 0);
  std::vector<int> sockets(ranks);
  std::vector<pid_t> children(ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    int pair[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    children[rank] = fork();
    ASSERT_GE(children[rank], 0);
    if (children[rank] == 0) {
      for (int other = 0; other < rank; ++other) close(sockets[other]);
      close(pair[0]);
      Rank self{rank, ranks, pair[1], node, nullptr, nullptr};
      body(self);
      _exit(0);
    }
    close(pair[1]);
    sockets[rank] = pair[0];
  }
  // Serves exchanges until the ranks close their sockets.
  std::thread server([&] {
    while (true) {
      std::vector<std::string> cards;
      for (int socket : sockets) {
        uint64_t size = 0;
        if (recv(socket, &size, sizeof(size), MSG_WAITALL) != sizeof(size)) return;
        std::string text(size, '\0');
        if (recv(socket, text.data(), size, MSG_WAITALL) != ssize_t(size)) return;
        cards.push_back(text);
      }
      for (int socket : sockets) {
        for (const std::string& card : cards) {
          uint64_t size = card.size();
          if (send(socket, &size, sizeof(size), MSG_NOSIGNAL) < 0) break;
          if (send(socket, card.data(), size, MSG_NOSIGNAL) < 0) break;
        }
      }
    }
  });
  (void)exchange_stops_early;
  for (int rank = 0; rank < ranks; ++rank) {
    int status = 0;
    ASSERT_EQ(waitpid(children[rank], &status, 0), children[rank]);
    int outcome = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    EXPECT_EQ(outcome, expected[rank]) << "rank " << rank;
  }
  for (int socket : sockets) shutdown(socket, SHUT_RDWR);
  server.join();
  for (int socket : sockets) close(socket);
}

std::byte pattern(int from, int to, int message, size_t index) {
  return static_cast<std::byte>(from * 7 + to * 13 + message * 31 + index * 3 + (index >> 8));
}

struct Traffic {
  std::vector<std::vector<std::byte>> data;  // of each message
  std::byte* shared = nullptr;               // or all of them in library memory
  size_t stride = 0;
  std::array<std::vector<std::byte>, 2> landing;
  std::vector<size_t> sizes_in;
  int sent = 0, announced = 0, received = 0;
};

size_t size_of_message(int from, int to, int message, size_t most) {
  std::mt19937 random(from * 10007 + to * 101 + message);
  return random() % 3 == 0 ? random() % (most + 1) : random() % 200;
}

void check_message(const Rank& self, int peer, int message, const Received& got, size_t bytes) {
  self.require(got.bytes == bytes && got.signature == uint64_t(message),
               "message " + std::to_string(message) + " of rank " + std::to_string(peer) +
                   " has another size or signature");
  for (size_t i = 0; i < bytes; ++i) {
    self.require(got.data[i] == pattern(peer, self.rank, message, i),
                 "wrong byte " + std::to_string(i) + " of " + std::to_string(bytes) +
                     " in message " + std::to_string(message) + " of rank " + std::to_string(peer));
  }
}

// Sends `messages` to every other rank and checks what comes from them.
void all_to_all(Rank& self, int messages, size_t chunk, bool library_memory) {
  std::vector<Traffic> traffic(self.ranks);
  for (int peer = 0; peer < self.ranks; ++peer) {
    if (peer == self.rank) continue;
    Traffic& t = traffic[peer];
    t.stride = chunk;
    if (library_memory) {
      Result<void*> memory = self.fabric->allocate_shared(chunk * messages);
      self.require(memory.ok(), memory.status().message());
      t.shared = static_cast<std::byte*>(*memory);
    }
    for (int m = 0; m < messages; ++m) {
      t.data.emplace_back(size_of_message(self.rank, peer, m, chunk));
      for (size_t i = 0; i < t.data[m].size(); ++i) t.data[m][i] = pattern(self.rank, peer, m, i);
      if (t.shared != nullptr && !t.data[m].empty()) {
        std::memcpy(t.shared + m * chunk, t.data[m].data(), t.data[m].size());
      }
    }
    for (auto& landing : t.landing) landing.resize(chunk);
  }
  auto step = [&](int peer) {
    Traffic& t = traffic[peer];
    if (t.announced < messages && t.announced < t.received + 2 &&
        self.lane->try_announce(peer,
                                t.announced % 3 == 0 ? nullptr : t.landing[t.announced % 2].data(),
                                t.announced % 3 == 0 ? 0 : chunk, false)) {
      ++t.announced;
    }
    if (t.sent < messages) {
      Piece piece{t.shared != nullptr ? t.shared + t.sent * chunk : t.data[t.sent].data(),
                  t.data[t.sent].size()};
      t.sent += self.lane->try_send(peer, {&piece, 1}, Envelope{uint64_t(t.sent)}, true);
    }
    Received got;
    if (t.received < t.announced && self.lane->try_receive(peer, 0, &got)) {
      check_message(self, peer, t.received, got,
                    size_of_message(peer, self.rank, t.received, chunk));
      self.lane->release(peer);
      ++t.received;
    }
    return t.received == messages && self.lane->sends_done(peer) == uint64_t(messages);
  };
  self.drive(
      [&] {
        bool all = true;
        for (int peer = 0; peer < self.ranks; ++peer) {
          if (peer != self.rank) all &= step(peer);
        }
        return all;
      },
      "all to all");
  self.drive([&] { return self.lane->quiet(); }, "quiet");
  self.allgather("done");
  for (Traffic& t : traffic) {
    if (t.shared != nullptr) {
      self.require(self.fabric->free_shared(t.shared).ok(), "cannot free");
    }
  }
}

struct Arrangement {
  const char* name;
  std::vector<int> node;
  const char* put;
};

class LaneProcesses : public ::testing::TestWithParam<Arrangement> {};

TEST_P(LaneProcesses, AllToAllOfRandomMessages) {
  run_ranks(GetParam().node, [](Rank& self) {
    constexpr size_t kChunk = 48 * 1024;
    for (int lane = 0; lane < 3; ++lane) {
      self.open(GetParam().put, LaneOptions{kChunk, 4});
      all_to_all(self, 60, kChunk, lane == 1);
      self.lane = nullptr;
    }
    self.allgather("bye");
  });
}

TEST_P(LaneProcesses, EachPairSaysWhatCarriesIt) {
  run_ranks(GetParam().node, [](Rank& self) {
    self.open(GetParam().put, LaneOptions{4096, 2});
    for (int peer = 0; peer < self.ranks; ++peer) {
      std::string text = self.lane->describe(peer);
      bool local = self.node[peer] == self.node[self.rank];
      self.require((text == "shared memory") == local, "unexpected: " + text);
      bool put = text.find(", put") != std::string::npos;
      self.require(local || put == (GetParam().put == std::string("yes")), "unexpected: " + text);
      // UCX must not share memory behind our back.
      for (const char* secret : {"sysv", "posix", "cma", "xpmem", "self"}) {
        self.require(text.find(secret) == std::string::npos, "secret sharing: " + text);
      }
    }
    all_to_all(self, 3, 4096, false);
    self.lane = nullptr;
    self.allgather("bye");
  });
}

INSTANTIATE_TEST_SUITE_P(Nodes, LaneProcesses,
                         ::testing::Values(Arrangement{"OneNode", {0, 0, 0}, "auto"},
                                           Arrangement{"ThreeNodes", {0, 1, 2}, "no"},
                                           Arrangement{"TwoAndOne", {0, 0, 1}, "no"},
                                           Arrangement{"ThreeNodesWithPut", {0, 1, 2}, "yes"},
                                           Arrangement{"TwoAndOneWithPut", {0, 0, 1}, "yes"},
                                           Arrangement{"TwoAndTwo", {0, 1, 1, 0}, "auto"}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(LaneFailure, ADeadPeerOfAnotherNodeIsARemoteError) {
  run_ranks(
      {0, 1},
      [](Rank& self) {
        self.open("no", LaneOptions{4096, 2});
        all_to_all(self, 3, 4096, false);
        if (self.rank == 1) kill(getpid(), SIGKILL);
        auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
        while (true) {
          Result<bool> moved = self.lane->progress();
          if (!moved.ok()) {
            self.require(moved.status().code() == hetcclRemoteError, moved.status().message());
            self.require(moved.status().message().find("rank 1") != std::string::npos,
                         moved.status().message());
            break;
          }
          self.require(std::chrono::steady_clock::now() < deadline, "the death went unnoticed");
          std::this_thread::yield();
        }
        self.lane = nullptr;
      },
      {0, -SIGKILL});
}

// The lane goes while large messages are under way to a rank that makes no progress.
TEST(LaneFailure, ALaneCanGoWithMessagesUnderWay) {
  run_ranks({0, 1}, [](Rank& self) {
    constexpr size_t kChunk = size_t{1} << 20;
    self.open("no", LaneOptions{kChunk, 4});
    all_to_all(self, 2, 4096, false);
    if (self.rank == 0) {
      std::vector<std::byte> data(kChunk);
      Piece piece{data.data(), data.size()};
      for (int i = 0; i < 4; ++i) {
        self.require(self.lane->try_send(1, {&piece, 1}, Envelope{1}, true), "no credit");
      }
      auto start = std::chrono::steady_clock::now();
      self.lane = nullptr;
      self.require(std::chrono::steady_clock::now() - start < std::chrono::seconds(10), "slow");
    }
    self.allgather("gone");
  });
}

TEST(Signals, TheHostsHandlersSurvive) {
  run_ranks({0, 0}, [](Rank& self) {
    struct sigaction mine {};
    mine.sa_handler = [](int) { _exit(42); };
    sigaction(SIGSEGV, &mine, nullptr);
    self.open("auto", LaneOptions{4096, 2});
    struct sigaction now {};
    sigaction(SIGSEGV, nullptr, &now);
    self.require(now.sa_handler == mine.sa_handler, "SIGSEGV was taken");
    for (int number : {SIGBUS, SIGFPE, SIGILL, SIGHUP}) {
      sigaction(number, nullptr, &now);
      // Ignored is what a job in the background inherits.
      bool none = now.sa_handler == SIG_DFL || now.sa_handler == SIG_IGN;
      self.require((now.sa_flags & SA_SIGINFO) == 0 && none,
                   "signal " + std::to_string(number) + " was taken");
    }
    all_to_all(self, 3, 4096, false);
    self.allgather("bye");
  });
}

TEST(FabricOptionsCheck, AnUnknownInterfaceIsNamedWithThoseThereAre) {
  run_ranks({0}, [](Rank& self) {
    Result<Fabric*> made =
        Fabric::create(FabricOptions{.interfaces = "no_such0", .segment_bytes = 0, .put = "auto"});
    self.require(!made.ok(), "accepted");
    for (const char* word : {"HETCCL_SOCKET_IFNAME", "no_such0", "lo"}) {
      self.require(made.status().message().find(word) != std::string::npos,
                   made.status().message());
    }
    made = Fabric::create(FabricOptions{.interfaces = "", .segment_bytes = 0, .put = "maybe"});
    self.require(!made.ok(), "accepted");
    self.require(made.status().message().find("HETCCL_NET_PUT") != std::string::npos,
                 made.status().message());
    made = Fabric::create(FabricOptions{.interfaces = "lo", .segment_bytes = 65536, .put = "no"});
    self.require(made.ok(), made.status().message());
    Result<Fabric*> again =
        Fabric::create(FabricOptions{.interfaces = "", .segment_bytes = 0, .put = "yes"});
    self.require(again.ok() && *again == *made, "a second fabric");
    self.require((*made)->describe().find("65536") != std::string::npos, (*made)->describe());
  });
}

}  // namespace
}  // namespace hetccl::net

// A message to another process of the node and back, over the lane that both ranks map: through the
// lane's virtual calls, and by the pair beneath, as the smallest calls do. Each message is written
// anew before it is sent and read whole where it arrives: else a receiver that reads in place would
// find the last one in its cache.
#include <benchmark/benchmark.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "lib/net/fabric.h"
#include "lib/net/shm_pair.h"

namespace hetccl::net {
namespace {

constexpr size_t kChunkBytes = 64 << 10;
constexpr unsigned kDepth = 8;
constexpr int kRanks = 2;
constexpr uint64_t kEcho = 1, kLeave = 2;  // signatures

[[noreturn]] void give_up(const std::string& why) {
  std::fprintf(stderr, "bench_slots: %s\n", why.c_str());
  _exit(1);
}

// Sends `mine` and returns the other's.
std::string exchange(int socket, const std::string& mine) {
  const uint64_t size = mine.size();
  uint64_t their_size = 0;
  if (send(socket, &size, sizeof size, 0) != sizeof size ||
      send(socket, mine.data(), size, 0) != static_cast<ssize_t>(size) ||
      recv(socket, &their_size, sizeof their_size, MSG_WAITALL) != sizeof their_size) {
    give_up("the other process is gone");
  }
  std::string theirs(their_size, '\0');
  if (recv(socket, theirs.data(), their_size, MSG_WAITALL) != static_cast<ssize_t>(their_size)) {
    give_up("the other process is gone");
  }
  return theirs;
}

// One process's end of the lane, and a message in memory of its own and of the library.
class End {
 public:
  End(int rank, int socket) : other_(1 - rank), ordinary_(kChunkBytes, std::byte{1}) {
    fabric_ = value(Fabric::create({.interfaces = "", .segment_bytes = 0, .put = "auto"}));
    auto setup = value(fabric_->open_lane(kRanks, rank, {kChunkBytes, kDepth}));
    const std::string theirs = exchange(socket, setup->card());
    std::vector<std::string> cards = {setup->card(), theirs};
    if (rank == 1) std::swap(cards[0], cards[1]);
    lane_ = value(setup->connect(cards, {true, true}));
    (void)exchange(socket, "connected");
    library_ = static_cast<std::byte*>(value(fabric_->allocate_shared(kChunkBytes)));
    std::memset(library_, 1, kChunkBytes);
  }

  Lane* lane() { return lane_.get(); }
  ShmPair* pair() { return lane_->shared_pair(other_); }
  // A message like no other before; without a zero.
  const std::byte* write(size_t bytes, bool library) {
    std::byte* to = library ? library_ : ordinary_.data();
    std::memset(to, static_cast<int>(1 + ++written_ % 100), bytes);
    return to;
  }

  void send(size_t bytes, bool library, uint64_t what) {
    const Piece piece{write(bytes, library), bytes};
    wait([&] { return lane_->try_send(other_, {&piece, 1}, Envelope{what}, library); });
  }
  Received receive() {
    Received got{};
    wait([&] { return lane_->try_receive(other_, 0, &got); });
    return got;
  }
  void release() { lane_->release(other_); }

  template <typename Done>
  void wait(Done done) {
    constexpr int kSpins = 1000;
    for (int spin = 0; !done(); ++spin) {
      if (spin > kSpins) std::this_thread::yield();
    }
  }

 private:
  template <typename T>
  static T value(Result<T> result) {
    if (!result.ok()) give_up(result.status().message());
    return std::move(*result);
  }

  int other_;
  Fabric* fabric_ = nullptr;
  std::unique_ptr<Lane> lane_;
  std::vector<std::byte> ordinary_;
  std::byte* library_ = nullptr;
  unsigned written_ = 0;
};

End* end = nullptr;  // of this process

// Reads what came, as a receiver does, and sends as much from the same kind of memory.
[[noreturn]] void echo() {
  while (true) {
    const Received got = end->receive();
    const uint64_t what = got.signature;
    const size_t bytes = got.bytes;
    const bool library = got.form != 0;
    benchmark::DoNotOptimize(std::memchr(got.data, 0, bytes));
    end->release();
    if (what == kLeave) _exit(0);
    end->send(bytes, library, kEcho);
  }
}

void lane_round_trip(benchmark::State& state, bool library) {
  const auto bytes = static_cast<size_t>(state.range(0));
  Lane* lane = end->lane();
  for (auto _ : state) {
    const Piece piece{end->write(bytes, library), bytes};
    end->wait([&] {
      return lane->try_send(1, {&piece, 1}, Envelope{kEcho, uint32_t{library}}, library);
    });
    const Received got = end->receive();
    benchmark::DoNotOptimize(std::memchr(got.data, 0, got.bytes));
    end->release();
  }
  state.SetBytesProcessed(static_cast<int64_t>(2 * state.iterations() * bytes));
}

void pair_round_trip(benchmark::State& state) {
  const auto bytes = static_cast<size_t>(state.range(0));
  ShmPair* pair = end->pair();
  if (pair == nullptr) return state.SkipWithError("the ranks share no memory");
  for (auto _ : state) {
    const std::byte* data = end->write(bytes, false);
    end->wait([&] { return pair->send(data, bytes, Envelope{kEcho}, false); });
    Received got{};
    end->wait([&] { return pair->receive(&got); });
    benchmark::DoNotOptimize(std::memchr(got.data, 0, got.bytes));
    pair->release();
  }
  state.SetBytesProcessed(static_cast<int64_t>(2 * state.iterations() * bytes));
}

BENCHMARK(pair_round_trip)->Arg(8)->Arg(64)->Arg(512)->UseRealTime();
BENCHMARK_CAPTURE(lane_round_trip, ordinary_memory, false)
    ->RangeMultiplier(8)
    ->Range(8, kChunkBytes)
    ->UseRealTime();
BENCHMARK_CAPTURE(lane_round_trip, library_memory, true)
    ->RangeMultiplier(8)
    ->Range(8, kChunkBytes)
    ->UseRealTime();

int main_of_bench(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  int sockets[kRanks];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0) give_up("no sockets");
  // Before UCX is touched: its threads and mappings do not survive a fork.
  const pid_t child = fork();
  if (child < 0) give_up("no second process");
  if (child == 0) prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int rank = child == 0;
  close(sockets[1 - rank]);
  end = new End(rank, sockets[rank]);
  if (rank == 1) echo();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  end->send(1, false, kLeave);
  int status = 0;
  if (waitpid(child, &status, 0) != child || status != 0) give_up("the other process failed");
  return 0;
}

}  // namespace
}  // namespace hetccl::net

int main(int argc, char** argv) { return hetccl::net::main_of_bench(argc, argv); }

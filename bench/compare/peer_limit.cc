// No library but a reference near the limit: every rank reads its input once and writes its output
// once, then exchanges one cache line with all others. It computes nothing of use.
#include <mpi.h>
#include <sched.h>

#include <atomic>
#include <cstring>
#include <new>
#include <thread>

#include "bench/compare/peer.h"

namespace hetccl::bench {
namespace {

// A rank's flags are used in turn: one that the others still look at costs more to write.
constexpr size_t kFlags = 16;

struct alignas(128) Flag {
  std::atomic<uint64_t> calls{0};
};

// Reads all of it, and makes the compiler believe that somebody cares.
void read_all(const std::byte* data, size_t bytes) {
  uint64_t sums[8] = {};
  size_t at = 0;
  for (; at + sizeof sums <= bytes; at += sizeof sums) {
    for (size_t i = 0; i < 8; ++i) {
      uint64_t word;
      std::memcpy(&word, data + at + i * sizeof word, sizeof word);
      sums[i] += word;
    }
  }
  asm volatile("" : : "r"(sums) : "memory");
}

class LimitPeer final : public Peer {
 public:
  LimitPeer(Flag* flags, const World& world)
      : flags_(flags),
        world_(world),
        // With a core for each rank there is nobody to yield to.
        most_spins_(
            world.ranks() > static_cast<int>(std::thread::hardware_concurrency()) ? 100 : 1000000) {
  }
  std::string version() const override { return "each input read once, each output written once"; }
  bool has_results() const override { return false; }
  std::string run(const Call& call) override {
    move(call);
    meet();
    return "";
  }

 private:
  void move(const Call& call) {
    const size_t sent = call.sent().total * sizeof(float);
    const size_t received = call.received().total * sizeof(float);
    const bool reads = call.kind() != Kind::kBroadcast || call.at_root();
    const bool writes = (call.kind() != Kind::kReduce || call.at_root()) &&
                        (call.kind() != Kind::kBroadcast || !call.at_root());
    if (!writes) {
      read_all(call.send(), sent);
    } else if (!reads) {
      std::memset(call.recv(), 1, received);
    } else if (sent > received) {
      read_all(call.send() + received, sent - received);
      std::memcpy(call.recv(), call.send(), received);
    } else {
      for (size_t at = 0; at < received; at += sent) {
        std::memcpy(call.recv() + at, call.send(), sent);
      }
    }
  }
  void meet() {
    const size_t turn = ++calls_ % kFlags;
    flag(world_.place().rank, turn).store(calls_, std::memory_order_release);
    for (int other = 0; other < world_.ranks(); ++other) {
      for (int spin = 0; flag(other, turn).load(std::memory_order_acquire) < calls_; ++spin) {
        if (spin > most_spins_) sched_yield();
#ifdef __x86_64__
        __builtin_ia32_pause();
#endif
      }
    }
  }
  std::atomic<uint64_t>& flag(int rank, size_t turn) {
    return flags_[static_cast<size_t>(rank) * kFlags + turn].calls;
  }
  Flag* flags_;  // kFlags of each rank
  const World& world_;
  int most_spins_;
  uint64_t calls_ = 0;
};

}  // namespace

std::unique_ptr<Peer> make_peer(const World& world, const PeerArguments&, std::string* why) {
  if (world.ranks_on_node() != world.ranks()) {
    *why = "the limit of memory is one node's";
    return nullptr;
  }
  // The window is never freed: MPI would do so together with all ranks, at the end anyway.
  MPI_Win window;
  void* mine = nullptr;
  const int first = world.rank() == 0;
  const auto bytes = static_cast<MPI_Aint>(sizeof(Flag) * kFlags) * (world.ranks() + 1) * first;
  if (MPI_Win_allocate_shared(bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &mine, &window) !=
      MPI_SUCCESS) {
    *why = "no shared memory";
    return nullptr;
  }
  MPI_Aint size = 0;
  int unit = 0;
  void* base = nullptr;
  MPI_Win_shared_query(window, 0, &size, &unit, &base);
  const auto address = reinterpret_cast<uintptr_t>(base);
  auto* flags =
      reinterpret_cast<Flag*>((address + alignof(Flag) - 1) / alignof(Flag) * alignof(Flag));
  if (world.rank() == 0) {
    for (size_t i = 0; i < kFlags * static_cast<size_t>(world.ranks()); ++i) new (&flags[i]) Flag;
  }
  world.barrier();
  return std::make_unique<LimitPeer>(flags, world);
}

}  // namespace hetccl::bench

// Runs a function as several ranks, each in a process of its own, with no MPI: the ranks meet by a
// unique id. The parent never touches the library, so that children start clean.
#pragma once

#include <hetccl/hetccl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <new>
#include <string>
#include <thread>
#include <vector>

namespace hetccl::test {

constexpr int kMaxRanks = 16;

// Shared by parent and children.
struct Board {
  std::atomic<int> id_known{0};
  hetcclUniqueId id;
  std::atomic<int> ready{0};  // ranks that have reached the point of interest
  std::atomic<int> event{0};  // set by the parent when it has done its deed
  std::atomic<int> result[kMaxRanks];
  std::atomic<int64_t> seconds_us[kMaxRanks];  // from the event to the error
  char text[kMaxRanks][512];

  void say(int rank, hetcclResult_t r, const char* why) {
    std::snprintf(text[rank], sizeof text[rank], "%s", why);
    result[rank] = r;
  }
};

class Ranks {
 public:
  using Body = std::function<void(int rank, Board& board)>;

  Ranks(int n, const Body& body) : n_(n) {
    void* memory =
        mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    board_ = new (memory) Board;
    for (auto& r : board_->result) r = -1;
    for (int rank = 0; rank < n; ++rank) {
      const pid_t pid = fork();
      if (pid == 0) {
        alarm(100);  // never outlives a hung test
        body(rank, *board_);
        std::fflush(nullptr);
        _exit(0);
      }
      pids_.push_back(pid);
    }
  }
  ~Ranks() {
    for (pid_t pid : pids_) {
      if (pid > 0) kill(pid, SIGKILL);
    }
    for (int k = 0; k < n_; ++k) status(k);
    munmap(board_, sizeof(Board));
  }

  Board& board() { return *board_; }
  void signal(int rank, int number) { kill(pids_[static_cast<size_t>(rank)], number); }

  // Waits for the end of a rank; its exit status as waitpid gives it.
  int status(int rank) {
    pid_t& pid = pids_[static_cast<size_t>(rank)];
    if (pid <= 0) return last_status_[rank];
    waitpid(pid, &last_status_[rank], 0);
    pid = -1;
    return last_status_[rank];
  }

  bool wait_until(const std::function<bool()>& condition, double seconds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (!condition()) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  }

 private:
  int n_;
  Board* board_;
  std::vector<pid_t> pids_;
  int last_status_[kMaxRanks] = {};
};

// In a child: the communicator of all n ranks.
inline hetcclComm_t meet(int rank, int n, Board& board, const hetcclConfig_t* config = nullptr) {
  if (rank == 0) {
    if (hetcclGetUniqueId(&board.id) != hetcclSuccess) _exit(10);
    board.id_known = 1;
  }
  while (board.id_known == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  hetcclComm_t comm = nullptr;
  if (hetcclCommInitRankConfig(&comm, n, board.id, rank, config) != hetcclSuccess) {
    std::fprintf(stderr, "rank %d: %s\n", rank, hetcclGetLastError(nullptr));
    _exit(11);
  }
  return comm;
}

}  // namespace hetccl::test

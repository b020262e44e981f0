// Ranks with simulated devices and a stand-in for their vendor's library, each in a process of its
// own. HETCCL_STUB is the stand-in's path.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "lib/introspect.h"
#include "test/delegate/stub_collectives.h"
#include "test/faults/processes.h"

namespace hetccl::test {

// The stand-in in this process, as the library will find it.
template <class F>
F* stub(F*, const char* name) {
  void* const object = dlopen(HETCCL_STUB, RTLD_NOW | RTLD_LOCAL);
  void* const found = object != nullptr ? dlsym(object, name) : nullptr;
  if (found == nullptr) _exit(20);
  return reinterpret_cast<F*>(found);
}
#define STUB(name) ::hetccl::test::stub(static_cast<decltype(&name)>(nullptr), #name)

// What a rank finds wrong; the first counts.
class Findings {
 public:
  void check(bool ok, const std::string& what) {
    if (!ok && first_.empty()) first_ = what;
  }
  void equal(const std::string& got, const std::string& want, const std::string& what) {
    check(got == want, what + ": got \"" + got + "\", want \"" + want + "\"");
  }
  void contains(const std::string& text, const std::string& part) {
    check(text.find(part) != std::string::npos, "\"" + part + "\" is not in \"" + text + "\"");
  }
  void ok(hetcclResult_t r) {
    check(r == hetcclSuccess,
          std::string(hetcclGetErrorString(r)) + ": " + hetcclGetLastError(nullptr));
  }
  const std::string& first() const { return first_; }

 private:
  std::string first_;
};

// Where the stand-in's ranks meet: what a rank that dies leaves there goes with it.
class Folder {
 public:
  Folder() {
    if (mkdtemp(path_) != nullptr) setenv("STUB_FOLDER", path_, 1);
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;

 private:
  char path_[32] = "/tmp/hetccl-stubs-XXXXXX";
};

using RankBody = std::function<void(int rank, Board& board, Findings& found)>;

// Every rank runs `body`; what one finds is a failure of the test. A rank of `victim` may die.
inline void run_ranks(int n, const RankBody& body, int victim = -1) {
  Folder folder;
  Ranks ranks(n, [&](int rank, Board& board) {
    Findings found;
    body(rank, board, found);
    board.say(rank, hetcclSuccess, found.first().c_str());
  });
  for (int r = 0; r < n; ++r) {
    if (r == victim) continue;
    EXPECT_EQ(ranks.status(r), 0) << "rank " << r;
    EXPECT_STREQ(ranks.board().text[r], "") << "rank " << r;
  }
}

// Of all n ranks, on devices of `kind`. The library's path is a setting of each rank's own.
// The ordinal of this rank's device: each has one of its own.
inline int own_device = 0;

inline hetcclResult_t try_create(int rank, int n, Board& board, int kind, hetcclComm_t* comm) {
  if (rank == 0) {
    if (hetcclGetUniqueId(&board.id) != hetcclSuccess) _exit(10);
    board.id_known = 1;
  }
  while (board.id_known == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  setenv("HETCCL_SIM", "devices=4", 0);
  hetcclConfig_t config = HETCCL_CONFIG_INITIALIZER;
  config.device_kind = kind;
  config.device = kind == hetcclMemoryHost ? -1 : own_device;
  return hetcclCommInitRankConfig(comm, n, board.id, rank, &config);
}

inline hetcclComm_t create(int rank, int n, Board& board, int kind = hetcclMemorySimCuda) {
  setenv("HETCCL_DELEGATE_LIBRARY", HETCCL_STUB, 0);
  own_device = rank;
  hetcclComm_t comm = nullptr;
  if (try_create(rank, n, board, kind, &comm) != hetcclSuccess) {
    std::fprintf(stderr, "rank %d: %s\n", rank, hetcclGetLastError(nullptr));
    _exit(11);
  }
  return comm;
}

// {"to": "nccl", "reason": "..."}
inline nlohmann::json delegation_of(hetcclComm_t comm) {
  return nlohmann::json::parse(hetcclInternalDescribe(comm))["delegation"];
}

// Memory of a kind that holds elements of a type.
template <class T>
class Buffer {
 public:
  Buffer(int kind, const std::vector<T>& values, int device = own_device) : size_(values.size()) {
    const auto k = static_cast<hetcclMemoryKind_t>(kind);
    const hetcclResult_t r = kind == hetcclMemoryHost
                                 ? hetcclMemAlloc(&memory_, size_ * sizeof(T), k)
                                 : hetcclInternalMemAllocOn(k, device, size_ * sizeof(T), &memory_);
    if (r != hetcclSuccess) _exit(21);
    set(values);
  }
  ~Buffer() { hetcclMemFree(memory_); }
  Buffer(const Buffer&) = delete;
  T* data() const { return static_cast<T*>(memory_); }
  void set(const std::vector<T>& values) {
    if (hetcclInternalCopy(memory_, values.data(), size_ * sizeof(T)) != hetcclSuccess) _exit(22);
  }
  std::vector<T> get() const {
    std::vector<T> values(size_);
    if (hetcclInternalCopy(values.data(), memory_, size_ * sizeof(T)) != hetcclSuccess) _exit(23);
    return values;
  }

 private:
  void* memory_ = nullptr;
  size_t size_;
};

}  // namespace hetccl::test

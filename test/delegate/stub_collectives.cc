// A stand-in for a vendor's library of collectives: processes of one machine that meet in a file,
// on memory that the processor can touch. As the real ones do in their non-blocking form, calls
// return at once and run in the background. It keeps a log, and fails when told to.
//
// All ranks make the same calls, and sends and receives of a group are an exchange of equal blocks:
// what else the real libraries bear is not what is tested here.
#include "test/delegate/stub_collectives.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#define HETCCL_KERNEL_NAMESPACE stub
#include "lib/device/elements.h"

namespace {

using hetccl::device::stub::Brain;
using hetccl::device::stub::decode;
using hetccl::device::stub::encode;
using hetccl::device::stub::Half;

constexpr int kSuccess = 0, kInternal = 3, kInvalid = 4, kInProgress = 7;
constexpr size_t kSlot = 64 << 10;  // bytes of a rank that the others see at a time

struct Id {
  char bytes[128];
};

struct Config {
  size_t size;
  unsigned magic, version;
  int blocking;
};

// ---- What the tests control

struct Control {
  std::mutex mutex;
  std::string log, failing;
  int failing_code = 0;
  std::atomic<int> version{22809};
  std::atomic<bool> hangs{false}, corrupts{false}, stuck{false};
  std::atomic<int> fails_later{0};
};
Control& control() {
  static Control& c = *new Control;
  return c;
}

// Notes the call; the code that it is to return, if it is to fail.
int note(const char* function, const std::string& arguments) {
  Control& c = control();
  const std::lock_guard lock(c.mutex);
  c.log += function + arguments + "\n";
  if (c.failing != function) return kSuccess;
  c.failing.clear();
  return c.failing_code;
}

std::string text(const char* label, int64_t value) {
  return std::string(" ") + label + "=" + std::to_string(value);
}

// ---- The ranks' common file

struct Shared {
  std::atomic<int> joined;
  std::atomic<int> arrived;
  std::atomic<unsigned> round;
};

struct Pending {  // of a group of sends and receives
  const char* from;
  char* to;
  size_t bytes;
  int peer;
};

struct Group {
  int ranks = 0, rank = 0;
  std::string file;
  Shared* shared = nullptr;
  size_t mapped = 0;
  std::atomic<int> state{kInProgress};
  std::atomic<bool> aborted{false};
  std::mutex mutex;
  std::condition_variable changed;
  std::function<int()> work;
  bool ends = false;
  std::vector<Pending> sends, receives;
  std::thread thread;

  char* slot(int r) {
    return reinterpret_cast<char*>(shared) + 4096 + kSlot * static_cast<size_t>(r);
  }
  // False: aborted.
  bool meet() {
    const unsigned round = shared->round;
    if (++shared->arrived == ranks) {
      shared->arrived = 0;
      ++shared->round;
      return true;
    }
    while (shared->round == round) {
      if (aborted) return false;
      sched_yield();
    }
    return true;
  }
  // What this rank gives, piece after piece, and what it makes of all ranks' pieces.
  int exchange(const char* mine, size_t bytes,
               const std::function<void(size_t at, size_t length)>& take) {
    for (size_t at = 0; at < bytes; at += kSlot) {
      const size_t length = std::min(kSlot, bytes - at);
      if (mine != nullptr) std::memcpy(slot(rank), mine + at, length);
      if (!meet()) return kInternal;
      take(at, length);
      if (!meet()) return kInternal;
    }
    return kSuccess;
  }
};

thread_local int depth = 0;
thread_local Group* grouped = nullptr;

int map_file(Group* g) {
  const int fd = open(g->file.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return kInternal;
  g->mapped = 4096 + kSlot * static_cast<size_t>(g->ranks);
  void* at = MAP_FAILED;
  if (ftruncate(fd, static_cast<off_t>(g->mapped)) == 0) {
    at = mmap(nullptr, g->mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  close(fd);
  if (at == MAP_FAILED) return kInternal;
  g->shared = static_cast<Shared*>(at);
  return kSuccess;
}

// The thread of a group: joins, then runs one call after another.
void serve(Group* g) {
  ++g->shared->joined;
  while (g->shared->joined < g->ranks || control().hangs) {
    if (g->aborted) return;
    sched_yield();
  }
  if (g->rank == 0) unlink(g->file.c_str());
  g->state = kSuccess;
  std::unique_lock lock(g->mutex);
  for (;;) {
    g->changed.wait(lock, [&] { return g->ends || g->work; });
    if (!g->work) return;
    const std::function<int()> work = std::move(g->work);
    g->work = nullptr;
    lock.unlock();
    while (control().hangs && !g->aborted) sched_yield();
    const int later = control().fails_later;
    g->state = g->aborted ? kInternal : later != kSuccess ? later : work();
    lock.lock();
  }
}

int submit(Group* g, std::function<int()> work) {
  if (g->state != kSuccess) return kInvalid;
  g->state = kInProgress;
  const std::lock_guard lock(g->mutex);
  g->work = std::move(work);
  g->changed.notify_one();
  return kInProgress;
}

int end_group(Group* g, bool abort) {
  if (abort) g->aborted = true;
  {
    const std::lock_guard lock(g->mutex);
    g->ends = true;
    g->changed.notify_one();
  }
  g->thread.join();
  if (abort && g->rank == 0) unlink(g->file.c_str());
  munmap(g->shared, g->mapped);
  delete g;
  return kSuccess;
}

// ---- Arithmetic: one type, one operator, over the ranks in order

template <class T, class Read, class Write>
void reduce_as(Group* g, char* to, size_t elements, int op, Read read, Write write) {
  for (size_t i = 0; i < elements; ++i) {
    auto value = [&](int r) { return read(reinterpret_cast<const T*>(g->slot(r))[i]); };
    auto sum = value(0);
    for (int r = 1; r < g->ranks; ++r) {
      const auto x = value(r);
      if (op == 0 || op == 4) sum = static_cast<decltype(sum)>(sum + x);
      if (op == 1) sum = static_cast<decltype(sum)>(sum * x);
      if (op == 2) sum = std::max(sum, x);
      if (op == 3) sum = std::min(sum, x);
    }
    if (op == 4) sum = static_cast<decltype(sum)>(sum / static_cast<decltype(sum)>(g->ranks));
    const T result = write(sum);
    std::memcpy(to + i * sizeof(T), &result, sizeof(T));
  }
}

template <class T>
void reduce_plain(Group* g, char* to, size_t bytes, int op) {
  const auto same = [](T x) { return x; };
  reduce_as<T>(g, to, bytes / sizeof(T), op, same, same);
}

template <class Format>
void reduce_narrow(Group* g, char* to, size_t bytes, int op) {
  reduce_as<uint16_t>(g, to, bytes / 2, op, decode<Format>, encode<Format>);
}

void reduce_slots(Group* g, char* to, size_t bytes, int type, int op) {
  using Reduce = void (*)(Group*, char*, size_t, int);
  constexpr Reduce kReduce[] = {
      reduce_plain<int8_t>,  reduce_plain<uint8_t>,  reduce_plain<int32_t>, reduce_plain<uint32_t>,
      reduce_plain<int64_t>, reduce_plain<uint64_t>, reduce_narrow<Half>,   reduce_plain<float>,
      reduce_plain<double>,  reduce_narrow<Brain>};
  kReduce[type](g, to, bytes, op);
  if (control().corrupts) to[0] = static_cast<char>(to[0] + 1);
}

size_t width_of(int type) {
  constexpr size_t kWidth[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return kWidth[type];
}

bool bad(int type, int op) { return type < 0 || type > 9 || op < 0 || op > 4; }

}  // namespace

extern "C" {

#define STUB_EXPORT __attribute__((visibility("default")))

STUB_EXPORT const char* stub_calls() {
  static std::string copy;
  const std::lock_guard lock(control().mutex);
  copy = control().log;
  return copy.c_str();
}
STUB_EXPORT void stub_set_version(int version) { control().version = version; }
STUB_EXPORT void stub_fail(const char* function, int code) {
  const std::lock_guard lock(control().mutex);
  control().failing = function;
  control().failing_code = code;
}
STUB_EXPORT void stub_hang() { control().hangs = true; }
STUB_EXPORT void stub_fail_later(int code) { control().fails_later = code; }
STUB_EXPORT void stub_get_stuck() { control().hangs = control().stuck = true; }
STUB_EXPORT void stub_corrupt() { control().corrupts = true; }

STUB_EXPORT int ncclGetVersion(int* version) {
  *version = control().version;
  return kSuccess;
}

STUB_EXPORT int ncclGetUniqueId(Id* id) {
  if (const int code = note("ncclGetUniqueId", ""); code != kSuccess) return code;
  std::memset(id->bytes, 0, sizeof id->bytes);
  const char* const folder = std::getenv("STUB_FOLDER");
  std::snprintf(id->bytes, sizeof id->bytes, "%s/hetccl-stub-XXXXXX",
                folder != nullptr ? folder : "/tmp");
  const int fd = mkstemp(id->bytes);
  if (fd < 0) return kInternal;
  close(fd);
  return kSuccess;
}

STUB_EXPORT int ncclCommInitRankConfig(void** group, int ranks, Id id, int rank, Config* config) {
  const int code = note("ncclCommInitRankConfig", text("ranks", ranks) + text("rank", rank) +
                                                      text("blocking", config->blocking));
  if (code != kSuccess) return code;
  if (config->magic != 0xcafebeef || config->blocking != 0) return kInvalid;
  auto* const g = new Group;
  g->ranks = ranks;
  g->rank = rank;
  g->file = id.bytes;
  if (const int mapped = map_file(g); mapped != kSuccess) {
    delete g;
    return mapped;
  }
  *group = g;
  g->thread = std::thread(serve, g);
  return kInProgress;
}

STUB_EXPORT int ncclCommDestroy(void* group) {
  note("ncclCommDestroy", "");
  return end_group(static_cast<Group*>(group), false);
}
STUB_EXPORT int ncclCommAbort(void* group) {
  note("ncclCommAbort", "");
  while (control().stuck) usleep(1000);
  return end_group(static_cast<Group*>(group), true);
}

STUB_EXPORT int ncclCommGetAsyncError(void* group, int* code) {
  *code = static_cast<Group*>(group)->state;
  return kSuccess;
}

// As the real ones do, it calls another function of the interface: its own, one hopes.
STUB_EXPORT int ncclCommFinalize(void* group) {
  int state = kInternal;
  (void)ncclCommGetAsyncError(group, &state);
  const int code = note("ncclCommFinalize", "");
  return code != kSuccess ? code : state;
}

STUB_EXPORT const char* ncclGetErrorString(int code) {
  return code == kInvalid ? "invalid argument" : code == 6 ? "remote error" : "stub error";
}
STUB_EXPORT const char* ncclGetLastError(void*) { return "as told by the test"; }

STUB_EXPORT int ncclGroupStart() {
  ++depth;
  return kSuccess;
}

// Step d: every rank sends to the d-th after it, and receives from the d-th before it.
STUB_EXPORT int ncclGroupEnd() {
  if (--depth != 0 || grouped == nullptr) return kSuccess;
  Group* const g = grouped;
  grouped = nullptr;
  const auto sends = std::move(g->sends), receives = std::move(g->receives);
  g->sends.clear();
  g->receives.clear();
  const int code =
      note("ncclGroupEnd", text("sends", static_cast<int64_t>(sends.size())) +
                               text("receives", static_cast<int64_t>(receives.size())));
  if (code != kSuccess) return code;
  return submit(g, [g, sends, receives] {
    const auto with = [](const std::vector<Pending>& list, int peer) {
      return *std::find_if(list.begin(), list.end(), [&](auto& p) { return p.peer == peer; });
    };
    for (int d = 0; d < g->ranks; ++d) {
      const int source = (g->rank - d + g->ranks) % g->ranks;
      const Pending send = with(sends, (g->rank + d) % g->ranks), receive = with(receives, source);
      const int moved = g->exchange(send.from, send.bytes, [&](size_t at, size_t length) {
        std::memcpy(receive.to + at, g->slot(source), length);
      });
      if (moved != kSuccess) return moved;
    }
    return kSuccess;
  });
}

STUB_EXPORT int ncclSend(const void* from, size_t count, int type, int peer, void* group, void*) {
  const int code = note("ncclSend", text("count", static_cast<int64_t>(count)) +
                                        text("type", type) + text("peer", peer));
  if (code != kSuccess || depth == 0) return code != kSuccess ? code : kInvalid;
  grouped = static_cast<Group*>(group);
  grouped->sends.push_back({static_cast<const char*>(from), nullptr, count * width_of(type), peer});
  return kSuccess;
}
STUB_EXPORT int ncclRecv(void* to, size_t count, int type, int peer, void* group, void*) {
  const int code = note("ncclRecv", text("count", static_cast<int64_t>(count)) +
                                        text("type", type) + text("peer", peer));
  if (code != kSuccess || depth == 0) return code != kSuccess ? code : kInvalid;
  grouped = static_cast<Group*>(group);
  grouped->receives.push_back({nullptr, static_cast<char*>(to), count * width_of(type), peer});
  return kSuccess;
}

STUB_EXPORT int ncclAllReduce(const void* from, void* to, size_t count, int type, int op,
                              void* group, void*) {
  const int code = note("ncclAllReduce", text("count", static_cast<int64_t>(count)) +
                                             text("type", type) + text("op", op));
  if (code != kSuccess || bad(type, op)) return code != kSuccess ? code : kInvalid;
  auto* const g = static_cast<Group*>(group);
  return submit(g, [=] {
    return g->exchange(static_cast<const char*>(from), count * width_of(type),
                       [&](size_t at, size_t length) {
                         reduce_slots(g, static_cast<char*>(to) + at, length, type, op);
                       });
  });
}

STUB_EXPORT int ncclReduce(const void* from, void* to, size_t count, int type, int op, int root,
                           void* group, void*) {
  const int code = note("ncclReduce", text("count", static_cast<int64_t>(count)) +
                                          text("type", type) + text("op", op) + text("root", root));
  if (code != kSuccess || bad(type, op)) return code != kSuccess ? code : kInvalid;
  auto* const g = static_cast<Group*>(group);
  return submit(g, [=] {
    return g->exchange(static_cast<const char*>(from), count * width_of(type),
                       [&](size_t at, size_t length) {
                         if (g->rank != root) return;
                         reduce_slots(g, static_cast<char*>(to) + at, length, type, op);
                       });
  });
}

STUB_EXPORT int ncclReduceScatter(const void* from, void* to, size_t count, int type, int op,
                                  void* group, void*) {
  const int code = note("ncclReduceScatter", text("count", static_cast<int64_t>(count)) +
                                                 text("type", type) + text("op", op));
  if (code != kSuccess || bad(type, op)) return code != kSuccess ? code : kInvalid;
  auto* const g = static_cast<Group*>(group);
  return submit(g, [=] {
    const size_t bytes = count * width_of(type);
    for (int owner = 0; owner < g->ranks; ++owner) {
      const int moved =
          g->exchange(static_cast<const char*>(from) + bytes * static_cast<size_t>(owner), bytes,
                      [&](size_t at, size_t length) {
                        if (g->rank != owner) return;
                        reduce_slots(g, static_cast<char*>(to) + at, length, type, op);
                      });
      if (moved != kSuccess) return moved;
    }
    return kSuccess;
  });
}

STUB_EXPORT int ncclBroadcast(const void* from, void* to, size_t count, int type, int root,
                              void* group, void*) {
  const int code = note("ncclBroadcast", text("count", static_cast<int64_t>(count)) +
                                             text("type", type) + text("root", root));
  if (code != kSuccess || bad(type, 0)) return code != kSuccess ? code : kInvalid;
  auto* const g = static_cast<Group*>(group);
  return submit(g, [=] {
    return g->exchange(g->rank == root ? static_cast<const char*>(from) : nullptr,
                       count * width_of(type), [&](size_t at, size_t length) {
                         std::memcpy(static_cast<char*>(to) + at, g->slot(root), length);
                       });
  });
}

STUB_EXPORT int ncclAllGather(const void* from, void* to, size_t count, int type, void* group,
                              void*) {
  const int code =
      note("ncclAllGather", text("count", static_cast<int64_t>(count)) + text("type", type));
  if (code != kSuccess || bad(type, 0)) return code != kSuccess ? code : kInvalid;
  auto* const g = static_cast<Group*>(group);
  return submit(g, [=] {
    const size_t bytes = count * width_of(type);
    return g->exchange(static_cast<const char*>(from), bytes, [&](size_t at, size_t length) {
      for (int r = 0; r < g->ranks; ++r) {
        char* const block = static_cast<char*>(to) + bytes * static_cast<size_t>(r);
        std::memcpy(block + at, g->slot(r), length);
      }
    });
  });
}

}  // extern "C"

#include "lib/device/vendor_collectives.h"

#include <dlfcn.h>
#include <sched.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>

#include "lib/base/log.h"
#include "lib/base/thread.h"
#include "lib/base/types.h"

namespace hetccl::device {

// ---- The library's interface, as far as it is used. Enumerators are ints.

namespace {

struct Id {
  char bytes[128];
};

// As in version 2.14, which brought groups that do not block; later ones take this form too.
struct Config {
  size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 21400;
  int blocking = 0;
};
constexpr int kOldest = 21400;

constexpr int kSuccess = 0, kInProgress = 7;
constexpr int kBytes = 1;  // its type for movement: unsigned 8-bit integers

constexpr double kEnd_s = 2;  // for the library to end a group

}  // namespace

struct VendorFunctions {
  int (*get_version)(int*);
  int (*get_id)(Id*);
  int (*join)(void** group, int ranks, Id id, int rank, Config*);
  int (*finalize)(void* group);
  int (*destroy)(void* group);
  int (*abort)(void* group);
  int (*get_error)(void* group, int* code);
  const char* (*text_of)(int code);
  const char* (*last_text)(void* group);  // may be absent
  int (*group_start)();
  int (*group_end)();
  int (*all_reduce)(const void*, void*, size_t, int type, int op, void* group, void* stream);
  int (*reduce)(const void*, void*, size_t, int type, int op, int root, void* group, void* stream);
  int (*reduce_scatter)(const void*, void*, size_t, int type, int op, void* group, void* stream);
  int (*broadcast)(const void*, void*, size_t, int type, int root, void* group, void* stream);
  int (*all_gather)(const void*, void*, size_t, int type, void* group, void* stream);
  int (*send)(const void*, size_t, int type, int peer, void* group, void* stream);
  int (*receive)(void*, size_t, int type, int peer, void* group, void* stream);
};

namespace {

// The first it lacks, or null.
const char* find_functions(void* object, VendorFunctions* f) {
  const char* missing = nullptr;
  const auto find = [&](auto* function, const char* name) {
    *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(dlsym(object, name));
    if (*function == nullptr && missing == nullptr) missing = name;
  };
  find(&f->last_text, "ncclGetLastError");
  missing = nullptr;
  find(&f->get_version, "ncclGetVersion");
  find(&f->get_id, "ncclGetUniqueId");
  find(&f->join, "ncclCommInitRankConfig");
  find(&f->finalize, "ncclCommFinalize");
  find(&f->destroy, "ncclCommDestroy");
  find(&f->abort, "ncclCommAbort");
  find(&f->get_error, "ncclCommGetAsyncError");
  find(&f->text_of, "ncclGetErrorString");
  find(&f->group_start, "ncclGroupStart");
  find(&f->group_end, "ncclGroupEnd");
  find(&f->all_reduce, "ncclAllReduce");
  find(&f->reduce, "ncclReduce");
  find(&f->reduce_scatter, "ncclReduceScatter");
  find(&f->broadcast, "ncclBroadcast");
  find(&f->all_gather, "ncclAllGather");
  find(&f->send, "ncclSend");
  find(&f->receive, "ncclRecv");
  return missing;
}

const char* name_for(Kind kind) {
  switch (kind) {
    case hetcclMemoryCuda:
    case hetcclMemorySimCuda:
      return "nccl";
    case hetcclMemoryHip:
    case hetcclMemorySimHip:
      return "rccl";
    case hetcclMemoryHost:
      break;
  }
  return nullptr;
}

// 2.7.8 was numbered 2708, and since 2.9 it would be 20708.
std::string text_of_version(int version) {
  const int unit = version < 10000 ? 1000 : 10000;
  return std::to_string(version / unit) + "." + std::to_string(version % unit / 100) + "." +
         std::to_string(version % 100);
}

int open_flags() {
  int flags = RTLD_NOW | RTLD_LOCAL;
  // Its calls of its own public functions stay its own, even if the program has put others of the
  // same names before them. The address sanitizer cannot have that.
#if defined(RTLD_DEEPBIND) && !defined(__SANITIZE_ADDRESS__)
  flags |= RTLD_DEEPBIND;
#endif
  return flags;
}

}  // namespace

// Our first types and operators are numbered as the library's. Float8 is left out: which devices
// reduce it, and in which format, differs between vendors and versions; so is the average of
// integers, which overflows there.
VendorNumbers vendor_numbers(hetcclDataType_t type, hetcclRedOp_t op) {
  const bool is_integer = type >= hetcclInt8 && type <= hetcclUint64;
  const bool is_float = type >= hetcclFloat16 && type <= hetcclBfloat16;
  if (op < hetcclSum || op > hetcclAvg || (!is_integer && !is_float)) return VendorNumbers::kNone;
  if (is_float) return VendorNumbers::kOther;
  return op == hetcclAvg ? VendorNumbers::kNone : VendorNumbers::kSame;
}

std::string VendorLibrary::description() const {
  return std::string(name_) + " " + text_of_version(version_);
}

Result<const VendorLibrary*> VendorLibrary::load(Kind kind, const std::string& path) {
  static std::mutex& mutex = *new std::mutex;
  static auto& known = *new std::map<std::pair<Kind, std::string>, Result<const VendorLibrary*>>;
  const std::lock_guard lock(mutex);
  const auto key = std::make_pair(kind, path);
  auto at = known.find(key);
  if (at == known.end()) at = known.emplace(key, open(kind, path)).first;
  return at->second;
}

Result<const VendorLibrary*> VendorLibrary::open(Kind kind, const std::string& path) {
  const char* const name = name_for(kind);
  if (name == nullptr) return invalid_usage("memory of the host has no vendor");
  const bool simulated = kind == hetcclMemorySimCuda || kind == hetcclMemorySimHip;
  if (simulated && path.empty()) {
    return invalid_usage(
        "simulated devices have no vendor's library; name a stand-in with "
        "HETCCL_DELEGATE_LIBRARY");
  }
  const std::string usual = std::string("lib") + name + (name[0] == 'n' ? ".so.2" : ".so.1");
  const std::string& file = path.empty() ? usual : path;
  const auto refuse = [&](const std::string& why) {
    return invalid_usage(file + " cannot be used: " + why);
  };
  void* const object = dlopen(file.c_str(), open_flags());
  if (object == nullptr) {
    const char* const error = dlerror();
    return invalid_usage(std::string(error != nullptr ? error : file.c_str()) +
                         "; install it, or name its path with HETCCL_DELEGATE_LIBRARY");
  }
  if (dlsym(object, "hetcclGetVersion") != nullptr) {
    return refuse("it is hetccl's own; name the vendor's with HETCCL_DELEGATE_LIBRARY");
  }
  auto* const functions = new VendorFunctions{};
  const char* const missing = find_functions(object, functions);
  int version = 0;
  if (functions->get_version != nullptr) (void)functions->get_version(&version);
  if (missing != nullptr || version < kOldest) {
    delete functions;
    return refuse(version != 0 && version < kOldest ? "it is version " + text_of_version(version) +
                                                          ", and 2.14 is the oldest "
                                                          "that serves; install a newer one"
                                                    : "it lacks " + std::string(missing));
  }
  return new VendorLibrary(name, functions, version);
}

Result<std::string> VendorLibrary::make_id() const {
  Id id;
  if (const int code = functions_.get_id(&id); code != kSuccess) {
    return system_error(description() + ": ncclGetUniqueId: " + functions_.text_of(code));
  }
  return std::string(id.bytes, sizeof id.bytes);
}

// ---- A group

// To the program an invalid argument is one that it passed itself; what the library finds invalid
// is of our making.
Status VendorGroup::failure(const char* function, int code) const {
  std::string text = library_.description() + ": " + function + ": " + functions_.text_of(code);
  if (functions_.last_text != nullptr) {
    const char* const more = functions_.last_text(group_);
    if (more != nullptr && *more != '\0') text += " (" + std::string(more) + ")";
  }
  switch (code) {
    case hetcclUnhandledDeviceError:
    case hetcclSystemError:
    case hetcclRemoteError:
      return {static_cast<hetcclResult_t>(code), std::move(text)};
    default:
      return internal_error(std::move(text));
  }
}

Status VendorGroup::open_queue() {
  auto stream = accelerator_.make_stream();
  if (!stream.ok()) return stream.status();
  stream_ = *stream;
  auto queue = accelerator_.adopt(stream_);
  if (!queue.ok()) return queue.status();
  queue_ = std::move(*queue);
  return {};
}

Result<std::unique_ptr<VendorGroup>> VendorGroup::join(const VendorLibrary* library,
                                                       Accelerator* accelerator,
                                                       const std::string& id, int ranks, int rank) {
  std::unique_ptr<VendorGroup> group(new VendorGroup(library, accelerator, ranks));
  if (Status s = group->open_queue(); !s.ok()) return s;
  Id raw;
  if (id.size() != sizeof raw.bytes) return internal_error("the id of a vendor's group is garbled");
  std::memcpy(raw.bytes, id.data(), sizeof raw.bytes);
  Config config;
  Status joined = accelerator->with_current([&]() -> Status {
    const int code = group->functions_.join(&group->group_, ranks, raw, rank, &config);
    if (code == kSuccess || code == kInProgress) return {};
    return group->failure("ncclCommInitRankConfig", code);
  });
  if (!joined.ok()) return joined;
  return group;
}

VendorGroup::~VendorGroup() {
  abandon();
  if (stuck_) {
    (void)queue_.release();
    return;
  }
  queue_.reset();
  if (stream_ != nullptr) (void)accelerator_.destroy_stream(stream_).ok();
}

Result<bool> VendorGroup::ready() {
  int state = kSuccess;
  int code = functions_.get_error(group_, &state);
  if (code == kSuccess) code = state;
  if (code == kSuccess) return true;
  if (code == kInProgress) return false;
  return failure("ncclCommGetAsyncError", code);
}

int VendorGroup::exchange(const void* send, void* recv, size_t bytes) const {
  const auto* from = static_cast<const char*>(send);
  auto* to = static_cast<char*>(recv);
  int code = functions_.group_start();
  if (code != kSuccess) return code;
  for (int peer = 0; peer < ranks_ && code == kSuccess; ++peer) {
    const size_t at = bytes * static_cast<size_t>(peer);
    code = functions_.send(from + at, bytes, kBytes, peer, group_, stream_);
    if (code == kSuccess) {
      code = functions_.receive(to + at, bytes, kBytes, peer, group_, stream_);
    }
  }
  // Even after an error: this thread's next call must not be taken for one of the group.
  const int ended = functions_.group_end();
  return code != kSuccess ? code : ended;
}

int VendorGroup::enqueue(const VendorCall& c, const void* send, void* recv) const {
  const VendorFunctions& f = functions_;
  const size_t bytes = c.count * size_of(c.type);
  switch (c.collective) {
    case VendorCall::Collective::kAllReduce:
      return f.all_reduce(send, recv, c.count, c.type, c.op, group_, stream_);
    case VendorCall::Collective::kReduce:
      return f.reduce(send, recv, c.count, c.type, c.op, c.root, group_, stream_);
    case VendorCall::Collective::kReduceScatter:
      return f.reduce_scatter(send, recv, c.count, c.type, c.op, group_, stream_);
    case VendorCall::Collective::kBroadcast:
      return f.broadcast(send, recv, bytes, kBytes, c.root, group_, stream_);
    case VendorCall::Collective::kAllGather:
      return f.all_gather(send, recv, bytes, kBytes, group_, stream_);
    case VendorCall::Collective::kAllToAll:
      return exchange(send, recv, bytes);
  }
  return hetcclInternalError;
}

// A vendor's library is given the addresses as they are; a stand-in for it, which runs on the
// processor, those of the simulated memory that the processor may use.
Status VendorGroup::start(const VendorCall& call) {
  const auto address = [&](const void* memory) {
    return memory == nullptr ? nullptr : accelerator_.network_address(const_cast<void*>(memory));
  };
  return accelerator_.with_current([&]() -> Status {
    const int code = enqueue(call, address(call.send), address(call.recv));
    if (code == kSuccess || code == kInProgress) return {};
    return failure("starting a call", code);
  });
}

// On a thread of its own, because the library may get stuck.
void VendorGroup::end_by(int (*function)(void*), const char* name) {
  struct Ended {
    std::mutex mutex;
    std::condition_variable changed;
    bool yes = false;
  };
  const auto ended = std::make_shared<Ended>();
  start_detached_thread("hetccl-vendor", [function, ended, group = group_] {
    (void)function(group);
    const std::lock_guard lock(ended->mutex);
    ended->yes = true;
    ended->changed.notify_all();
  });
  group_ = nullptr;
  std::unique_lock lock(ended->mutex);
  if (!ended->changed.wait_for(lock, std::chrono::duration<double>(kEnd_s),
                               [&] { return ended->yes; })) {
    stuck_ = true;
    log::warn(library_.description() + ": " + name + " does not return");
  }
}

void VendorGroup::leave(double seconds) {
  if (group_ == nullptr) return;
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  const int code = functions_.finalize(group_);
  bool quiet = code == kSuccess || code == kInProgress;
  while (quiet) {
    const Result<bool> done = ready();
    if (done.ok() && *done) return end_by(functions_.destroy, "ncclCommDestroy");
    quiet = done.ok() && std::chrono::steady_clock::now() < end;
    sched_yield();
  }
  abandon();
}

void VendorGroup::abandon() {
  if (group_ == nullptr) return;
  end_by(functions_.abort, "ncclCommAbort");
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(kEnd_s / 2);
  while (std::chrono::steady_clock::now() < end) {
    const Result<bool> idle = queue_->idle();
    if (!idle.ok() || *idle) return;
    sched_yield();
  }
}

}  // namespace hetccl::device

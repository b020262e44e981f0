#include "lib/device/gpu/shared_memory.h"

#include <sys/random.h>
#include <unistd.h>

#include <array>
#include <cstdio>

#include "lib/base/packing.h"

namespace hetccl::device::gpu {
namespace {

// Tells this process from others, whatever process numbers its container gives.
struct Process {
  uint64_t token[2];
  uint64_t id;
  bool operator==(const Process&) const = default;
};

Process this_process() {
  static const auto token = [] {
    std::array<uint64_t, 2> t = {};
    (void)!getrandom(t.data(), sizeof t, 0);
    return t;
  }();
  return {{token[0], token[1]}, static_cast<uint64_t>(getpid())};
}

// What stands for an allocation. The vendor's handle may come again for another allocation at the
// same address; the id does not.
struct Allocation {
  GPU(IpcMemHandle_t) vendors;
  Process owner;
  uint64_t base, bytes, id;
};

std::string name_of_memory(const void* memory) {
  char text[32];
  std::snprintf(text, sizeof text, "%p", memory);
  return text;
}

}  // namespace

Result<std::string> SharedMemory::export_memory(const void* memory) {
  const Memory found = vendor::query(memory);
  if (found.place != Memory::Place::kDevice || found.ordinal != ordinal_ || found.base == nullptr) {
    return invalid_usage(name_of_memory(memory) + " is not in memory of " + vendor::kName + ":" +
                         std::to_string(ordinal_) + ", so it cannot be shared with a process");
  }
  Allocation a = {};
  const vendor::Error error =
      on(ordinal_, [&] { return GPU(IpcGetMemHandle)(&a.vendors, const_cast<void*>(found.base)); });
  if (error != GPU(Success)) {
    return invalid_usage(failure(error, ordinal_, "sharing memory with a process").message() +
                         "; only memory of " + vendor::kName + "Malloc can be shared");
  }
  a.owner = this_process();
  a.base = reinterpret_cast<uintptr_t>(found.base);
  a.bytes = found.bytes;
  a.id = found.id;
  const uint64_t offset = reinterpret_cast<uintptr_t>(memory) - a.base;
  Packer out;
  out.put(static_cast<int32_t>(vendor::kKind)).put(offset).put(a);
  return std::move(out).take();
}

Result<void*> SharedMemory::import_memory(const std::string& handle) {
  Unpacker in(handle);
  const auto kind = in.get<int32_t>();
  const auto offset = in.get<uint64_t>();
  const auto a = in.get<Allocation>();
  if (!in.finished() || kind != static_cast<int32_t>(vendor::kKind) || offset >= a.bytes) {
    return invalid_argument(std::string("a handle of memory is none of ") + vendor::kTitle +
                            "'s, or damaged; pass what export_memory() of the same kind gave");
  }
  const std::string key(reinterpret_cast<const char*>(&a), sizeof a);
  const std::lock_guard lock(mutex_);
  for (Mapping& m : mappings_) {
    if (m.handle != key) continue;
    ++m.count;
    return static_cast<void*>(m.base + offset);
  }
  const bool own = a.owner == this_process();
  void* base = reinterpret_cast<void*>(a.base);
  if (!own) {
    const Status s =
        check(on(ordinal_,
                 [&] {
                   return GPU(IpcOpenMemHandle)(&base, a.vendors, GPU(IpcMemLazyEnablePeerAccess));
                 }),
              ordinal_, "mapping another process's memory");
    if (!s.ok()) return s;
  }
  mappings_.push_back({key, static_cast<char*>(base), a.bytes, 1, own});
  return static_cast<void*>(mappings_.back().base + offset);
}

Status SharedMemory::close_memory(void* memory) {
  const std::lock_guard lock(mutex_);
  for (auto m = mappings_.begin(); m != mappings_.end(); ++m) {
    if (memory < m->base || memory >= m->base + m->bytes) continue;
    if (--m->count > 0) return {};
    const Mapping last = *m;
    mappings_.erase(m);
    if (last.own) return {};
    return check(on(ordinal_, [&] { return GPU(IpcCloseMemHandle)(last.base); }), ordinal_,
                 "unmapping another process's memory");
  }
  return invalid_argument(name_of_memory(memory) + " was not imported by " + vendor::kName + ":" +
                          std::to_string(ordinal_));
}

}  // namespace hetccl::device::gpu

#include "bench/buffers.h"

#include <hetccl/hetccl.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "lib/introspect.h"

namespace hetccl::bench {
namespace {

std::string mebibytes(uint64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

// What the control group of a container leaves; UINT64_MAX without a limit.
uint64_t group_leaves() {
  std::ifstream limit_file("/sys/fs/cgroup/memory.max"), used_file("/sys/fs/cgroup/memory.current");
  uint64_t limit = 0, used = 0;
  if (!(limit_file >> limit) || !(used_file >> used)) return UINT64_MAX;
  return limit > used ? limit - used : 0;
}

}  // namespace

uint64_t available_memory() {
  std::ifstream file("/proc/meminfo");
  uint64_t available = UINT64_MAX;
  for (std::string word; file >> word;) {
    if (word != "MemAvailable:") continue;
    uint64_t kibibytes = 0;
    if (file >> kibibytes) available = kibibytes << 10;
    break;
  }
  return std::min(available, group_leaves());
}

Memory::~Memory() {
  if (data_ == nullptr) return;
  if (kind_.of_library || kind_.on_device()) {
    (void)hetcclMemFree(data_);
  } else {
    munmap(data_, bytes_);
  }
}

std::string Memory::allocate(size_t bytes, const MemoryKind& kind, int device) {
  bytes_ = std::max<size_t>(bytes, 1);
  kind_ = kind;
  void* memory = nullptr;
  if (kind.of_library || kind.on_device()) {
    hetcclResult_t result = kind.on_device()
                                ? hetcclInternalMemAllocOn(kind.kind, device, bytes_, &memory)
                                : hetcclMemAlloc(&memory, bytes_, hetcclMemoryHost);
    if (result != hetcclSuccess) {
      return mebibytes(bytes_) + " of " + kind.name + " memory: " + hetcclGetErrorString(result) +
             ": " + hetcclGetLastError(nullptr);
    }
  } else {
    memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
      return "cannot allocate " + mebibytes(bytes_) + ": " + std::strerror(errno) +
             "; choose a smaller -e";
    }
  }
  data_ = static_cast<std::byte*>(memory);
  return "";
}

void Memory::touch() {
  if (!kind_.on_device()) std::memset(data_, 0, bytes_);
}

bool allocate_all(const World& world, const MemoryKind& kind, int device, uint64_t send_bytes,
                  uint64_t recv_bytes, Memory* send, Memory* recv) {
  // Verification needs host memory too where the buffers are a device's.
  // Asking for more than there is would not fail at once but have processes killed later.
  uint64_t available = available_memory(), ranks = static_cast<uint64_t>(world.ranks_on_node());
  uint64_t each = send_bytes + recv_bytes;
  bool fits = each >= send_bytes && each <= available / ranks;
  if (!world.agree(fits, std::to_string(ranks) + " ranks on this node need " + mebibytes(each) +
                             " each, but " + mebibytes(available) +
                             " are available; choose a smaller -e")) {
    return false;
  }
  std::string why = send->allocate(send_bytes, kind, device);
  if (why.empty()) why = recv->allocate(recv_bytes, kind, device);
  if (!world.agree(why.empty(), why)) return false;
  send->touch();
  recv->touch();
  return true;
}

}  // namespace hetccl::bench

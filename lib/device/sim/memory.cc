#include "lib/device/sim/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <string>

namespace hetccl::device::sim {
namespace {

constexpr size_t kLeastSpan = size_t{64} << 30;

Status device_error(std::string text) { return {hetcclUnhandledDeviceError, std::move(text)}; }

std::string hex(uintptr_t address) {
  std::string text;
  do {
    text.insert(text.begin(), "0123456789abcdef"[address % 16]);
    address /= 16;
  } while (address != 0);
  return "0x" + text;
}

uintptr_t address_of(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

// Addresses of its own, which cost nothing until something is mapped there. 0: errno says why not.
uintptr_t reserve(size_t bytes) {
  void* at = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return 0;
  (void)madvise(at, bytes, MADV_DONTDUMP);
  return address_of(at);
}

// Of the vendors in use, in the order of their making.
std::atomic<const MemorySpace*> spaces[2] = {};

}  // namespace

Result<MemorySpace*> MemorySpace::make(Kind kind, const SimOptions& options) {
  auto* space = new MemorySpace;
  space->kind_ = kind;
  Status s = space->map(options);
  if (s.ok()) {
    const MemorySpace* none = nullptr;
    if (!spaces[0].compare_exchange_strong(none, space)) spaces[1] = space;
    return space;
  }
  delete space;
  return s;
}

bool MemorySpace::is_foreign(const void* pointer, const MemorySpace* own) {
  for (const auto& s : spaces) {
    const MemorySpace* space = s.load(std::memory_order_acquire);
    if (space != nullptr && space != own && space->is_device(pointer)) return true;
  }
  return false;
}

Status MemorySpace::map(const SimOptions& options) {
  // Twice the memory: what is free may be in pieces.
  span_ = std::max(kLeastSpan, 2 * round_up(options.memory, page_size()));
  const size_t bytes = span_ * (static_cast<size_t>(options.devices) + 1);
  const uintptr_t base = reserve(bytes), alias = reserve(bytes);
  const uintptr_t decoy = reserve(bytes);
  const auto unmap = [&] {
    for (uintptr_t at : {base, alias, decoy}) {
      if (at != 0) munmap(reinterpret_cast<void*>(at), bytes);
    }
  };
  if (base == 0 || alias == 0 || decoy == 0) {
    const std::string text =
        failed(name(-1) + ": reserving " + std::to_string(bytes) + " bytes of addresses");
    unmap();
    return system_error(text +
                        "; raise the limit (ulimit -v) or use fewer devices "
                        "(HETCCL_SIM=devices=1)");
  }
  for (int d = 0; d < options.devices; ++d) {
    auto* at = reinterpret_cast<std::byte*>(alias + static_cast<size_t>(d) * span_);
    Result<Region> region = Region::make(name(d).c_str(), at, span_, options.memory);
    if (!region.ok()) {
      unmap();
      return region.status();
    }
    regions_.push_back(std::move(*region));
  }
  base_ = base;
  bytes_ = bytes;
  distance_ = alias - base;
  decoy_distance_ = decoy - base;
  return {};
}

std::string MemorySpace::name(int ordinal) const {
  return name_of(kind_) + (ordinal < 0 ? "" : ":" + std::to_string(ordinal));
}

MemorySpace::Pieces::iterator MemorySpace::exactly(Pieces* pieces, const void* pointer) {
  const auto at = pieces->find(address_of(pointer));
  return at == pieces->end() || at->second.leaving ? pieces->end() : at;
}

MemorySpace::Pieces::iterator MemorySpace::around(Pieces* pieces, uintptr_t address) {
  auto at = pieces->upper_bound(address);
  if (at == pieces->begin()) return pieces->end();
  --at;
  return holds(at, address, 1) && !at->second.leaving ? at : pieces->end();
}

void MemorySpace::remove(std::unique_lock<std::mutex>* lock, Pieces* pieces, Pieces::iterator at) {
  at->second.leaving = true;
  unpinned_.wait(*lock, [&] { return at->second.pins == 0; });
  pieces->erase(at);
}

Result<void*> MemorySpace::allocate(int ordinal, size_t bytes) {
  const std::lock_guard lock(mutex_);
  const Result<size_t> offset = regions_[static_cast<size_t>(ordinal)].allocate(bytes);
  if (!offset.ok()) {
    return Status(offset.status().code(), name(ordinal) + ": " + offset.status().message());
  }
  Piece piece;
  piece.bytes = std::max<size_t>(bytes, 1);
  piece.ordinal = ordinal;
  piece.id = ++last_id_;
  device_[base_of(ordinal) + *offset] = piece;
  return reinterpret_cast<void*>(base_of(ordinal) + *offset);
}

Status MemorySpace::free(int ordinal, void* memory) {
  if (memory == nullptr) return {};
  std::unique_lock lock(mutex_);
  const auto at = exactly(&device_, memory);
  if (at == device_.end() || at->second.ordinal != ordinal || at->second.alive != nullptr) {
    return device_error(name(ordinal) + ": freeing " + hex(address_of(memory)) +
                        ": invalid argument: no live allocation of this device begins there");
  }
  Region& region = regions_[static_cast<size_t>(ordinal)];
  const size_t bytes = at->second.bytes;
  if (at->second.slot >= 0) region.withdraw(at->second.slot);
  remove(&lock, &device_, at);
  region.free(address_of(memory) - base_of(ordinal), bytes);
  return {};
}

Result<void*> MemorySpace::allocate_host(size_t bytes) {
  const size_t mapped = round_up(std::max<size_t>(bytes, 1), page_size());
  void* memory = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return device_error(
        failed(name(-1) + ": allocating " + std::to_string(bytes) + " bytes of pinned memory"));
  }
  const std::lock_guard lock(mutex_);
  if (Status s = add_host(address_of(memory), mapped); !s.ok()) {
    munmap(memory, mapped);
    return s;
  }
  own_host_[address_of(memory)] = mapped;
  return memory;
}

Status MemorySpace::free_host(void* memory) {
  if (memory == nullptr) return {};
  std::unique_lock lock(mutex_);
  const auto at = own_host_.find(address_of(memory));
  if (at == own_host_.end()) {
    return device_error(name(-1) + ": freeing pinned memory at " + hex(address_of(memory)) +
                        ": invalid argument: none was allocated there");
  }
  const size_t mapped = at->second;
  own_host_.erase(at);
  Status s = remove_host(&lock, address_of(memory));
  munmap(memory, mapped);
  return s;
}

Status MemorySpace::register_host(void* memory, size_t bytes) {
  if (memory == nullptr || bytes == 0 || is_device(memory)) {
    return device_error(name(-1) + ": registering " + std::to_string(bytes) + " bytes at " +
                        hex(address_of(memory)) + ": invalid argument: not memory of the host");
  }
  const std::lock_guard lock(mutex_);
  return add_host(address_of(memory), bytes);
}

Status MemorySpace::unregister_host(void* memory) {
  std::unique_lock lock(mutex_);
  return remove_host(&lock, address_of(memory));
}

Status MemorySpace::add_host(uintptr_t begin, size_t bytes) {
  if (const auto at = around(&host_, begin); at != host_.end() && holds(at, begin, bytes)) {
    ++at->second.registrations;
    if (at->first != begin) {
      auto& [owner, times] = inner_[begin];
      owner = at->first;
      ++times;
    }
    return {};
  }
  const auto next = host_.lower_bound(begin);
  if (around(&host_, begin) != host_.end() ||
      (next != host_.end() && next->first < begin + bytes)) {
    return device_error(name(-1) + ": registering " + std::to_string(bytes) + " bytes at " +
                        hex(begin) + ": a part is registered already; unregister it first");
  }
  Piece piece;
  piece.bytes = bytes;
  host_[begin] = piece;
  note_bounds();
  return {};
}

Status MemorySpace::remove_host(std::unique_lock<std::mutex>* lock, uintptr_t begin) {
  uintptr_t owner = begin;
  if (const auto inner = inner_.find(begin); inner != inner_.end()) {
    owner = inner->second.first;
    if (--inner->second.second == 0) inner_.erase(inner);
  }
  const auto at = exactly(&host_, reinterpret_cast<void*>(owner));
  if (at == host_.end()) {
    return device_error(name(-1) + ": unregistering " + hex(begin) +
                        ": no registered memory begins there");
  }
  if (--at->second.registrations > 0) return {};
  remove(lock, &host_, at);
  note_bounds();
  return {};
}

void MemorySpace::note_bounds() {
  const bool none = host_.empty();
  host_low_.store(none ? UINTPTR_MAX : host_.begin()->first, std::memory_order_relaxed);
  const auto last = none ? host_.end() : std::prev(host_.end());
  host_high_.store(none ? 0 : last->first + last->second.bytes, std::memory_order_relaxed);
}

void* MemorySpace::network_address(const void* pointer) {
  if (options().direct != SimOptions::Ability::kBroken) return alias(pointer);
  // Memory that can be touched, but is not the device's.
  std::call_once(decoy_used_, [&] {
    (void)mprotect(reinterpret_cast<void*>(base_ + decoy_distance_), bytes_,
                   PROT_READ | PROT_WRITE);
  });
  return shifted(pointer, decoy_distance_);
}

Memory MemorySpace::query(const void* pointer) {
  const uintptr_t address = address_of(pointer);
  Memory memory;
  if (is_device(pointer)) {
    memory.place = Memory::Place::kDevice;
    memory.ordinal = std::min(ordinal_of(address), static_cast<int>(regions_.size()) - 1);
    const std::lock_guard lock(mutex_);
    const auto at = around(&device_, address);
    if (at == device_.end()) return memory;
    memory.ordinal = at->second.ordinal;
    memory.base = reinterpret_cast<const void*>(at->first);
    memory.bytes = at->second.bytes;
    memory.id = at->second.id;
    return memory;
  }
  if (is_registered(pointer, 1)) memory.place = Memory::Place::kRegisteredHost;
  return memory;
}

bool MemorySpace::is_registered(const void* pointer, size_t bytes) {
  const uintptr_t address = address_of(pointer);
  if (address < host_low_.load(std::memory_order_relaxed) ||
      address >= host_high_.load(std::memory_order_relaxed)) {
    return false;
  }
  const std::lock_guard lock(mutex_);
  const auto at = around(&host_, address);
  return at != host_.end() && holds(at, address, bytes);
}

Status MemorySpace::pin(const void* pointer, size_t bytes) {
  const uintptr_t address = address_of(pointer);
  const std::lock_guard lock(mutex_);
  Pieces& pieces = pieces_of(pointer);
  const auto at = around(&pieces, address);
  const char* why = is_device(pointer) ? "freed, or never allocated" : "not registered";
  if (at != pieces.end()) {
    const Piece& piece = at->second;
    const bool alive =
        piece.alive == nullptr || piece.alive->load(std::memory_order_acquire) == piece.owner_id;
    if (alive && holds(at, address, bytes)) {
      ++at->second.pins;
      return {};
    }
    why = alive ? "beyond the end of its allocation" : "freed by the process that exported it";
  }
  return device_error("illegal address: " + std::to_string(bytes) + " bytes at " + hex(address) +
                      (is_device(pointer) ? " of a device" : " of the host") + ": " + why);
}

void MemorySpace::unpin(const void* pointer) {
  const std::lock_guard lock(mutex_);
  Pieces& pieces = pieces_of(pointer);
  const auto at = std::prev(pieces.upper_bound(address_of(pointer)));
  if (--at->second.pins == 0 && at->second.leaving) unpinned_.notify_all();
}

}  // namespace hetccl::device::sim

// The memory that the devices of one simulated vendor reach: their own, imported from other
// processes, and registered memory of the host.
//
// All device memory lies in one reserved range of addresses without access. What backs it is mapped
// a second time, readable and writable, at a constant distance: the alias, through which engines
// and the network reach it.
//
//     range:  | device 0 | device 1 | ... | imported |     no access
//     alias:  | device 0 | device 1 | ... | imported |     the same files
//
// Whoever works on memory pins it, which checks that all of it lies in one live allocation. What is
// freed waits for those who have it pinned.
//
// Thread rule: any thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <vector>

#include "lib/device/sim/options.h"
#include "lib/device/sim/region.h"

namespace hetccl::device::sim {

// A live piece of memory.
struct Piece {
  size_t bytes = 0;
  int ordinal = -1;  // device memory: the device; -1: the host's
  uint64_t id = 0;   // device memory
  int pins = 0;      // work that is using it
  bool leaving = false;
  int registrations = 1;  // the host's: how often it was registered
  int slot = -1;          // own memory that was exported: its entry in the region's table
  // Imported: where its owner says that it lives, and how.
  const std::atomic<uint64_t>* alive = nullptr;
  uint64_t owner_id = 0;
};

class MemorySpace {
 public:
  // Lives for ever. An error: the process lacks address space.
  static Result<MemorySpace*> make(Kind kind, const SimOptions& options);

  Result<void*> allocate(int ordinal, size_t bytes);
  Status free(int ordinal, void* memory);
  Result<void*> allocate_host(size_t bytes);
  Status free_host(void* memory);
  Status register_host(void* memory, size_t bytes);
  Status unregister_host(void* memory);

  bool is_device(const void* pointer) const {
    return reinterpret_cast<uintptr_t>(pointer) - base_ < bytes_;
  }
  // Whether it is device memory of the other vendor.
  static bool is_foreign(const void* pointer, const MemorySpace* own);
  // Where device memory can be touched; other pointers as they are.
  void* alias(const void* pointer) const { return shifted(pointer, distance_); }
  void* network_address(const void* pointer);
  Memory query(const void* pointer);
  // Whether all of it is registered.
  bool is_registered(const void* pointer, size_t bytes);

  // Keeps the memory until unpin() of the same pointer. An error where it is not all in one live
  // allocation or registration.
  Status pin(const void* pointer, size_t bytes);
  void unpin(const void* pointer);

 private:
  friend class SharedMemory;
  using Pieces = std::map<uintptr_t, Piece>;  // by their beginning

  MemorySpace() = default;
  Status map(const SimOptions& options);
  void* shifted(const void* pointer, uintptr_t distance) const {
    const auto address = reinterpret_cast<uintptr_t>(pointer);
    return reinterpret_cast<void*>(is_device(pointer) ? address + distance : address);
  }
  Pieces& pieces_of(const void* pointer) { return is_device(pointer) ? device_ : host_; }
  // The piece that begins there; end() where none does.
  static Pieces::iterator exactly(Pieces* pieces, const void* pointer);
  // The piece that holds the address; end(): none.
  static Pieces::iterator around(Pieces* pieces, uintptr_t address);
  static bool holds(Pieces::const_iterator at, uintptr_t address, size_t bytes) {
    return address + bytes <= at->first + at->second.bytes;
  }
  // Takes the piece out: later pins fail at once, earlier ones are waited for.
  void remove(std::unique_lock<std::mutex>* lock, Pieces* pieces, Pieces::iterator at);
  Status add_host(uintptr_t begin, size_t bytes);
  Status remove_host(std::unique_lock<std::mutex>* lock, uintptr_t begin);
  void note_bounds();
  int ordinal_of(uintptr_t address) const { return static_cast<int>((address - base_) / span_); }
  uintptr_t base_of(int ordinal) const { return base_ + static_cast<size_t>(ordinal) * span_; }
  std::string name(int ordinal) const;

  Kind kind_ = hetcclMemorySimCuda;
  uintptr_t base_ = 0, bytes_ = 0;
  uintptr_t distance_ = 0, decoy_distance_ = 0;
  size_t span_ = 0;              // addresses of a device
  std::vector<Region> regions_;  // of the devices; imports lie behind the last

  std::once_flag decoy_used_;

  std::mutex mutex_;  // guards what follows, but for the bounds
  std::condition_variable unpinned_;
  Pieces device_, host_;
  // Registered within another: which one, and how often.
  std::map<uintptr_t, std::pair<uintptr_t, int>> inner_;
  std::map<uintptr_t, size_t> own_host_;  // from allocate_host(): bytes mapped
  uint64_t last_id_ = 0;
  std::atomic<uintptr_t> host_low_ = UINTPTR_MAX, host_high_ = 0;  // of all registered memory
};

}  // namespace hetccl::device::sim

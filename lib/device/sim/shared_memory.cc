#include "lib/device/sim/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <string>
#include <string_view>

namespace hetccl::device::sim {
namespace {

constexpr std::string_view kStart = "hetccl-sim-memory";

template <typename T>
bool take_number(std::string_view* text, T* value) {
  if (!text->starts_with(' ')) return false;
  text->remove_prefix(1);
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), *value);
  text->remove_prefix(static_cast<size_t>(end - text->data()));
  return error == std::errc();
}

}  // namespace

// What another process needs to find an allocation and an address in it.
struct SharedMemory::Handle {
  uint64_t kind = 0, process = 0, file = 0, file_system = 0, inode = 0;
  uint64_t ordinal = 0, span = 0;         // of the exporting device
  uint64_t offset = 0, bytes = 0;         // of the allocation in its file
  uint64_t id = 0, slot = 0, inside = 0;  // `inside`: of the address in the allocation

  template <typename F>
  bool each(F f) {
    return f(&kind) && f(&process) && f(&file) && f(&file_system) && f(&inode) && f(&ordinal) &&
           f(&span) && f(&offset) && f(&bytes) && f(&id) && f(&slot) && f(&inside);
  }
  std::string text() {
    std::string all(kStart);
    each([&](uint64_t* value) {
      all += ' ' + std::to_string(*value);
      return true;
    });
    return all;
  }
  bool parse(std::string_view text) {
    if (!text.starts_with(kStart)) return false;
    text.remove_prefix(kStart.size());
    if (!each([&](uint64_t* value) { return take_number(&text, value); }) || !text.empty()) {
      return false;
    }
    return span <= (uint64_t{1} << 46) && span % page_size() == 0 && offset < span && bytes > 0 &&
           bytes <= span - offset && inside < bytes && slot < Region::kSlots;
  }
};

SharedMemory::SharedMemory(MemorySpace* memory)
    : memory_(*memory),
      base_(memory->base_of(static_cast<int>(memory->regions_.size()))),
      places_(memory->span_) {}

Result<std::string> SharedMemory::export_memory(int ordinal, const void* pointer) {
  const auto refused = [&](const std::string& why) {
    return invalid_usage(memory_.name(ordinal) + ": this memory cannot be exported: " + why);
  };
  if (options().ipc == SimOptions::Ability::kOff) return refused("HETCCL_SIM=ipc=off");
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  const std::lock_guard lock(memory_.mutex_);
  const auto at = memory_.around(&memory_.device_, address);
  if (at == memory_.device_.end()) return refused("it is no live allocation of a device");
  Piece& piece = at->second;
  if (piece.ordinal != ordinal) return refused("it belongs to another device");
  if (piece.alive != nullptr) return refused("it was imported");
  Region& region = memory_.regions_[static_cast<size_t>(ordinal)];
  struct stat status {};
  if (fstat(region.file(), &status) != 0) return system_error(failed("looking at a memory file"));
  if (piece.slot < 0) piece.slot = region.publish(piece.id);
  if (piece.slot < 0) return refused("too many allocations are exported; free some");
  Handle h;
  h.kind = static_cast<uint64_t>(memory_.kind_);
  h.process = static_cast<uint64_t>(getpid());
  h.file = static_cast<uint64_t>(region.file());
  h.file_system = status.st_dev;
  h.inode = status.st_ino;
  h.ordinal = static_cast<uint64_t>(ordinal);
  h.span = region.span();
  h.offset = at->first - memory_.base_of(ordinal);
  h.bytes = piece.bytes;
  h.id = piece.id;
  h.slot = static_cast<uint64_t>(piece.slot);
  h.inside = address - at->first;
  return h.text();
}

Result<void*> SharedMemory::import_memory(int ordinal, const std::string& text) {
  Handle h;
  const std::string start = memory_.name(ordinal) + ": importing memory: ";
  if (!h.parse(text) || h.kind != static_cast<uint64_t>(memory_.kind_)) {
    return invalid_argument(start + "not a handle of " + name_of(memory_.kind_));
  }
  const bool broken = options().ipc == SimOptions::Ability::kBroken;
  if (h.process == static_cast<uint64_t>(getpid()) && !broken) return import_own(h);
  const std::string path = "/proc/" + std::to_string(h.process) + "/fd/" + std::to_string(h.file);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) {
    return Status(hetcclUnhandledDeviceError,
                  failed(start + "process " + std::to_string(h.process) +
                         ", which exported it, is gone, or is another user's or machine's"));
  }
  struct stat status {};
  const bool same = fstat(file, &status) == 0 && status.st_dev == h.file_system &&
                    status.st_ino == h.inode &&
                    static_cast<uint64_t>(status.st_size) == h.span + Region::kTableBytes;
  Result<void*> mapped = same ? map(ordinal, h, file)
                              : Result<void*>(Status(hetcclUnhandledDeviceError,
                                                     "process " + std::to_string(h.process) +
                                                         " is not the one that exported it"));
  close(file);
  if (mapped.ok()) return mapped;
  return Status(mapped.status().code(), start + mapped.status().message());
}

// A device reaches the memory of the others of its process as it is.
Result<void*> SharedMemory::import_own(const Handle& h) {
  const Status stale(hetcclUnhandledDeviceError,
                     "importing memory of this process: it was freed after its export");
  if (h.ordinal >= memory_.regions_.size()) return stale;
  const uintptr_t begin = memory_.base_of(static_cast<int>(h.ordinal)) + h.offset;
  {
    const std::lock_guard lock(memory_.mutex_);
    const auto at = memory_.exactly(&memory_.device_, reinterpret_cast<void*>(begin));
    if (at == memory_.device_.end() || at->second.id != h.id) return stale;
  }
  const std::lock_guard lock(mutex_);
  const auto [at, fresh] = imports_.try_emplace(begin + h.inside);
  if (!fresh) ++at->second.times;
  return reinterpret_cast<void*>(begin + h.inside);
}

Result<void*> SharedMemory::map(int ordinal, const Handle& h, int file) {
  Import import;
  const size_t before = h.offset % page_size();
  import.mapped = round_up(before + h.bytes, page_size());
  const std::lock_guard lock(mutex_);
  const std::optional<size_t> place = places_.take(import.mapped);
  if (!place.has_value()) {
    return Status(hetcclUnhandledDeviceError, "no addresses are left for imported memory");
  }
  import.begin = base_ + *place;
  import.piece = import.begin + before;
  Status s = map_pages(h, file, &import);
  Piece piece;
  if (s.ok()) {
    piece.bytes = h.bytes;
    piece.ordinal = ordinal;
    piece.alive = static_cast<std::atomic<uint64_t>*>(import.table) + h.slot;
    piece.owner_id = h.id;
    if (piece.alive->load(std::memory_order_acquire) != h.id) {
      munmap(import.table, Region::kTableBytes);
      s = Status(hetcclUnhandledDeviceError, "it was freed after its export");
    }
  }
  if (!s.ok()) {
    forget_pages(import);
    return s;
  }
  const uintptr_t address = import.piece + h.inside;
  imports_[address] = import;
  const std::lock_guard memory_lock(memory_.mutex_);
  piece.id = ++memory_.last_id_;
  memory_.device_[import.piece] = piece;
  return reinterpret_cast<void*>(address);
}

// Where sharing is broken, other memory appears than that which was exported.
Status SharedMemory::map_pages(const Handle& h, int file, Import* import) {
  void* const alias = reinterpret_cast<void*>(import->begin + memory_.distance_);
  const bool broken = options().ipc == SimOptions::Ability::kBroken;
  const auto first_page = static_cast<off_t>(h.offset / page_size() * page_size());
  const void* pages = broken ? mmap(alias, import->mapped, PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0)
                             : mmap(alias, import->mapped, PROT_READ | PROT_WRITE,
                                    MAP_SHARED | MAP_FIXED | MAP_NORESERVE, file, first_page);
  import->table =
      mmap(nullptr, Region::kTableBytes, PROT_READ, MAP_SHARED, file, static_cast<off_t>(h.span));
  if (pages != MAP_FAILED && import->table != MAP_FAILED) return {};
  Status s(hetcclUnhandledDeviceError, failed("mapping it"));
  if (import->table != MAP_FAILED) munmap(import->table, Region::kTableBytes);
  return s;
}

void SharedMemory::forget_pages(const Import& import) {
  // Reserved again, so that nothing else gets mapped there.
  (void)mmap(reinterpret_cast<void*>(import.begin + memory_.distance_), import.mapped, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
  places_.give_back(import.begin - base_, import.mapped);
}

Status SharedMemory::close_memory(void* pointer) {
  const std::lock_guard lock(mutex_);
  const auto at = imports_.find(reinterpret_cast<uintptr_t>(pointer));
  if (at == imports_.end()) {
    return invalid_argument(memory_.name(-1) + ": closing memory that was not imported");
  }
  if (--at->second.times > 0) return {};
  const Import import = at->second;
  imports_.erase(at);
  if (import.table == nullptr) return {};
  {
    std::unique_lock memory_lock(memory_.mutex_);
    memory_.remove(&memory_lock, &memory_.device_, memory_.device_.find(import.piece));
  }
  munmap(import.table, Region::kTableBytes);
  forget_pages(import);
  return {};
}

}  // namespace hetccl::device::sim

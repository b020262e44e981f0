#include "lib/net/arena.h"

#include <sys/sysinfo.h>

#include <cstring>
#include <fstream>
#include <new>
#include <string>

namespace hetccl::net {
namespace {

constexpr size_t kTableBytes = kSegmentRows * sizeof(SegmentRow);

// Memory that can be had without pushing anything out, in bytes; SIZE_MAX where it is unknown.
size_t available_memory() {
  std::ifstream file("/proc/meminfo");
  std::string name, unit;
  for (size_t kilobytes; file >> name >> kilobytes; std::getline(file, unit)) {
    if (name == "MemAvailable:") return kilobytes * 1024;
  }
  return SIZE_MAX;
}

size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

uint64_t total_memory() {
  struct sysinfo info;
  return sysinfo(&info) == 0 ? uint64_t{info.totalram} * info.mem_unit : UINT64_MAX;
}

}  // namespace

Result<std::unique_ptr<Arena>> Arena::create(UcxWorker* worker) {
  std::unique_ptr<Arena> arena(new Arena(worker));
  std::lock_guard lock(arena->mutex_);
  Result<uint32_t> first = arena->add_segment(kSegmentBytes);
  if (!first.ok()) return first.status();
  return arena;
}

// The table is carved out of the first segment, so that one key opens all the others.
Result<uint32_t> Arena::add_segment(size_t bytes) {
  uint32_t id = 0;
  while (id < segments_.size() && segments_[id] != nullptr) ++id;
  if (id == kSegmentRows) {
    return system_error("all " + std::to_string(kSegmentRows) +
                        " segments of shared memory are in use: free some with hetcclMemFree");
  }
  if (const size_t available = available_memory(); bytes > available) {
    return system_error("cannot make " + std::to_string(bytes) + " bytes of shared memory: only " +
                        std::to_string(available) + " bytes are available");
  }
  auto segment = std::make_unique<Segment>();
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                      UCP_MEM_MAP_PARAM_FIELD_FLAGS;
  params.length = bytes;
  params.flags = UCP_MEM_MAP_ALLOCATE;
  std::lock_guard worker_lock(worker_->mutex());
  ucs_status_t status = ucp_mem_map(worker_->context(), &params, &segment->memory);
  if (status != UCS_OK) {
    return system_error("cannot make " + std::to_string(bytes) +
                        " bytes of shared memory: " + ucs_status_string(status) +
                        " (see kernel.shmmax, kernel.shmall and the free memory)");
  }
  ucp_mem_attr_t attributes{};
  attributes.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS | UCP_MEM_ATTR_FIELD_LENGTH;
  ucp_mem_query(segment->memory, &attributes);
  segment->base = static_cast<std::byte*>(attributes.address);
  segment->bytes = bytes;
  if (id == segments_.size()) segments_.emplace_back();
  segments_[id] = std::move(segment);
  if (table_ == nullptr) {
    std::byte* base = segments_[id]->base;
    for (size_t row = 0; row < kSegmentRows; ++row)
      new (base + row * sizeof(SegmentRow)) SegmentRow;
    table_ = reinterpret_cast<SegmentRow*>(base);
    segments_[id]->fresh = kTableBytes;
  }
  std::string key;
  Status published = publish(id, &key);
  if (!published.ok()) {
    ucp_mem_unmap(worker_->context(), segments_[id]->memory);
    segments_[id] = nullptr;
    return published;
  }
  if (id == 0) table_key_ = key;
  return id;
}

// Requires both locks.
Status Arena::publish(uint32_t id, std::string* key) {
  const Segment& segment = *segments_[id];
  void* packed = nullptr;
  size_t packed_bytes = 0;
  ucs_status_t status = ucp_rkey_pack(worker_->context(), segment.memory, &packed, &packed_bytes);
  if (status != UCS_OK) {
    return system_error(std::string("cannot share memory: ") + ucs_status_string(status));
  }
  key->assign(static_cast<const char*>(packed), packed_bytes);
  ucp_rkey_buffer_release(packed);
  SegmentRow& row = table_[id];
  if (key->size() > row.key.size()) {
    return system_error("the key of shared memory takes " + std::to_string(key->size()) +
                        " bytes, more than " + std::to_string(row.key.size()) +
                        ": limit UCX_TLS to fewer transports");
  }
  row.address.store(reinterpret_cast<uint64_t>(segment.base), std::memory_order_relaxed);
  row.bytes.store(segment.bytes, std::memory_order_relaxed);
  row.key_bytes.store(key->size(), std::memory_order_relaxed);
  std::memcpy(row.key.data(), key->data(), key->size());
  row.generation.store(next_generation_++, std::memory_order_release);
  if (rows_used_.load(std::memory_order_relaxed) <= id) {
    rows_used_.store(id + 1, std::memory_order_release);
  }
  return {};
}

void Arena::remove_segment(uint32_t id) {
  table_[id].generation.store(0, std::memory_order_relaxed);
  // Readers of the row check the generation again after reading it.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  std::lock_guard worker_lock(worker_->mutex());
  ucp_mem_unmap(worker_->context(), segments_[id]->memory);
  segments_[id] = nullptr;
}

std::byte* Arena::take(uint32_t id, size_t bytes, bool* used_before) {
  Segment& segment = *segments_[id];
  for (auto hole = segment.holes.begin(); hole != segment.holes.end(); ++hole) {
    auto [offset, size] = *hole;
    if (size < bytes) continue;
    segment.holes.erase(hole);
    if (size > bytes) segment.holes.emplace(offset + bytes, size - bytes);
    *used_before = true;
    return segment.base + offset;
  }
  if (segment.bytes - segment.fresh < bytes) return nullptr;
  std::byte* memory = segment.base + segment.fresh;
  segment.fresh += bytes;
  *used_before = false;
  return memory;
}

Result<std::byte*> Arena::allocate(size_t bytes, bool zeroed) {
  if (bytes > (uint64_t{1} << 62)) {
    return invalid_argument("cannot allocate " + std::to_string(bytes) + " bytes");
  }
  // UCX would go on from one kind of shared memory to the next, and fill the last of them page by
  // page until the node has no memory left.
  uint64_t memory_of_node = total_memory();
  if (bytes > memory_of_node) {
    return system_error("cannot make " + std::to_string(bytes) +
                        " bytes of shared memory: the node has " + std::to_string(memory_of_node));
  }
  bytes = round_up(bytes == 0 ? 1 : bytes, kArenaAlignment);
  std::byte* memory = nullptr;
  bool used_before = false;
  {
    std::lock_guard lock(mutex_);
    bool large = bytes > kSegmentBytes / 2;
    uint32_t id = 0;
    for (; !large && memory == nullptr && id < segments_.size(); ++id) {
      if (segments_[id] == nullptr || segments_[id]->own_allocation) continue;
      memory = take(id, bytes, &used_before);
      if (memory != nullptr) break;
    }
    if (memory == nullptr) {
      Result<uint32_t> added = add_segment(large ? bytes : kSegmentBytes);
      if (!added.ok()) return added.status();
      id = *added;
      segments_[id]->own_allocation = large;
      memory = take(id, bytes, &used_before);
    }
    blocks_[memory] = Block{id, bytes};
  }
  if (zeroed && used_before) std::memset(memory, 0, bytes);
  return memory;
}

Status Arena::free(void* memory) {
  std::lock_guard lock(mutex_);
  auto block = blocks_.find(static_cast<std::byte*>(memory));
  if (block == blocks_.end()) {
    return invalid_argument("the address is not that of shared memory from hetcclMemAlloc");
  }
  auto [id, bytes] = block->second;
  blocks_.erase(block);
  Segment& segment = *segments_[id];
  if (segment.own_allocation) {
    remove_segment(id);
    return {};
  }
  size_t offset = static_cast<std::byte*>(memory) - segment.base;
  auto after = segment.holes.lower_bound(offset);
  if (after != segment.holes.end() && offset + bytes == after->first) {
    bytes += after->second;
    after = segment.holes.erase(after);
  }
  if (after != segment.holes.begin()) {
    auto before = std::prev(after);
    if (before->first + before->second == offset) {
      before->second += bytes;
      return {};
    }
  }
  segment.holes.emplace(offset, bytes);
  return {};
}

bool Arena::locate(const void* data, size_t bytes, Location* location) const {
  uint64_t address = reinterpret_cast<uint64_t>(data);
  uint32_t rows = rows_used_.load(std::memory_order_acquire);
  for (uint32_t id = 0; id < rows; ++id) {
    const SegmentRow& row = table_[id];
    uint64_t generation = row.generation.load(std::memory_order_acquire);
    if (generation == 0) continue;
    uint64_t base = row.address.load(std::memory_order_relaxed);
    uint64_t size = row.bytes.load(std::memory_order_relaxed);
    if (address < base || address - base > size || size - (address - base) < bytes) continue;
    std::atomic_thread_fence(std::memory_order_acquire);
    if (row.generation.load(std::memory_order_relaxed) != generation) continue;
    *location = Location{id, static_cast<uint32_t>(generation), address - base};
    return true;
  }
  return false;
}

}  // namespace hetccl::net

// Memory that the other processes of the node can map: segments from UCX, a table of them that
// peers read, and an allocator over them.
//
// Peers learn of a segment through its row in the table (the first bytes of segment 0) and attach
// it when a message first names it. A row carries a generation, which is unique in the process:
// a freed segment's generation is never seen again, so that nothing stale is ever read as valid.
//
// Thread rule: any thread. locate() takes no lock; the others take the arena's, and the worker's
// when a segment is made or freed.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "lib/base/status.h"
#include "lib/net/ucx_worker.h"

namespace hetccl::net {

inline constexpr size_t kSegmentRows = 1024;
inline constexpr size_t kSegmentBytes = size_t{64} << 20;
inline constexpr size_t kArenaAlignment = 4096;

// Where something lies in a process's arena.
struct Location {
  uint32_t segment;
  uint32_t generation;
  uint64_t offset;
};

// One segment, as peers see it. Written under the arena's lock; the generation is zero while the
// rest changes and while there is no segment.
struct alignas(64) SegmentRow {
  std::atomic<uint64_t> generation;
  std::atomic<uint64_t> address;  // in the owner
  std::atomic<uint64_t> bytes;
  std::atomic<uint64_t> key_bytes;
  std::array<std::byte, 480> key;
};
static_assert(sizeof(SegmentRow) == 512);

class Arena {
 public:
  static Result<std::unique_ptr<Arena>> create(UcxWorker* worker);

  // `zeroed` memory costs nothing where it is fresh.
  Result<std::byte*> allocate(size_t bytes, bool zeroed);
  Status free(void* memory);

  // True if [data, data + bytes) lies in one segment.
  bool locate(const void* data, size_t bytes, Location* location) const;

  const SegmentRow* table() const { return table_; }
  const std::string& table_key() const { return table_key_; }

 private:
  struct Segment {
    ucp_mem_h memory = nullptr;
    std::byte* base = nullptr;
    size_t bytes = 0;
    size_t fresh = 0;                // never handed out from here on
    std::map<size_t, size_t> holes;  // offset -> bytes, below `fresh`, never adjacent
    bool own_allocation = false;     // one large allocation, unmapped with it
  };
  struct Block {
    uint32_t segment;
    size_t bytes;
  };

  explicit Arena(UcxWorker* worker) : worker_(worker) {}
  Result<uint32_t> add_segment(size_t bytes);
  Status publish(uint32_t id, std::string* key);
  void remove_segment(uint32_t id);
  std::byte* take(uint32_t id, size_t bytes, bool* used_before);

  UcxWorker* worker_;
  SegmentRow* table_ = nullptr;
  std::string table_key_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Segment>> segments_;  // null: free row
  std::map<std::byte*, Block> blocks_;
  uint32_t next_generation_ = 1;
  std::atomic<uint32_t> rows_used_{0};
};

}  // namespace hetccl::net

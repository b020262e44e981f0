// Another process's arena, as this process sees it: the table of its segments and those that were
// attached so far.
//
// Thread rule: any thread. map() of an attached segment takes no lock; attaching takes the
// worker's.
#pragma once

#include <atomic>
#include <memory>

#include "lib/base/status.h"
#include "lib/net/arena.h"
#include "lib/net/net_card.h"
#include "lib/net/ucx_worker.h"

namespace hetccl::net {

class ShmPeer {
 public:
  // The arena of a process that shares memory with this one.
  static Result<std::unique_ptr<ShmPeer>> attach(UcxWorker* worker, const Card& card);
  // This process's own arena, for ranks that live in one process.
  static std::unique_ptr<ShmPeer> self(UcxWorker* worker, const Arena& arena);
  ~ShmPeer();

  // Where `location` lies in this process, or null when it cannot be attached (see status()).
  std::byte* map(const Location& location) {
    Mapping& known = mappings_[location.segment % kSegmentRows];
    if (known.generation.load(std::memory_order_acquire) == location.generation) [[likely]] {
      return known.base.load(std::memory_order_relaxed) + location.offset;
    }
    return attach_segment(location);
  }
  Status status() const;

  // True once no process has the peer's number any more.
  bool process_is_gone() const;

  // Lets go of segments that their owner has freed.
  void drop_stale();

 private:
  struct Mapping {
    std::atomic<uint64_t> generation{0};
    std::atomic<std::byte*> base{nullptr};
    ucp_rkey_h key = nullptr;  // guarded by the worker's lock
  };

  explicit ShmPeer(UcxWorker* worker);
  std::byte* attach_segment(const Location& location);
  std::byte* attach_locked(const Location& location);
  void detach(Mapping* mapping);

  UcxWorker* worker_;
  bool own_ = false;
  uint64_t pid_ = 0;
  ucp_ep_h endpoint_ = nullptr;
  ucp_rkey_h table_key_ = nullptr;
  const SegmentRow* table_ = nullptr;
  std::unique_ptr<Mapping[]> mappings_;
  Status failure_;  // guarded by the worker's lock
};

}  // namespace hetccl::net

#include "lib/net/shm_peer.h"

#include <signal.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace hetccl::net {
namespace {

Status cannot_map(uint64_t pid, ucs_status_t status) {
  return system_error("cannot map the memory of process " + std::to_string(pid) +
                      " on this node: " + ucs_status_string(status) +
                      " (give the ranks different HETCCL_NODE names, or let UCX use sysv or posix "
                      "shared memory)");
}

}  // namespace

ShmPeer::ShmPeer(UcxWorker* worker)
    : worker_(worker), mappings_(std::make_unique<Mapping[]>(kSegmentRows)) {}

std::unique_ptr<ShmPeer> ShmPeer::self(UcxWorker* worker, const Arena& arena) {
  std::unique_ptr<ShmPeer> peer(new ShmPeer(worker));
  peer->own_ = true;
  peer->table_ = arena.table();
  return peer;
}

Result<std::unique_ptr<ShmPeer>> ShmPeer::attach(UcxWorker* worker, const Card& card) {
  std::unique_ptr<ShmPeer> peer(new ShmPeer(worker));
  peer->pid_ = card.pid;
  Status failure;
  {
    std::lock_guard lock(worker->mutex());
    Result<ucp_ep_h> endpoint = worker->connect_local(card.full_address);
    if (!endpoint.ok()) return endpoint.status();
    peer->endpoint_ = *endpoint;
    ucs_status_t status =
        ucp_ep_rkey_unpack(peer->endpoint_, card.table_key.data(), &peer->table_key_);
    void* table = nullptr;
    if (status == UCS_OK) status = ucp_rkey_ptr(peer->table_key_, card.table_address, &table);
    if (status != UCS_OK) failure = cannot_map(card.pid, status);
    peer->table_ = static_cast<const SegmentRow*>(table);
  }
  if (!failure.ok()) return failure;
  return peer;
}

ShmPeer::~ShmPeer() {
  std::lock_guard lock(worker_->mutex());
  for (size_t row = 0; row < kSegmentRows; ++row) detach(&mappings_[row]);
  if (table_key_ != nullptr) ucp_rkey_destroy(table_key_);
  if (endpoint_ == nullptr) return;
  // Nothing was ever sent on it: it only serves to unpack keys.
  ucp_request_param_t none{};
  ucs_status_ptr_t request = ucp_ep_close_nbx(endpoint_, &none);
  if (UCS_PTR_IS_PTR(request)) {
    for (int i = 0; i < 100 && ucp_request_check_status(request) == UCS_INPROGRESS; ++i) {
      ucp_worker_progress(worker_->handle());
    }
    ucp_request_free(request);
  }
}

Status ShmPeer::status() const {
  std::lock_guard lock(worker_->mutex());
  return failure_;
}

std::byte* ShmPeer::attach_segment(const Location& location) {
  std::lock_guard lock(worker_->mutex());
  std::byte* base = attach_locked(location);
  return base == nullptr ? nullptr : base + location.offset;
}

std::byte* ShmPeer::attach_locked(const Location& location) {
  if (location.segment >= kSegmentRows) {
    failure_ = internal_error("a message names segment " + std::to_string(location.segment));
    return nullptr;
  }
  Mapping& mapping = mappings_[location.segment];
  if (mapping.generation.load(std::memory_order_relaxed) == location.generation) {
    return mapping.base.load(std::memory_order_relaxed);
  }
  const SegmentRow& row = table_[location.segment];
  uint64_t address = row.address.load(std::memory_order_relaxed);
  uint64_t bytes = row.bytes.load(std::memory_order_relaxed);
  std::array<std::byte, sizeof(row.key)> key;
  std::memcpy(key.data(), row.key.data(), key.size());
  std::atomic_thread_fence(std::memory_order_acquire);
  if (row.generation.load(std::memory_order_acquire) != location.generation ||
      location.offset > bytes) {
    failure_ = invalid_usage("process " + std::to_string(pid_) +
                             " freed shared memory that it was still sending from");
    return nullptr;
  }
  detach(&mapping);
  void* base = reinterpret_cast<void*>(address);
  if (!own_) {
    ucs_status_t status = ucp_ep_rkey_unpack(endpoint_, key.data(), &mapping.key);
    if (status == UCS_OK) status = ucp_rkey_ptr(mapping.key, address, &base);
    if (status != UCS_OK) {
      failure_ = cannot_map(pid_, status);
      return nullptr;
    }
  }
  mapping.base.store(static_cast<std::byte*>(base), std::memory_order_relaxed);
  mapping.generation.store(location.generation, std::memory_order_release);
  return static_cast<std::byte*>(base);
}

void ShmPeer::detach(Mapping* mapping) {
  mapping->generation.store(0, std::memory_order_relaxed);
  mapping->base.store(nullptr, std::memory_order_relaxed);
  if (mapping->key != nullptr) ucp_rkey_destroy(mapping->key);
  mapping->key = nullptr;
}

bool ShmPeer::process_is_gone() const {
  return !own_ && kill(static_cast<pid_t>(pid_), 0) != 0 && errno == ESRCH;
}

void ShmPeer::drop_stale() {
  std::lock_guard lock(worker_->mutex());
  for (size_t row = 0; row < kSegmentRows; ++row) {
    Mapping& mapping = mappings_[row];
    uint64_t known = mapping.generation.load(std::memory_order_relaxed);
    if (known != 0 && known != table_[row].generation.load(std::memory_order_acquire)) {
      detach(&mapping);
    }
  }
}

}  // namespace hetccl::net

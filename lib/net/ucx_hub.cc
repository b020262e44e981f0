#include "lib/net/ucx_hub.h"

#include <random>

namespace hetccl::net {
namespace {

bool is_quiet(const RetiredRegion& retired) {
  for (const MailLedger* ledger : retired.watched) {
    if (ledger->closed.load(std::memory_order_acquire) == 0) return false;
  }
  return true;
}

}  // namespace

Result<std::unique_ptr<UcxHub>> UcxHub::create(const WorkerOptions& options) {
  std::unique_ptr<UcxHub> hub(new UcxHub);
  Result<std::unique_ptr<UcxWorker>> worker = UcxWorker::create(options);
  if (!worker.ok()) return worker.status();
  hub->worker_ = std::move(*worker);
  Result<std::unique_ptr<Arena>> arena = Arena::create(hub->worker_.get());
  if (!arena.ok()) return arena.status();
  hub->arena_ = std::move(*arena);
  std::random_device random;
  for (uint64_t& word : hub->token_) word = (uint64_t{random()} << 32) | random();
  return hub;
}

Result<std::shared_ptr<ShmPeer>> UcxHub::shm_peer(const Card& card) {
  std::lock_guard lock(mutex_);
  auto known = shm_peers_.find(card.process);
  if (known != shm_peers_.end()) return known->second;
  std::shared_ptr<ShmPeer> peer;
  if (card.process == token_) {
    peer = ShmPeer::self(worker_.get(), *arena_);
  } else {
    Result<std::unique_ptr<ShmPeer>> attached = ShmPeer::attach(worker_.get(), card);
    if (!attached.ok()) return attached.status();
    peer = std::move(*attached);
  }
  shm_peers_[card.process] = peer;
  return peer;
}

void UcxHub::retire(RetiredRegion region) {
  {
    std::lock_guard lock(mutex_);
    retired_.push_back(std::move(region));
  }
  sweep();
}

void UcxHub::sweep() {
  std::vector<RetiredRegion> quiet;
  std::vector<std::shared_ptr<ShmPeer>> gone;
  {
    std::lock_guard lock(mutex_);
    for (size_t i = 0; i < retired_.size();) {
      if (is_quiet(retired_[i])) {
        quiet.push_back(std::move(retired_[i]));
        retired_[i] = std::move(retired_.back());
        retired_.pop_back();
      } else {
        ++i;
      }
    }
    for (auto peer = shm_peers_.begin(); peer != shm_peers_.end();) {
      peer->second->drop_stale();
      if (peer->second.use_count() == 1 && peer->second->process_is_gone()) {
        gone.push_back(std::move(peer->second));
        peer = shm_peers_.erase(peer);
      } else {
        ++peer;
      }
    }
  }
  for (const RetiredRegion& region : quiet) {
    (void)arena_->free(region.region).ok();
    if (region.chunks != nullptr) (void)arena_->free(region.chunks).ok();
  }
}

}  // namespace hetccl::net

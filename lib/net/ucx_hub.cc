#include "lib/net/ucx_hub.h"

#include <cstring>
#include <random>
#include <thread>

#include "lib/base/log.h"

namespace hetccl::net {
namespace {

bool is_quiet(const RetiredRegion& retired) {
  for (const RegionUser& user : retired.users) {
    bool closed = user.ledger->closed.load(std::memory_order_acquire) != 0;
    if (!closed && (user.remote == nullptr || !user.remote->failed())) return false;
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
  hub->accept_messages();
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

Result<std::shared_ptr<UcxRemote>> UcxHub::remote(const Card& card) {
  std::lock_guard lock(mutex_);
  auto known = remotes_.find(card.process);
  if (known != remotes_.end() && !known->second->failed()) return known->second;
  Result<std::shared_ptr<UcxRemote>> made = UcxRemote::connect(worker_.get(), card);
  if (made.ok()) remotes_[card.process] = *made;
  return made;
}

void UcxHub::accept_messages() {
  struct Handler {
    AmId id;
    ucp_am_recv_callback_t call;
  };
  for (Handler handler : {Handler{kAmMessage, on_message}, {kAmAcknowledge, on_acknowledge}}) {
    ucp_am_handler_param_t params{};
    params.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                        UCP_AM_HANDLER_PARAM_FIELD_ARG | UCP_AM_HANDLER_PARAM_FIELD_FLAGS;
    params.id = handler.id;
    params.cb = handler.call;
    params.arg = this;
    params.flags = UCP_AM_FLAG_WHOLE_MSG;
    ucp_worker_set_am_recv_handler(worker_->handle(), &params);
  }
}

// A message for a lane that is gone is nobody's any more.
AmPair* UcxHub::addressee(uint32_t lane, uint32_t source) {
  auto inbox = inboxes_.find(lane);
  if (inbox == inboxes_.end() || source >= static_cast<uint32_t>(inbox->second->ranks())) {
    return nullptr;
  }
  return inbox->second->pair(static_cast<int>(source));
}

ucs_status_t UcxHub::on_message(void* hub, const void* header, size_t header_bytes, void* data,
                                size_t bytes, const ucp_am_recv_param_t* param) {
  AmHeader message;
  if (header_bytes != sizeof(message)) return UCS_OK;
  std::memcpy(&message, header, sizeof(message));
  AmPair* pair = static_cast<UcxHub*>(hub)->addressee(message.lane, message.source);
  if (pair == nullptr) return UCS_OK;
  bool rendezvous = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
  return pair->on_message(message, data, bytes, rendezvous);
}

ucs_status_t UcxHub::on_acknowledge(void* hub, const void* header, size_t header_bytes, void*,
                                    size_t, const ucp_am_recv_param_t*) {
  AmAcknowledgement message;
  if (header_bytes != sizeof(message)) return UCS_OK;
  std::memcpy(&message, header, sizeof(message));
  AmPair* pair = static_cast<UcxHub*>(hub)->addressee(message.lane, message.source);
  if (pair == nullptr) return UCS_OK;
  pair->on_acknowledge(message.released);
  return UCS_OK;
}

uint32_t UcxHub::open_inbox(std::shared_ptr<UcxInbox> inbox) {
  std::lock_guard lock(worker_->mutex());
  uint32_t id = next_inbox_++;
  inboxes_[id] = std::move(inbox);
  return id;
}

bool UcxHub::drain(UcxInbox* inbox, std::chrono::milliseconds limit) {
  auto deadline = std::chrono::steady_clock::now() + limit;
  while (true) {
    {
      std::lock_guard lock(worker_->mutex());
      if (inbox->requests() == 0) return true;
      ucp_worker_progress(worker_->handle());
    }
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
}

void UcxHub::close_inbox(uint32_t id) {
  // Outlive the lock below, which their destructors take.
  std::vector<std::shared_ptr<UcxRemote>> remotes;
  std::shared_ptr<UcxInbox> inbox;
  {
    std::lock_guard lock(worker_->mutex());
    auto known = inboxes_.find(id);
    if (known == inboxes_.end()) return;
    inbox = std::move(known->second);
    inboxes_.erase(known);
    for (int peer = 0; peer < inbox->ranks(); ++peer) {
      AmPair* pair = inbox->known_pair(peer);
      if (pair == nullptr) continue;
      remotes.push_back(pair->remote());
      if (pair->put() != nullptr) pair->put()->close();
    }
  }
  bool over = drain(inbox.get(), std::chrono::milliseconds(1000));
  if (!over) {
    cut_busy(inbox.get());
    over = drain(inbox.get(), std::chrono::milliseconds(1000));
  }
  std::lock_guard lock(worker_->mutex());
  if (!over) stuck_.push_back(inbox);
  inbox = nullptr;
}

void UcxHub::cut_busy(UcxInbox* inbox) {
  std::lock_guard lock(worker_->mutex());
  for (int peer = 0; peer < inbox->ranks(); ++peer) {
    AmPair* pair = inbox->known_pair(peer);
    if (pair == nullptr || pair->requests() == 0 || pair->remote() == nullptr) continue;
    log::warn("a lane ends with messages to or from rank " + std::to_string(peer) +
              " under way: the connection to its process is cut");
    pair->remote()->cut();
  }
}

Caretaker& UcxHub::caretaker() {
  std::call_once(caretaker_once_, [this] { caretaker_ = new Caretaker(worker_.get()); });
  return *caretaker_;
}

bool UcxHub::progress() {
  std::unique_lock lock(worker_->mutex(), std::try_to_lock);
  return lock.owns_lock() && ucp_worker_progress(worker_->handle()) != 0;
}

void UcxHub::retire(RetiredRegion region) {
  {
    std::lock_guard lock(mutex_);
    retired_.push_back(std::move(region));
  }
  sweep();
}

void UcxHub::sweep() {
  // Peers that put close their ledgers by puts.
  for (int i = 0; i < 16 && progress(); ++i) {
  }
  std::vector<RetiredRegion> quiet;
  std::vector<std::shared_ptr<ShmPeer>> gone;
  std::vector<std::shared_ptr<UcxRemote>> lost;
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
    for (auto remote = remotes_.begin(); remote != remotes_.end();) {
      if (remote->second.use_count() == 1 && remote->second->failed()) {
        lost.push_back(std::move(remote->second));
        remote = remotes_.erase(remote);
      } else {
        ++remote;
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

// What the lanes of one process share: worker, arena, the ways to other processes, the lanes that
// active messages may name, and the regions of lanes that are gone but that a peer may still touch.
//
// Thread rule: any thread.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "lib/net/arena.h"
#include "lib/net/caretaker.h"
#include "lib/net/mailbox.h"
#include "lib/net/net_card.h"
#include "lib/net/shm_peer.h"
#include "lib/net/ucx_inbox.h"
#include "lib/net/ucx_remote.h"
#include "lib/net/ucx_worker.h"

namespace hetccl::net {

// A peer that may touch a region until it has closed its ledger there or its connection is lost.
struct RegionUser {
  MailLedger* ledger;
  std::shared_ptr<UcxRemote> remote;  // null: it shares memory
};

// Memory of a lane that is gone. It can be used again when all its users are gone.
struct RetiredRegion {
  std::byte* region = nullptr;
  std::byte* chunks = nullptr;  // may be null
  std::vector<RegionUser> users;
};

class UcxHub {
 public:
  static Result<std::unique_ptr<UcxHub>> create(const WorkerOptions& options);

  UcxWorker& worker() { return *worker_; }
  Arena& arena() { return *arena_; }
  const ProcessToken& token() const { return token_; }

  // The arena of the process of `card`; attached once and kept while the process lives.
  Result<std::shared_ptr<ShmPeer>> shm_peer(const Card& card);

  // The connection to the process of `card`; made once and kept until it fails.
  Result<std::shared_ptr<UcxRemote>> remote(const Card& card);

  // Messages that name the returned id arrive in the inbox from here on. Ids are not used again.
  uint32_t open_inbox(std::shared_ptr<UcxInbox> inbox);
  // After it returns nothing of UCX's refers to the inbox or to the buffers of its messages. Waits
  // for what is under way; connections that do not get done in time are cut.
  void close_inbox(uint32_t id);

  // Made at first use; only networked lanes need it.
  Caretaker& caretaker();

  // Serves the worker, unless another thread does. True if something moved.
  bool progress();

  void retire(RetiredRegion region);
  // Frees the retired regions that nobody touches any more, and lets go of what peers freed.
  void sweep();

 private:
  UcxHub() = default;
  void accept_messages();
  AmPair* addressee(uint32_t lane, uint32_t source);
  void cut_busy(UcxInbox* inbox);
  bool drain(UcxInbox* inbox, std::chrono::milliseconds limit);
  static ucs_status_t on_message(void* hub, const void* header, size_t header_bytes, void* data,
                                 size_t bytes, const ucp_am_recv_param_t* param);
  static ucs_status_t on_acknowledge(void* hub, const void* header, size_t header_bytes, void* data,
                                     size_t bytes, const ucp_am_recv_param_t* param);

  std::unique_ptr<UcxWorker> worker_;
  std::unique_ptr<Arena> arena_;
  std::once_flag caretaker_once_;
  Caretaker* caretaker_ = nullptr;  // never destroyed, as its thread
  ProcessToken token_{};

  // Under the worker's lock.
  std::unordered_map<uint32_t, std::shared_ptr<UcxInbox>> inboxes_;
  std::vector<std::shared_ptr<UcxInbox>> stuck_;  // UCX never let go of them
  uint32_t next_inbox_ = 1;

  std::mutex mutex_;  // never taken with the worker's lock held
  std::map<ProcessToken, std::shared_ptr<UcxRemote>> remotes_;
  std::map<ProcessToken, std::shared_ptr<ShmPeer>> shm_peers_;
  std::vector<RetiredRegion> retired_;
};

}  // namespace hetccl::net

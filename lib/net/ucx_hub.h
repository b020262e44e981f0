// What the lanes of one process share: worker, arena, the arenas of other processes, and the
// regions of lanes that are gone but that a peer may still touch.
//
// Thread rule: any thread.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "lib/net/arena.h"
#include "lib/net/mailbox.h"
#include "lib/net/net_card.h"
#include "lib/net/shm_peer.h"
#include "lib/net/ucx_worker.h"

namespace hetccl::net {

// Memory of a lane that is gone. It can be used again once all `watched` ledgers are closed.
struct RetiredRegion {
  std::byte* region = nullptr;
  std::byte* chunks = nullptr;  // may be null
  std::vector<MailLedger*> watched;
};

class UcxHub {
 public:
  static Result<std::unique_ptr<UcxHub>> create(const WorkerOptions& options);

  UcxWorker& worker() { return *worker_; }
  Arena& arena() { return *arena_; }
  const ProcessToken& token() const { return token_; }

  // The arena of the process of `card`; attached once and kept while the process lives.
  Result<std::shared_ptr<ShmPeer>> shm_peer(const Card& card);

  void retire(RetiredRegion region);
  // Frees the retired regions that nobody touches any more, and lets go of what peers freed.
  void sweep();

 private:
  UcxHub() = default;

  std::unique_ptr<UcxWorker> worker_;
  std::unique_ptr<Arena> arena_;
  ProcessToken token_{};

  std::mutex mutex_;
  std::map<ProcessToken, std::shared_ptr<ShmPeer>> shm_peers_;
  std::vector<RetiredRegion> retired_;
};

}  // namespace hetccl::net

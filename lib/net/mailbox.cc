#include "lib/net/mailbox.h"

namespace hetccl::net {

void MailLayout::clear(std::byte* region) const {
  for (size_t peer = 0; peer < ranks_; ++peer) {
    MailLedger* ledger_line = ledger(region, peer);
    ledger_line->released.store(0, std::memory_order_relaxed);
    ledger_line->closed.store(0, std::memory_order_relaxed);
    for (size_t index = 0; index < depth_; ++index) {
      slot(slots(region, peer), index)->sequence.store(0, std::memory_order_relaxed);
      announcements(region, peer)[index].sequence.store(0, std::memory_order_relaxed);
    }
  }
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

}  // namespace hetccl::net

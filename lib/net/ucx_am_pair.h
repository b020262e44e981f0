// A pair of ranks that meet over the network, by active messages and, where told so, by puts
// (ucx_put.h). A message goes out as one; UCX
// sends small ones at once and fetches large ones by rendezvous, straight to the announced
// destination or to memory of the pair. Acknowledgements are active messages too, one for about
// half the depth.
//
// At most `depth` messages of a pair are unreleased, so the receiver has a place for each, and a
// sender waits for nothing but the receiver's progress.
//
// Thread rule: the lane's thread; on_message() and on_acknowledge() run under the worker's lock on
// whichever thread makes progress. They meet in atomics: a slot's sequence, the counts of messages
// released, acknowledged and announced.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "lib/net/net_pair.h"
#include "lib/net/ucx_put.h"
#include "lib/net/ucx_remote.h"

namespace hetccl::net {

struct AmHeader {
  uint32_t lane;    // of the receiver
  uint32_t source;  // the sender's rank
  uint64_t sequence;
  uint64_t signature;
  uint64_t form;
};

struct AmAcknowledgement {
  uint32_t lane;
  uint32_t source;
  uint64_t released;
};

enum AmId : unsigned { kAmMessage = 1, kAmAcknowledge = 2 };

class AmPair final : public NetPair {
 public:
  AmPair(UcxWorker* worker, size_t depth, size_t chunk_bytes, int self, int peer);

  // Messages may arrive before; nothing can be sent before. Under the worker's lock.
  void connect(std::shared_ptr<UcxRemote> remote, uint32_t peer_lane, bool* trouble);
  void connect_put(std::unique_ptr<UcxPut> put) { put_ = std::move(put); }

  bool try_send(std::span<const Piece> pieces, size_t bytes, Envelope envelope,
                bool stable) override;
  bool has_credit() override {
    return sent_ - acknowledged_.load(std::memory_order_acquire) < depth_;
  }
  uint64_t sends_accepted() const override { return sent_; }
  uint64_t sends_done() override;
  uint64_t sends_released() override { return acknowledged_.load(std::memory_order_acquire); }
  bool try_announce(std::byte* destination, size_t bytes, bool on_device) override;
  bool try_receive(unsigned ahead, Received* message) override;
  void release() override;
  bool progress() override;
  bool quiet() override;
  Status status() const override;
  std::string describe() const override;

  // --- under the worker's lock
  ucs_status_t on_message(const AmHeader& header, void* data, size_t bytes, bool rendezvous);
  void on_acknowledge(uint64_t released);
  size_t requests() const { return requests_; }  // that UCX has not completed
  size_t* request_count() { return &requests_; }
  UcxPut* put() { return put_.get(); }
  const std::shared_ptr<UcxRemote>& remote() { return remote_; }

 private:
  struct Outgoing {
    UcxOperation operation;
    AmHeader header{};
    std::unique_ptr<std::byte[]> copy;
    size_t copy_bytes = 0;
    bool copied = false;  // the pieces are free although UCX is not done
  };
  struct Incoming {
    AmPair* pair = nullptr;
    std::atomic<uint64_t> sequence{0};
    uint64_t pending = 0;  // becomes the sequence when the rendezvous is complete
    uint64_t signature = 0;
    uint32_t form = 0;
    size_t bytes = 0;
    std::byte* data = nullptr;
    std::unique_ptr<std::byte[]> own;
    size_t own_bytes = 0;
  };
  struct Announced {
    std::byte* destination;
    size_t bytes;
    bool on_device;
  };

  std::byte* copy_of(Outgoing* slot, std::span<const Piece> pieces, size_t bytes);
  bool post(Outgoing* slot, std::span<const Piece> pieces, size_t bytes);
  bool post_message(Outgoing* slot, const void* data, size_t bytes);
  std::byte* landing(Incoming* slot, uint64_t sequence, size_t bytes, bool by_network);
  void violate(const std::string& what);
  void acknowledge();
  static void on_fetched(void* request, ucs_status_t status, size_t bytes, void* incoming);

  UcxWorker* worker_;
  const size_t depth_;
  const size_t chunk_bytes_;
  const int self_;
  const int peer_;
  std::shared_ptr<UcxRemote> remote_;
  uint32_t peer_lane_ = 0;
  bool* trouble_ = nullptr;
  std::unique_ptr<UcxPut> put_;

  std::vector<Outgoing> outgoing_;
  uint64_t sent_ = 0;
  uint64_t done_ = 0;
  unsigned attempts_ = 0;  // to put the next message
  std::atomic<uint64_t> acknowledged_{0};

  std::vector<Incoming> incoming_;
  std::vector<Announced> announced_ring_;
  std::atomic<uint64_t> announced_{0};
  std::atomic<uint64_t> released_{0};

  AmAcknowledgement acknowledgement_{};
  uint64_t acknowledgement_sent_ = 0;
  UcxOperation acknowledging_;
  unsigned idle_ = 0;  // calls of progress() since the last release

  size_t requests_ = 0;
  std::atomic<size_t> fetching_{0};
  std::string violation_;  // set under the worker's lock, before `violated_`
  std::atomic<bool> violated_{false};
};

}  // namespace hetccl::net

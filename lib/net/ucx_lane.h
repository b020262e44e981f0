// The lane over UCX: for each peer the pair that suits it, shared memory inside a node and the
// network between nodes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lib/net/fabric.h"
#include "lib/net/net_pair.h"
#include "lib/net/shm_pair.h"
#include "lib/net/ucx_hub.h"

namespace hetccl::net {

class UcxLane final : public Lane {
 public:
  struct Parts {
    UcxHub* hub;
    size_t chunk_bytes;
    std::vector<NetPair*> pairs;                      // by rank
    std::vector<std::unique_ptr<NetPair>> shm_pairs;  // some of `pairs`; the inbox has the rest
    std::vector<ShmPair*> shared;                     // those, by rank; null: networked
    uint32_t inbox = 0;
    std::vector<std::shared_ptr<ShmPeer>> shm_peers;  // kept for the pairs
    std::vector<NetPair*> networked;                  // those of `pairs` that need progress
    std::unique_ptr<bool> trouble;                    // a pair has a status to tell
    RetiredRegion region;
  };
  explicit UcxLane(Parts parts);
  ~UcxLane() override;

  size_t max_message() const override { return p_.chunk_bytes; }
  bool try_send(int peer, std::span<const Piece> pieces, Envelope envelope, bool stable) override;
  bool has_credit(int peer) override { return p_.pairs[peer]->has_credit(); }
  uint64_t sends_accepted(int peer) override { return p_.pairs[peer]->sends_accepted(); }
  uint64_t sends_done(int peer) override { return p_.pairs[peer]->sends_done(); }
  uint64_t sends_released(int peer) override { return p_.pairs[peer]->sends_released(); }
  bool try_announce(int peer, std::byte* destination, size_t bytes, bool on_device) override {
    return p_.pairs[peer]->try_announce(destination, bytes, on_device);
  }
  bool wants_announcements(int peer) const override {
    return p_.pairs[peer]->wants_announcements();
  }
  bool try_receive(int peer, unsigned ahead, Received* message) override {
    return p_.pairs[peer]->try_receive(ahead, message);
  }
  void release(int peer) override { p_.pairs[peer]->release(); }
  Result<bool> progress() override;
  void pause() override {
    if (!p_.networked.empty()) p_.hub->caretaker().caller_left();
  }
  bool quiet() override;
  ShmPair* shared_pair(int peer) override { return p_.shared[peer]; }
  std::string describe(int peer) const override { return p_.pairs[peer]->describe(); }

 private:
  Parts p_;
  Status misuse_;
};

class UcxLaneSetup final : public LaneSetup {
 public:
  static Result<std::unique_ptr<LaneSetup>> create(UcxHub* hub, int ranks, int rank,
                                                   const LaneOptions& options, PutChoice put);
  ~UcxLaneSetup() override;
  const std::string& card() const override { return card_text_; }
  Result<std::unique_ptr<Lane>> connect(const std::vector<std::string>& cards,
                                        const std::vector<bool>& shares_memory) override;

 private:
  UcxLaneSetup(UcxHub* hub, int ranks, int rank, const LaneOptions& options)
      : hub_(hub),
        ranks_(ranks),
        rank_(rank),
        options_(options),
        layout_(ranks, options.depth, options.chunk_bytes) {}
  Result<std::vector<Card>> read_cards(const std::vector<std::string>& texts) const;
  Status connect_local(const std::vector<Card>& cards, const std::vector<bool>& local,
                       UcxLane::Parts* parts);
  Status connect_remote(const std::vector<Card>& cards, const std::vector<bool>& local,
                        UcxLane::Parts* parts);
  Status connect_put(const Card& card, int rank, const std::shared_ptr<UcxRemote>& remote,
                     UcxLane::Parts* parts);

  UcxHub* hub_;
  int ranks_;
  int rank_;
  LaneOptions options_;
  MailLayout layout_;
  std::byte* region_ = nullptr;
  std::shared_ptr<UcxInbox> inbox_;
  Card card_;
  std::string card_text_;
};

}  // namespace hetccl::net

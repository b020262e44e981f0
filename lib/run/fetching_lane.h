// The lane of the host's own runs where the devices of other ranks may name their memory instead of
// sending it: such a message is copied to host memory by this rank's device when its turn comes.
// All else passes through.
//
// Thread rule: as Lane.
#pragma once

#include <vector>

#include "lib/net/lane.h"
#include "lib/run/peer_memory.h"
#include "lib/run/port.h"

namespace hetccl::run {

class FetchingLane final : public net::Lane {
 public:
  FetchingLane(net::Lane* below, Port* port, PeerMemory* memory, int ranks)
      : below_(below), port_(port), memory_(memory), fetches_(static_cast<size_t>(ranks)) {}
  ~FetchingLane() override;

  size_t max_message() const override { return below_->max_message(); }
  bool try_send(int peer, std::span<const net::Piece> pieces, net::Envelope envelope,
                bool stable) override {
    return below_->try_send(peer, pieces, envelope, stable);
  }
  bool has_credit(int peer) override { return below_->has_credit(peer); }
  uint64_t sends_accepted(int peer) override { return below_->sends_accepted(peer); }
  uint64_t sends_done(int peer) override { return below_->sends_done(peer); }
  uint64_t sends_released(int peer) override { return below_->sends_released(peer); }
  bool try_announce(int peer, std::byte* destination, size_t bytes, bool on_device) override {
    return below_->try_announce(peer, destination, bytes, on_device);
  }
  bool wants_announcements(int peer) const override { return below_->wants_announcements(peer); }
  // Of messages that name memory only the oldest can be had.
  bool try_receive(int peer, unsigned ahead, net::Received* message) override;
  void release(int peer) override;
  Result<bool> progress() override;
  void pause() override { below_->pause(); }
  bool quiet() override { return below_->quiet(); }
  std::string describe(int peer) const override { return below_->describe(peer); }

 private:
  struct Fetch {
    std::byte* memory = nullptr;  // of max_message(), made at the first use
    size_t bytes = 0;
    Port::Mark copied;
    bool active = false;
  };
  bool start(int peer, Fetch* fetch, const net::Received& message);

  net::Lane* const below_;
  Port* const port_;
  PeerMemory* const memory_;
  std::vector<Fetch> fetches_;
  Status failure_;
};

}  // namespace hetccl::run

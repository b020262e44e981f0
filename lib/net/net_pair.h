// One rank's side of the two message streams between it and one peer: what a lane is made of.
// The calls mean what those of the same name in lane.h mean.
#pragma once

#include <span>
#include <string>

#include "lib/net/lane.h"

namespace hetccl::net {

class NetPair {
 public:
  virtual ~NetPair() = default;
  virtual bool try_send(std::span<const Piece> pieces, size_t bytes, Envelope envelope,
                        bool stable) = 0;
  virtual bool has_credit() = 0;
  virtual uint64_t sends_accepted() const = 0;
  virtual uint64_t sends_done() = 0;
  virtual uint64_t sends_released() = 0;
  virtual bool try_announce(std::byte* destination, size_t bytes, bool on_device) = 0;
  virtual bool wants_announcements() const { return true; }
  virtual bool try_receive(unsigned ahead, Received* message) = 0;
  virtual void release() = 0;
  // Pushes on what waits for nothing but the network: acknowledgements, queued puts.
  virtual bool progress() = 0;
  virtual bool quiet() = 0;
  virtual Status status() const = 0;
  virtual std::string describe() const = 0;
};

inline size_t bytes_of(std::span<const Piece> pieces) {
  size_t bytes = 0;
  for (const Piece& piece : pieces) bytes += piece.bytes;
  return bytes;
}

// Empty pieces may have no address.
void gather(std::span<const Piece> pieces, std::byte* destination);

}  // namespace hetccl::net

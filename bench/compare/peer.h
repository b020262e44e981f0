// A library under comparison, as one rank uses it. Each driver program links one implementation,
// which defines make_peer. One thread.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "bench/call.h"
#include "bench/world.h"

namespace hetccl::bench {

class Peer {
 public:
  virtual ~Peer() = default;
  virtual std::string version() const = 0;
  // "" or why there is nothing to compare in this collective.
  virtual std::string lacks(Kind) const { return ""; }
  // Lives as long as the peer; null where there is not so much.
  virtual std::byte* allocate(size_t bytes);
  // "" or what went wrong.
  virtual std::string run(const Call& call) = 0;
  // Where the last call put its result.
  virtual const std::byte* result(const Call& call) const { return call.recv(); }
  // Of the last call, where the library tells.
  virtual std::string algorithm() const { return ""; }
  // A reference that only moves as much memory has no result.
  virtual bool has_results() const { return true; }
};

struct PeerArguments {
  std::string memory = "host";   // of hetccl: host or host-lib
  std::string interface = "lo";  // of libraries that must be told
  std::string directory;         // which all ranks share, for a first meeting
};

// Null: `why` says what is missing.
std::unique_ptr<Peer> make_peer(const World& world, const PeerArguments& arguments,
                                std::string* why);

}  // namespace hetccl::bench

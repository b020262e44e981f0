// hetccl, on ordinary memory or on memory from hetcclMemAlloc.
#include <list>

#include "bench/buffers.h"
#include "bench/compare/peer.h"
#include "bench/library.h"

namespace hetccl::bench {
namespace {

class HetcclPeer final : public Peer {
 public:
  explicit HetcclPeer(const MemoryKind& memory) : memory_(memory) {}
  bool start(const World& world) {
    Library::Setup setup;
    setup.memory = &memory_;
    return library_.start(world, setup);
  }
  std::string version() const override {
    int version = 0;
    (void)hetcclGetVersion(&version);
    return "hetccl " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) +
           "." + std::to_string(version % 100);
  }
  std::byte* allocate(size_t bytes) override {
    if (!memory_.of_library) return Peer::allocate(bytes);
    buffers_.emplace_back();
    return buffers_.back().allocate(bytes, memory_, -1).empty() ? buffers_.back().data() : nullptr;
  }
  std::string run(const Call& call) override { return library_.run(call); }
  std::string algorithm() const override { return library_.last_algorithm(); }

 private:
  MemoryKind memory_;
  Library library_;
  std::list<Memory> buffers_;
};

}  // namespace

std::unique_ptr<Peer> make_peer(const World& world, const PeerArguments& arguments,
                                std::string* why) {
  std::vector<MemoryKind> kinds;
  *why = deal_memory({arguments.memory}, world.ranks(), &kinds);
  if (why->empty() && kinds[0].on_device()) *why = "--memory: host or host-lib";
  if (!why->empty()) return nullptr;
  auto peer = std::make_unique<HetcclPeer>(kinds[0]);
  if (peer->start(world)) return peer;
  *why = "hetccl did not start";
  return nullptr;
}

}  // namespace hetccl::bench

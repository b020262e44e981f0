// An MPI library's own collectives.
#include <mpi.h>

#include "bench/compare/peer.h"
#include "bench/mpi_peer.h"

namespace hetccl::bench {
namespace {

class MpiPeer final : public Peer {
 public:
  std::string version() const override {
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    MPI_Get_library_version(text, &length);
    const std::string all(text, static_cast<size_t>(length));
    return all.substr(0, std::min(all.find_first_of("\n,"), all.size()));
  }
  std::string run(const Call& call) override {
    return run_mpi(call) ? "" : "MPI's own " + std::string(name_of(call.kind())) + " failed";
  }
  const std::byte* result(const Call& call) const override { return mpi_result(call); }
};

}  // namespace

std::unique_ptr<Peer> make_peer(const World&, const PeerArguments&, std::string*) {
  return std::make_unique<MpiPeer>();
}

}  // namespace hetccl::bench

// Gloo over TCP, which meets through files. Its reduce-scatter is an algorithm that works in place
// only, which is no common measure.
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <exception>

#include "bench/compare/peer.h"

namespace hetccl::bench {
namespace {

void (*const kSum)(void*, const void*, const void*, size_t) = &gloo::sum<float>;

class GlooPeer final : public Peer {
 public:
  explicit GlooPeer(std::shared_ptr<gloo::Context> context) : context_(std::move(context)) {}
  std::string version() const override { return "Gloo"; }
  std::string lacks(Kind kind) const override {
    return kind == Kind::kReduceScatter ? "out of place" : "";
  }
  std::string run(const Call& call) override try {
    auto* send = reinterpret_cast<float*>(const_cast<std::byte*>(call.send()));
    auto* recv = reinterpret_cast<float*>(call.recv());
    const size_t sent = call.sent().total, received = call.received().total;
    switch (call.kind()) {
      case Kind::kAllReduce: {
        gloo::AllreduceOptions options(context_);
        fill(&options, send, sent, recv, received);
        options.setReduceFunction(kSum);
        gloo::allreduce(options);
        break;
      }
      case Kind::kReduce: {
        gloo::ReduceOptions options(context_);
        fill(&options, send, sent, recv, received);
        options.setReduceFunction(kSum);
        options.setRoot(call.root());
        gloo::reduce(options);
        break;
      }
      case Kind::kAllGather: {
        gloo::AllgatherOptions options(context_);
        fill(&options, send, sent, recv, received);
        gloo::allgather(options);
        break;
      }
      case Kind::kAllToAll: {
        gloo::AlltoallOptions options(context_);
        fill(&options, send, sent, recv, received);
        gloo::alltoall(options);
        break;
      }
      case Kind::kBroadcast: {
        gloo::BroadcastOptions options(context_);
        options.setOutput(recv, received);
        options.setRoot(call.root());
        gloo::broadcast(options);
        break;
      }
      default:
        return "not a collective of Gloo's";
    }
    return "";
  } catch (const std::exception& error) {
    return error.what();
  }

 private:
  template <typename Options>
  static void fill(Options* options, float* send, size_t sent, float* recv, size_t received) {
    options->setInput(send, sent);
    options->setOutput(recv, received);
  }
  std::shared_ptr<gloo::Context> context_;
};

}  // namespace

std::unique_ptr<Peer> make_peer(const World& world, const PeerArguments& arguments,
                                std::string* why) try {
  gloo::transport::tcp::attr where;
  where.iface = arguments.interface;
  auto context = std::make_shared<gloo::rendezvous::Context>(world.place().rank, world.ranks());
  gloo::rendezvous::FileStore store(arguments.directory);
  auto device = gloo::transport::tcp::CreateDevice(where);
  context->connectFullMesh(store, device);
  return std::make_unique<GlooPeer>(context);
} catch (const std::exception& error) {
  *why = error.what();
  return nullptr;
}

}  // namespace hetccl::bench

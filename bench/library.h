// hetccl as the tools use it: a communicator over all ranks, and calls on it.
#pragma once

#include <hetccl/hetccl.h>

#include <nlohmann/json.hpp>
#include <string>

#include "bench/call.h"
#include "bench/memory_kind.h"
#include "bench/options.h"
#include "bench/world.h"

namespace hetccl::bench {

class Library {
 public:
  struct Setup {
    std::string algorithm;               // HETCCL_ALGO for this communicator, or empty
    const MemoryKind* memory = nullptr;  // of this rank; null: the library finds its device
    StreamKind stream = StreamKind::kNone;
  };
  // REQUIRES: nothing of the library was called before. False on all ranks: rank 0 has said why.
  bool start(const World& world, const Setup& setup);
  ~Library();

  // The ordinal of this rank's device: the rank among those of its node, modulo the devices.
  int device() const { return device_; }
  // For the memory of a device; null: host memory.
  const Mover* mover() const { return mover_ ? &mover_ : nullptr; }

  // "" or what went wrong, in the library's words. With a stream: complete after wait().
  std::string run(const Call& call) const;
  std::string wait() const;
  std::string last_algorithm() const;
  // What hetccl_perf reports of the run: versions, ranks, links and settings in force.
  nlohmann::json describe(const World& world, const std::string& my_memory) const;
  // One object a rank, in order: rank, host, node, pid, kind, device, and paths, an object a peer.
  nlohmann::json rank_table(const World& world) const;

 private:
  std::string choose_device(const World& world, const MemoryKind& memory);
  std::string make_stream(StreamKind wanted);
  hetcclResult_t run_with_counts(const Call& call) const;

  hetcclComm_t comm_ = nullptr;
  hetcclMemoryKind_t kind_ = hetcclMemoryHost;
  int device_ = -1;
  hetcclStream_t stream_ = nullptr;
  bool native_ = false;  // stream_ is the device's
  Mover mover_;
};

}  // namespace hetccl::bench

// The fabric over UCX. Made once a process and never destroyed: other processes may be reading its
// memory until the very end.
//
// Thread rule: any thread.
#pragma once

#include <memory>
#include <string>

#include "lib/net/fabric.h"
#include "lib/net/ucx_hub.h"

namespace hetccl::net {

class UcxFabric final : public Fabric {
 public:
  UcxFabric(std::unique_ptr<UcxHub> hub, const FabricOptions& options, PutChoice put)
      : hub_(std::move(hub)), options_(options), put_(put) {}

  Result<std::unique_ptr<LaneSetup>> open_lane(int ranks, int rank,
                                               const LaneOptions& options) override;
  bool reaches(hetcclMemoryKind_t kind) const override;
  Result<void*> allocate_shared(size_t bytes) override;
  Status free_shared(void* memory) override;
  std::string describe() const override;

  bool made_with(const FabricOptions& options) const;

 private:
  std::unique_ptr<UcxHub> hub_;
  FabricOptions options_;
  PutChoice put_;
};

}  // namespace hetccl::net

// How a communicator runs calls whose buffers are not all host memory. Where the buffers are is
// each rank's own affair: it decides only who reduces and how bytes come to the lane, never what
// travels.
//
//   on the device   all buffers are memory of one device and the call is large: chunks are staged
//                   and reduced by the device, overlapped (run/staging_lane.h)
//   on the host     small calls, and buffers of several kinds: what is read is copied to the host
//                   before the call and what is written is copied back after it
//
// Thread rule: one thread at a time, the one that runs the communicator's call.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "lib/call.h"
#include "lib/program_cache.h"
#include "lib/run/execution.h"
#include "lib/run/fetching_lane.h"
#include "lib/run/port.h"
#include "lib/run/staging_lane.h"
#include "lib/scratch.h"

namespace hetccl {

// Whose memory the buffers of a call are; null: the host's.
struct Where {
  device::Accelerator* send = nullptr;
  device::Accelerator* recv = nullptr;

  bool host() const { return send == nullptr && recv == nullptr; }
  device::Accelerator* any() const { return recv != nullptr ? recv : send; }
};
// Buffers that this rank does not use are not looked at. hetcclInvalidArgument: memory of a device
// that this process cannot use, or a range that leaves its allocation.
Result<Where> locate(const Call& call, const Extents& extents);
// Of one buffer; `call` and `name` are for the error.
Result<device::Accelerator*> locate(const std::string& call, const char* name, const void* pointer,
                                    size_t bytes);

class DeviceRun {
 public:
  struct Options {
    net::Lane* lane;                     // null: one rank
    std::vector<run::DevicePath> paths;  // to all ranks
    size_t depth;
    size_t chunk_bytes;
    size_t staging_bytes;
    size_t host_below;
  };
  explicit DeviceRun(const Options& options) : o_(options) {}

  // The lane of runs on the host: the one below, or one that fetches what devices of
  // `accelerator`'s kind name. To be called once, before any run.
  Result<net::Lane*> open_host_lane(device::Accelerator* accelerator);
  void set_on_host(run::Execution* execution) { on_host_ = execution; }

  // Sets `buffers` to what is to be run on. Copies may be under way: see prepared().
  Status begin(const Where& where, const Call& call, const CachedProgram& program,
               run::Buffers* buffers);
  Result<bool> prepared();
  run::Execution* execution();
  net::Lane* lane();
  // After the execution is done: true once nothing is under way on the device.
  Result<bool> finished();
  // What devices do to the buffers of the call has ended; the lane below is gone.
  void abandon();

 private:
  struct Device {
    std::unique_ptr<run::Port> port;
    std::unique_ptr<run::PeerMemory> memory;
    std::unique_ptr<run::StagingLane> lane;
    std::unique_ptr<run::Execution> execution;
  };
  // A copy of one buffer, or of two that overlap, in host memory.
  struct Shadow {
    Scratch memory;
    Device* device = nullptr;  // null: not in use
    const std::byte* original = nullptr;
    std::byte* at = nullptr;
  };

  Result<Device*> open(device::Accelerator* accelerator);
  std::vector<run::DevicePath> paths_for(device::Accelerator* accelerator) const;
  Status begin_on_device(Device* device, const Call& call, const CachedProgram& program,
                         run::Buffers* buffers);
  Status begin_on_host(const Where& where, const Call& call, const CachedProgram& program,
                       run::Buffers* buffers);
  Status make_shadow(Shadow* shadow, device::Accelerator* accelerator, const void* original,
                     size_t bytes);
  Status copy_back();
  Result<bool> shadows_idle();

  const Options o_;
  run::Execution* on_host_ = nullptr;
  net::Lane* host_lane_ = nullptr;
  device::Kind named_kind_ = hetcclMemoryHost;  // of memory that peers may name
  std::map<device::Accelerator*, Device> devices_;
  std::unique_ptr<run::FetchingLane> fetching_;
  Device* current_ = nullptr;  // the one that runs the call; null: the host does
  Shadow send_, recv_;
  struct Range {
    size_t offset, bytes;
  };
  std::vector<Range> written_;  // of recv_
  bool copied_back_ = false;
  bool said_host_ = false;  // that operators made at run time are run by the host
};

}  // namespace hetccl

// The one UCX context and worker of the process, with two addresses: the full one for peers that
// share memory, the network-only one for all others, so that UCX never shares memory behind the
// back of ranks that were told to be on different nodes.
//
// Thread rule: the worker belongs to whoever holds mutex(); every UCX call in the library is made
// with it held. Addresses are constant.
#pragma once

#include <ucp/api/ucp.h>

#include <memory>
#include <mutex>
#include <string>

#include "lib/base/status.h"

namespace hetccl::net {

struct WorkerOptions {
  std::string devices;        // UCX's names of network devices, comma-separated; empty: its choice
  size_t segment_bytes = 0;   // TCP segments; 0: UCX's own setting
  bool keep_signals = false;  // leave UCX's signal handlers in place
};

class UcxWorker {
 public:
  static Result<std::unique_ptr<UcxWorker>> create(const WorkerOptions& options);
  ~UcxWorker();
  UcxWorker(const UcxWorker&) = delete;
  UcxWorker& operator=(const UcxWorker&) = delete;

  std::mutex& mutex() { return mutex_; }
  ucp_context_h context() const { return context_; }
  ucp_worker_h handle() const { return worker_; }
  const std::string& full_address() const { return full_address_; }
  const std::string& network_address() const { return network_address_; }

  // An endpoint for a peer's full address (no error mode: shared memory has none) or for its
  // network-only one (peer errors are reported to `on_error`). Both ends must choose alike.
  Result<ucp_ep_h> connect_local(const std::string& full_address);
  Result<ucp_ep_h> connect_remote(const std::string& network_address, ucp_err_handler_cb_t on_error,
                                  void* context);

 private:
  UcxWorker() = default;
  Status query_address(unsigned flags, std::string* address);

  std::mutex mutex_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  std::string full_address_;
  std::string network_address_;
};

// Sends UCX's messages through the library's log. Once per process.
void route_ucx_log();

// The transports of an endpoint, most important first: "tcp/eth0 rc_mlx5/mlx5_0:1".
struct EndpointLanes {
  std::string transports;   // distinct, comma-separated: "tcp" or "rc_mlx5,tcp"
  bool native_put = false;  // some remote-memory lane is not emulated by active messages
};
EndpointLanes inspect_endpoint(ucp_ep_h endpoint);

}  // namespace hetccl::net

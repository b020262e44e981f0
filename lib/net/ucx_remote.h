// The connection to a process that does not share memory with this one: one endpoint, used by all
// lanes to that process, kept while the process lives.
//
// Thread rule: failed() from any thread; all else under the worker's lock.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "lib/base/status.h"
#include "lib/net/net_card.h"
#include "lib/net/ucx_worker.h"

namespace hetccl::net {

class UcxRemote {
 public:
  static Result<std::shared_ptr<UcxRemote>> connect(UcxWorker* worker, const Card& card);
  ~UcxRemote();  // takes the worker's lock

  ucp_ep_h endpoint() const { return endpoint_; }
  const EndpointLanes& lanes() const { return lanes_; }

  bool failed() const { return failed_.load(std::memory_order_acquire); }
  const std::string& reason() const { return reason_; }  // once failed
  void fail(ucs_status_t status);
  // Ends everything under way by force. The connection has failed from here on.
  void cut();

 private:
  explicit UcxRemote(UcxWorker* worker) : worker_(worker) {}
  void close_by_force();

  UcxWorker* worker_;
  ucp_ep_h endpoint_ = nullptr;
  EndpointLanes lanes_;
  uint64_t pid_ = 0;
  std::string reason_;
  std::atomic<bool> failed_{false};
};

// UCX requests that are over together. Started under the worker's lock; busy() from any thread.
class UcxOperation {
 public:
  // Before the first start. `requests` counts all that are under way, under the worker's lock.
  void bind(UcxRemote* remote, size_t* requests) {
    remote_ = remote;
    requests_ = requests;
  }
  ucp_request_param_t params();
  // Takes what UCX returned. False: the connection has failed.
  bool started(ucs_status_ptr_t request);
  bool busy() const { return open_.load(std::memory_order_acquire) != 0; }

 private:
  static void on_done(void* request, ucs_status_t status, void* self);

  UcxRemote* remote_ = nullptr;
  size_t* requests_ = nullptr;
  std::atomic<unsigned> open_{0};
};

}  // namespace hetccl::net

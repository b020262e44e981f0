#include "lib/net/ucx_remote.h"

#include "lib/base/log.h"

namespace hetccl::net {

Result<std::shared_ptr<UcxRemote>> UcxRemote::connect(UcxWorker* worker, const Card& card) {
  std::shared_ptr<UcxRemote> remote(new UcxRemote(worker));
  remote->pid_ = card.pid;
  auto on_error = [](void* self, ucp_ep_h, ucs_status_t status) {
    static_cast<UcxRemote*>(self)->fail(status);
  };
  Status failure;
  {
    std::lock_guard lock(worker->mutex());
    Result<ucp_ep_h> endpoint =
        worker->connect_remote(card.network_address, on_error, remote.get());
    if (endpoint.ok()) {
      remote->endpoint_ = *endpoint;
      remote->lanes_ = inspect_endpoint(*endpoint);
    } else {
      failure = endpoint.status();
    }
  }
  if (!failure.ok()) return failure;
  return remote;
}

UcxRemote::~UcxRemote() {
  std::lock_guard lock(worker_->mutex());
  close_by_force();
}

void UcxRemote::fail(ucs_status_t status) {
  if (failed()) return;
  reason_ = "the connection to process " + std::to_string(pid_) +
            " is lost: " + ucs_status_string(status);
  failed_.store(true, std::memory_order_release);
  log::info(reason_);
}

void UcxRemote::cut() {
  fail(UCS_ERR_CANCELED);
  close_by_force();
}

void UcxRemote::close_by_force() {
  if (endpoint_ == nullptr) return;
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  params.flags = UCP_EP_CLOSE_FLAG_FORCE;
  ucs_status_ptr_t request = ucp_ep_close_nbx(endpoint_, &params);
  endpoint_ = nullptr;
  // The request completes in some later progress; UCX keeps it until then.
  if (UCS_PTR_IS_PTR(request)) ucp_request_free(request);
}

ucp_request_param_t UcxOperation::params() {
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  params.cb.send = on_done;
  params.user_data = this;
  return params;
}

bool UcxOperation::started(ucs_status_ptr_t request) {
  if (UCS_PTR_IS_ERR(request)) {
    remote_->fail(UCS_PTR_STATUS(request));
    return false;
  }
  if (request != nullptr) {
    open_.fetch_add(1, std::memory_order_relaxed);
    ++*requests_;
  }
  return true;
}

void UcxOperation::on_done(void* request, ucs_status_t status, void* self) {
  auto* operation = static_cast<UcxOperation*>(self);
  if (status != UCS_OK) operation->remote_->fail(status);
  --*operation->requests_;
  ucp_request_free(request);
  operation->open_.fetch_sub(1, std::memory_order_release);
}

}  // namespace hetccl::net

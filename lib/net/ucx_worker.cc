#include "lib/net/ucx_worker.h"

#include <stdio.h>
#include <stdlib.h>
#include <ucs/debug/log_def.h>

#include <array>
#include <cstdarg>
#include <sstream>
#include <string_view>

#include "lib/base/log.h"
#include "lib/base/settings.h"
#include "lib/net/signals.h"

namespace hetccl::net {
namespace {

ucs_log_func_rc_t log_message(const char*, unsigned, const char*, ucs_log_level_t level,
                              const ucs_log_component_config_t*, const char* format,
                              va_list arguments) {
  // UCX aborts after a fatal message: let it say why.
  if (level == UCS_LOG_LEVEL_FATAL) return UCS_LOG_FUNC_RC_CONTINUE;
  log::Level ours = level <= UCS_LOG_LEVEL_WARN   ? log::Level::kWarn
                    : level <= UCS_LOG_LEVEL_INFO ? log::Level::kInfo
                                                  : log::Level::kTrace;
  if (!log::enabled(ours)) return UCS_LOG_FUNC_RC_STOP;
  std::array<char, 512> text;
  va_list copy;
  va_copy(copy, arguments);
  vsnprintf(text.data(), text.size(), format, copy);
  va_end(copy);
  log::write(ours, std::string("ucx: ") + text.data());
  return UCS_LOG_FUNC_RC_STOP;
}

Status ucx_error(const char* what, ucs_status_t status) {
  return system_error(std::string(what) + ": " + ucs_status_string(status));
}

void modify(ucp_config_t* config, const char* name, const std::string& value) {
  ucs_status_t status = ucp_config_modify(config, name, value.c_str());
  if (status != UCS_OK) {
    log::warn(std::string("ucx does not take ") + name + "=" + value + ": " +
              ucs_status_string(status));
  }
}

}  // namespace

void route_ucx_log() {
  static std::once_flag once;
  std::call_once(once, [] { ucs_log_push_handler(log_message); });
}

Result<std::unique_ptr<UcxWorker>> UcxWorker::create(const WorkerOptions& options) {
  if (!options.keep_signals) release_ucx_signals();
  route_ucx_log();
  std::unique_ptr<UcxWorker> made(new UcxWorker);
  ucp_config_t* config = nullptr;
  ucs_status_t status = ucp_config_read(nullptr, nullptr, &config);
  if (status != UCS_OK) return ucx_error("cannot read ucx's configuration", status);
  if (!options.devices.empty()) modify(config, "NET_DEVICES", options.devices);
  if (options.segment_bytes != 0) {
    // The tables of UCX's transports are matched without their prefix; only TCP has these names.
    std::string bytes = std::to_string(options.segment_bytes);
    if (!is_set_in_environment("UCX_TCP_TX_SEG_SIZE")) modify(config, "TX_SEG_SIZE", bytes);
    if (!is_set_in_environment("UCX_TCP_RX_SEG_SIZE")) modify(config, "RX_SEG_SIZE", bytes);
  }
  // System V memory is removed with its last user; a file in /dev/shm would outlive a killed
  // process, and may not fit there.
  modify(config, "ALLOC_PRIO", "md:sysv,mmap,heap");
  if (!is_set_in_environment("UCX_TLS")) modify(config, "TLS", "^posix");
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME;
  params.features = UCP_FEATURE_RMA | UCP_FEATURE_AM;
  params.name = "hetccl";
  status = ucp_init(&params, config, &made->context_);
  ucp_config_release(config);
  if (status != UCS_OK) {
    return ucx_error("cannot start ucx (check UCX_TLS and UCX_NET_DEVICES)", status);
  }
  ucp_worker_params_t worker{};
  worker.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  worker.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  status = ucp_worker_create(made->context_, &worker, &made->worker_);
  if (status != UCS_OK) {
    return ucx_error("cannot make a ucx worker (check the limits on open files and memory)",
                     status);
  }
  Status queried = made->query_address(0, &made->full_address_);
  if (queried.ok()) {
    queried = made->query_address(UCP_WORKER_ADDRESS_FLAG_NET_ONLY, &made->network_address_);
  }
  if (!queried.ok()) return queried;
  return made;
}

UcxWorker::~UcxWorker() {
  if (worker_ != nullptr) ucp_worker_destroy(worker_);
  if (context_ != nullptr) ucp_cleanup(context_);
}

Status UcxWorker::query_address(unsigned flags, std::string* address) {
  ucp_worker_attr_t attributes{};
  attributes.field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS | UCP_WORKER_ATTR_FIELD_ADDRESS_FLAGS;
  attributes.address_flags = flags;
  ucs_status_t status = ucp_worker_query(worker_, &attributes);
  if (status != UCS_OK) return ucx_error("cannot get the ucx worker's address", status);
  address->assign(reinterpret_cast<const char*>(attributes.address), attributes.address_length);
  ucp_worker_release_address(worker_, attributes.address);
  return {};
}

Result<ucp_ep_h> UcxWorker::connect_local(const std::string& full_address) {
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
  params.address = reinterpret_cast<const ucp_address_t*>(full_address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_NONE;
  ucp_ep_h endpoint = nullptr;
  ucs_status_t status = ucp_ep_create(worker_, &params, &endpoint);
  if (status != UCS_OK) return ucx_error("cannot reach a rank of this node", status);
  return endpoint;
}

Result<ucp_ep_h> UcxWorker::connect_remote(const std::string& network_address,
                                           ucp_err_handler_cb_t on_error, void* context) {
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(network_address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = on_error;
  params.err_handler.arg = context;
  ucp_ep_h endpoint = nullptr;
  ucs_status_t status = ucp_ep_create(worker_, &params, &endpoint);
  if (status != UCS_OK) {
    return ucx_error("cannot reach a rank of another node (check HETCCL_SOCKET_IFNAME and UCX_TLS)",
                     status);
  }
  return endpoint;
}

EndpointLanes inspect_endpoint(ucp_ep_h endpoint) {
  EndpointLanes found;
  char* text = nullptr;
  size_t length = 0;
  FILE* stream = open_memstream(&text, &length);
  if (stream == nullptr) return found;
  ucp_ep_print_info(endpoint, stream);
  fclose(stream);
  // "#   lane[0]:  2:tcp/lo.0 md[1]   -> md[1]/tcp/sysdev[255] rma_bw#0 am am_bw#0 wireup"
  std::istringstream lines{std::string(text, length)};
  free(text);
  for (std::string line; std::getline(lines, line);) {
    size_t lane = line.find("lane[");
    size_t slash = line.find('/', lane == std::string::npos ? 0 : lane);
    if (lane == std::string::npos || slash == std::string::npos) continue;
    size_t start = line.rfind(':', slash);
    if (start == std::string::npos || start < lane) continue;
    std::string transport = line.substr(start + 1, slash - start - 1);
    if (("," + found.transports + ",").find("," + transport + ",") == std::string::npos) {
      found.transports += (found.transports.empty() ? "" : ",") + transport;
    }
    bool remote_memory = line.find(" rma", slash) != std::string::npos;
    for (std::string_view native : {"rc", "dc", "ugni"}) {
      found.native_put |= remote_memory && transport.starts_with(native);
    }
  }
  return found;
}

}  // namespace hetccl::net

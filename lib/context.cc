#include "lib/context.h"

namespace hetccl {

Context& Context::get() {
  static Context* const context = new Context;
  return *context;
}

Result<net::Fabric*> Context::fabric(const Settings& settings) {
  std::lock_guard lock(mutex_);
  if (fabric_ == nullptr) {
    auto made = net::Fabric::create(
        {settings.socket_ifname, settings.tcp_segment, settings.net_put, settings.ucx_signals});
    if (!made.ok()) return made.status();
    fabric_ = *made;
  }
  return fabric_;
}

run::ProgressThread& Context::progress_thread() {
  std::lock_guard lock(mutex_);
  if (progress_thread_ == nullptr) progress_thread_ = new run::ProgressThread;
  return *progress_thread_;
}

run::StagingPool& Context::staging_pool(size_t bytes) {
  std::lock_guard lock(mutex_);
  if (staging_pool_ == nullptr) {
    // Whoever stages has a lane, and hence the fabric.
    staging_pool_ = new run::StagingPool(
        bytes, [fabric = fabric_](size_t size) { return fabric->allocate_shared(size); });
  }
  return *staging_pool_;
}

void Context::add_stream(Stream* stream) {
  std::lock_guard lock(mutex_);
  streams_.insert(stream);
}

bool Context::remove_stream(Stream* stream) {
  std::lock_guard lock(mutex_);
  return streams_.erase(stream) != 0;
}

bool Context::has_stream(const void* handle) {
  std::lock_guard lock(mutex_);
  return streams_.count(handle) != 0;
}

}  // namespace hetccl

#include "lib/run/fetching_lane.h"

#include "lib/run/staging_lane.h"

namespace hetccl::run {

FetchingLane::~FetchingLane() {
  port_->synchronize();
  for (const Fetch& fetch : fetches_) {
    if (fetch.memory != nullptr) (void)port_->accelerator().free_host(fetch.memory).ok();
  }
}

bool FetchingLane::start(int peer, Fetch* fetch, const net::Received& message) {
  const auto mapped = memory_->map(peer, {message.data, message.bytes});
  if (!mapped.ok()) {
    failure_ = mapped.status();
    return false;
  }
  if (mapped->bytes > max_message()) {
    failure_ = internal_error("rank " + std::to_string(peer) + " names " +
                              std::to_string(mapped->bytes) + " bytes in one message");
    return false;
  }
  if (fetch->memory == nullptr) {
    const auto memory = port_->accelerator().allocate_host(max_message());
    if (!memory.ok()) {
      failure_ = memory.status();
      return false;
    }
    fetch->memory = static_cast<std::byte*>(*memory);
  }
  fetch->bytes = mapped->bytes;
  fetch->copied = port_->copy_out(fetch->memory, {{mapped->data, mapped->bytes}}, nullptr);
  fetch->active = true;
  return true;
}

bool FetchingLane::try_receive(int peer, unsigned ahead, net::Received* message) {
  if (!below_->try_receive(peer, ahead, message)) return false;
  if (message->form != kNamesMemory) return true;
  Fetch& fetch = fetches_[peer];
  if (ahead != 0 || (!fetch.active && !start(peer, &fetch, *message))) return false;
  if (!port_->status().ok() || !port_->passed(fetch.copied)) return false;
  *message = {fetch.memory, fetch.bytes, message->signature};
  return true;
}

void FetchingLane::release(int peer) {
  fetches_[peer].active = false;
  below_->release(peer);
}

Result<bool> FetchingLane::progress() {
  if (!failure_.ok()) return failure_;
  if (!port_->status().ok()) return port_->status();
  return below_->progress();
}

}  // namespace hetccl::run

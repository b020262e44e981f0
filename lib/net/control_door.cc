#include "lib/net/control_door.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>

#include "lib/base/log.h"

namespace hetccl::net {
namespace {

// Beyond this the oldest is dropped.
constexpr size_t kMaxStrangers = 64;
// Fewer than the above, so that those that have come are heard before they are dropped.
constexpr int kAcceptsPerEvent = 16;
constexpr std::chrono::milliseconds kStrangerLimit{10'000};
constexpr std::chrono::milliseconds kPause{500};

}  // namespace

void ControlDoor::open(OnHello on_hello) {
  on_hello_ = std::move(on_hello);
  token_ = thread_->watch(listener_.fd.get(), EPOLLIN, [this](uint32_t) { on_accept(); });
}

void ControlDoor::close() {
  if (token_ != 0 && listener_.fd.valid()) thread_->forget(token_, listener_.fd.get());
  listener_.fd.reset();
  for (auto& link : strangers_) link->close();
  strangers_.clear();
}

void ControlDoor::on_accept() {
  for (int i = 0; i < kAcceptsPerEvent; ++i) {
    Fd fd = accept_connection(listener_.fd.get());
    if (fd.valid()) {
      admit(std::move(fd));
      continue;
    }
    if (errno == ECONNABORTED || errno == EINTR) continue;
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) pause();
    return;
  }
}

// The connection stays in the queue: asking again at once would only burn time.
void ControlDoor::pause() {
  log::warn("control plane: cannot accept a connection: " + error_text(errno) +
            " (limit of open files: ulimit -n)");
  thread_->change(token_, listener_.fd.get(), 0);
  thread_->after(kPause, [weak = weak_from_this()] {
    auto self = weak.lock();
    if (self == nullptr || !self->listener_.fd.valid()) return;
    self->thread_->change(self->token_, self->listener_.fd.get(), EPOLLIN);
  });
}

void ControlDoor::admit(Fd fd) {
  tune_connection(fd.get(), timeout_s_);
  // The callbacks need the link, which is not there yet.
  auto where = std::make_shared<ControlLink*>(nullptr);
  ControlLink::Callbacks callbacks;
  callbacks.on_frame = [this, where](Frame& frame) { on_first_frame(*where, frame); };
  callbacks.on_closed = [this, where](int, const std::string&) { remove(*where); };
  auto link =
      ControlLink::open(thread_, std::move(fd), false, kMaxStrangerPayload, std::move(callbacks));
  *where = link.get();
  strangers_.push_back(link);
  if (strangers_.size() > kMaxStrangers) remove(strangers_.front().get())->close();
  thread_->after(kStrangerLimit, [weak = weak_from_this(), late = std::weak_ptr(link)] {
    auto self = weak.lock();
    auto stranger = late.lock();
    if (self == nullptr || stranger == nullptr) return;
    if (auto found = self->remove(stranger.get())) found->close();
  });
}

std::shared_ptr<ControlLink> ControlDoor::remove(ControlLink* link) {
  auto found = std::find_if(strangers_.begin(), strangers_.end(),
                            [&](const auto& stranger) { return stranger.get() == link; });
  if (found == strangers_.end()) return nullptr;
  auto removed = std::move(*found);
  strangers_.erase(found);
  return removed;
}

void ControlDoor::on_first_frame(ControlLink* link, Frame& frame) {
  const auto self = shared_from_this();
  const auto stranger = remove(link);
  if (stranger == nullptr) return;
  if (frame.type != FrameType::kHello || !on_hello_(stranger, frame)) stranger->close();
}

}  // namespace hetccl::net

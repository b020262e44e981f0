#include "lib/net/control_link.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace hetccl::net {
namespace {

constexpr size_t kReadBytes = 64 * 1024;
// One link must not keep the others waiting: the rest is read at the next event.
constexpr int kReadsPerEvent = 64;

}  // namespace

std::shared_ptr<ControlLink> ControlLink::open(ControlThread* thread, Fd fd, bool connecting,
                                               size_t max_payload, Callbacks callbacks) {
  auto link = std::make_shared<ControlLink>(thread, std::move(fd), connecting, max_payload,
                                            std::move(callbacks));
  link->events_ = connecting ? EPOLLOUT : EPOLLIN;
  link->token_ = thread->watch(link->fd_.get(), link->events_,
                               [weak = std::weak_ptr<ControlLink>(link)](uint32_t events) {
                                 if (auto self = weak.lock()) self->on_event(events);
                               });
  return link;
}

ControlLink::ControlLink(ControlThread* thread, Fd fd, bool connecting, size_t max_payload,
                         Callbacks callbacks)
    : thread_(thread),
      fd_(std::move(fd)),
      connecting_(connecting),
      parser_(max_payload),
      callbacks_(std::make_shared<Callbacks>(std::move(callbacks))) {}

void ControlLink::close() {
  if (!fd_.valid()) return;
  thread_->forget(token_, fd_.get());
  fd_.reset();
  output_.clear();
}

void ControlLink::fail(int error, const std::string& why) {
  if (!fd_.valid()) return;
  close();
  const auto callbacks = callbacks_;
  if (callbacks->on_closed) callbacks->on_closed(error, why);
}

void ControlLink::send(EncodedFrame frame) {
  if (!fd_.valid()) return;
  output_.push_back(std::move(frame));
  // An error of writing is left to the next event, so that callers need not expect callbacks.
  if (!connecting_ && output_.size() == 1) write_output();
  update_events();
}

void ControlLink::update_events() {
  if (!fd_.valid()) return;
  const uint32_t wanted = connecting_ ? EPOLLOUT : output_.empty() ? EPOLLIN : EPOLLIN | EPOLLOUT;
  if (wanted == events_) return;
  events_ = wanted;
  thread_->change(token_, fd_.get(), wanted);
}

void ControlLink::write_output() {
  while (!output_.empty()) {
    std::array<iovec, 16> pieces;
    size_t count = 0;
    for (; count < pieces.size() && count < output_.size(); ++count) {
      const std::string& bytes = *output_[count];
      const size_t skip = count == 0 ? written_ : 0;
      pieces[count] = {const_cast<char*>(bytes.data()) + skip, bytes.size() - skip};
    }
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = count;
    const ssize_t sent = ::sendmsg(fd_.get(), &message, MSG_NOSIGNAL);
    if (sent < 0) return;
    written_ += static_cast<size_t>(sent);
    while (!output_.empty() && written_ >= output_.front()->size()) {
      written_ -= output_.front()->size();
      output_.pop_front();
    }
  }
}

void ControlLink::on_event(uint32_t events) {
  if (connecting_) {
    const int error = connection_error(fd_.get());
    if (error != 0) return fail(error, error_text(error));
    connecting_ = false;
    const auto callbacks = callbacks_;
    if (callbacks->on_connected) callbacks->on_connected();
    update_events();
  }
  if (!fd_.valid()) return;
  if ((events & EPOLLOUT) != 0) {
    const bool waited = !output_.empty();
    write_output();
    update_events();
    const auto callbacks = callbacks_;
    if (waited && output_.empty() && callbacks->on_drained) callbacks->on_drained();
  }
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) read_input();
}

void ControlLink::drain_input() {
  auto self = shared_from_this();
  if (fd_.valid() && !connecting_) read_input();
}

void ControlLink::read_input() {
  std::array<char, kReadBytes> buffer;
  for (int i = 0; i < kReadsPerEvent && fd_.valid(); ++i) {
    const ssize_t got = ::recv(fd_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got == 0) return fail(0, "connection closed");
    if (got < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return;
      const int error = errno;
      return fail(error, error_text(error));
    }
    parser_.feed(buffer.data(), static_cast<size_t>(got));
    Frame frame;
    while (fd_.valid() && parser_.next(&frame)) {
      const auto callbacks = callbacks_;
      callbacks->on_frame(frame);
    }
    if (parser_.broken()) return fail(EPROTO, "malformed message");
    if (static_cast<size_t>(got) < buffer.size()) return;
  }
}

}  // namespace hetccl::net

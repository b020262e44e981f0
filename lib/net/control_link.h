// A connection that carries frames: a socket, what has been read from it, and what waits to be
// written. Closes itself at end of file, on an error and at the first malformed frame.
//
// Thread rule: the control thread only. Callbacks may close or drop the link they come from.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "lib/net/control_thread.h"
#include "lib/net/frames.h"
#include "lib/net/sockets.h"

namespace hetccl::net {

class ControlLink : public std::enable_shared_from_this<ControlLink> {
 public:
  struct Callbacks {
    std::function<void()> on_connected;  // of a connection started here
    std::function<void(Frame&)> on_frame;
    std::function<void(int error, const std::string& why)> on_closed;  // not after close()
    std::function<void()> on_drained;  // nothing waits to be written any more
  };

  // `connecting`: the socket's connect is under way.
  static std::shared_ptr<ControlLink> open(ControlThread* thread, Fd fd, bool connecting,
                                           size_t max_payload, Callbacks callbacks);
  ControlLink(ControlThread* thread, Fd fd, bool connecting, size_t max_payload,
              Callbacks callbacks);
  ~ControlLink() { close(); }

  void set_max_payload(size_t bytes) { parser_.set_max_payload(bytes); }
  void set_callbacks(Callbacks callbacks) {
    callbacks_ = std::make_shared<Callbacks>(std::move(callbacks));
  }
  // Writes as much as the socket takes at once, so that it is on its way when this returns.
  void send(EncodedFrame frame);
  // Handles all that has arrived, as if it had been polled.
  void drain_input();
  bool is_open() const { return fd_.valid(); }
  bool drained() const { return output_.empty(); }
  void close();

 private:
  void on_event(uint32_t events);
  void read_input();
  void write_output();
  void update_events();
  void fail(int error, const std::string& why);

  ControlThread* thread_;
  Fd fd_;
  bool connecting_;
  FrameParser parser_;
  std::shared_ptr<Callbacks> callbacks_;  // kept while one runs
  uint64_t token_ = 0;
  uint32_t events_ = 0;
  std::deque<EncodedFrame> output_;
  size_t written_ = 0;  // of the first in output_
};

}  // namespace hetccl::net

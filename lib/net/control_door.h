// A listening socket and whoever knocks there: connections whose first frame has not come yet. They
// are few, short-lived and may send little, so that strangers do no harm.
//
// Thread rule: the control thread only.
#pragma once

#include <deque>
#include <functional>
#include <memory>

#include "lib/net/control_link.h"
#include "lib/net/control_thread.h"
#include "lib/net/sockets.h"

namespace hetccl::net {

class ControlDoor : public std::enable_shared_from_this<ControlDoor> {
 public:
  // Judges the first frame. True: the link is taken over, with callbacks of the new owner; false:
  // the door closes it.
  using OnHello = std::function<bool(const std::shared_ptr<ControlLink>& link, Frame& hello)>;

  ControlDoor(ControlThread* thread, Listener listener, double timeout_s)
      : thread_(thread), listener_(std::move(listener)), timeout_s_(timeout_s) {}
  ~ControlDoor() { close(); }

  void open(OnHello on_hello);
  void close();

 private:
  void on_accept();
  void admit(Fd fd);
  void pause();
  void on_first_frame(ControlLink* link, Frame& frame);
  std::shared_ptr<ControlLink> remove(ControlLink* link);

  ControlThread* thread_;
  Listener listener_;
  double timeout_s_;
  OnHello on_hello_;
  uint64_t token_ = 0;
  std::deque<std::shared_ptr<ControlLink>> strangers_;
};

}  // namespace hetccl::net

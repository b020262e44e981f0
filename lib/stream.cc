#include "lib/stream.h"

#include "lib/stream_call.h"

namespace hetccl {

Status Stream::synchronize() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return queue_.empty(); });
  return std::exchange(first_error_, Status());
}

hetcclResult_t Stream::query() {
  std::lock_guard lock(mutex_);
  if (!queue_.empty()) return hetcclInProgress;
  return first_error_.code();
}

bool StreamCall::is_first() {
  {
    std::lock_guard lock(communicator_->queue_mutex_);
    if (communicator_->queue_.front() != this) return false;
  }
  if (stream_ == nullptr) return true;
  std::lock_guard lock(stream_->mutex_);
  return stream_->queue_.front() == this;
}

// False: not yet.
Result<bool> StreamCall::start() {
  if (!is_first()) return false;
  if (!communicator_->failed_) {
    const Result<bool> turn = turn_.has_come();
    if (!turn.ok()) {
      communicator_->broken(turn.status());
    } else if (!*turn) {
      return false;
    }
  }
  if (Status s = communicator_->begin(prepared_); !s.ok()) return s;
  started_ = true;
  return true;
}

run::Task::Step StreamCall::poll() {
  if (!started_) {
    const Result<bool> started = start();
    if (!started.ok()) {
      finish(started.status());
      return Step::kDone;
    }
    if (!*started) return Step::kIdle;
  }
  Status status;
  switch (communicator_->step(&status)) {
    case Communicator::Turn::kIdle:
      return Step::kIdle;
    case Communicator::Turn::kMoved:
      return Step::kMoved;
    case Communicator::Turn::kDone:
      break;
  }
  finish(status);
  return Step::kDone;
}

// The communicator may be freed as soon as its queue is empty, and the stream likewise; so each is
// told last of all that it holds, under its lock.
void StreamCall::finish(const Status& status) {
  communicator_->end_call(status);
  {
    std::lock_guard lock(communicator_->queue_mutex_);
    communicator_->queue_.pop_front();
    communicator_->queued_.store(communicator_->queue_.size(), std::memory_order_release);
    if (communicator_->queue_.empty()) communicator_->queue_empty_.notify_all();
  }
  if (turn_.waits_for_us()) {
    turn_.end();
    delete this;
    return;
  }
  if (stream_ == nullptr) {
    std::lock_guard lock(mutex_);
    status_ = status;
    done_ = true;
    changed_.notify_all();
    return;  // the waiter's stack holds this object
  }
  {
    std::lock_guard lock(stream_->mutex_);
    stream_->queue_.pop_front();
    if (stream_->first_error_.ok() && !status.ok()) stream_->first_error_ = status;
    stream_->changed_.notify_all();
  }
  delete this;
}

Status StreamCall::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_; });
  return status_;
}

}  // namespace hetccl

#include "lib/batch.h"

#include <algorithm>

namespace hetccl {

void Batch::add(Communicator* communicator, std::unique_ptr<StreamCall> call) {
  members_.push_back({communicator, std::move(call), nullptr});
}

void Batch::add(Communicator* communicator, std::unique_ptr<PointToPoint::Operation> operation) {
  if (started_) communicator->point_to_point().start(operation.get());
  members_.push_back({communicator, nullptr, std::move(operation)});
}

void Batch::join_stream() {
  if (stream_ == nullptr) return;
  std::lock_guard lock(stream_->mutex_);
  stream_->queue_.push_back(this);
}

bool Batch::turn_has_come() {
  if (stream_ != nullptr) {
    std::lock_guard lock(stream_->mutex_);
    return stream_->queue_.front() == this;
  }
  const Result<bool> come = turn_.has_come();
  if (come.ok()) return *come;
  for (Member& member : members_) member.communicator->broken(come.status());
  return true;
}

void Batch::start() {
  started_ = true;
  for (Member& member : members_) {
    if (member.operation) member.communicator->point_to_point().start(member.operation.get());
  }
}

run::Task::Step Batch::poll(Member* member) {
  if (member->call) {
    const Step step = member->call->poll();
    if (step == Step::kDone) note(member->call->wait());
    return step;
  }
  switch (member->communicator->point_to_point().poll(member->operation.get())) {
    case PointToPoint::Turn::kIdle:
      return Step::kIdle;
    case PointToPoint::Turn::kMoved:
      return Step::kMoved;
    case PointToPoint::Turn::kEnded:
      note(member->operation->status);
  }
  return Step::kDone;
}

// Calls of a communicator that has failed end even before their turn.
run::Task::Step Batch::poll() {
  const bool in_turn = started_ || turn_has_come();
  if (in_turn && !started_) start();
  bool moved = false;
  auto ended = [&](Member& member) {
    if (!in_turn && !member.communicator->has_failed()) return false;
    const Step step = poll(&member);
    moved |= step != Step::kIdle;
    return step == Step::kDone;
  };
  members_.erase(std::remove_if(members_.begin(), members_.end(), ended), members_.end());
  if (!in_turn || !members_.empty()) return moved ? Step::kMoved : Step::kIdle;
  if (runs_in_background()) leave_stream();
  return Step::kDone;
}

// The stream may be freed as soon as its queue is empty, so that it is told last.
void Batch::leave_stream() {
  turn_.end();
  if (stream_ != nullptr) {
    std::lock_guard lock(stream_->mutex_);
    stream_->queue_.pop_front();
    if (stream_->first_error_.ok() && !status_.ok()) stream_->first_error_ = status_;
    stream_->changed_.notify_all();
  }
  delete this;
}

}  // namespace hetccl

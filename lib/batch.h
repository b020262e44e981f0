// Calls that have one place in a stream: they begin when it comes, run side by side in whatever
// order the ranks allow, and the place is given up when all of them have ended. The calls of a
// group in one stream are a batch, and so is a Send or Recv by itself.
//
// Thread rule: one thread makes a batch, then one thread polls it.
#pragma once

#include <memory>
#include <vector>

#include "lib/communicator.h"
#include "lib/native_turn.h"
#include "lib/point_to_point.h"
#include "lib/run/progress_thread.h"
#include "lib/stream.h"
#include "lib/stream_call.h"

namespace hetccl {

class Batch final : public run::Task {
 public:
  // Of no stream: begins at once, and its maker polls it.
  Batch() = default;
  explicit Batch(Stream* stream) : stream_(stream) {}
  explicit Batch(NativeTurn turn) : turn_(std::move(turn)) {}

  // What is added has its place in its communicator's queue already.
  void add(Communicator* communicator, std::unique_ptr<StreamCall> call);
  void add(Communicator* communicator, std::unique_ptr<PointToPoint::Operation> operation);
  // Of calls that have not ended.
  bool empty() const { return members_.empty(); }

  // Whether nobody has to wait for it; the batch then belongs to the progress thread and deletes
  // itself when its calls have ended.
  bool runs_in_background() const { return stream_ != nullptr || turn_.waits_for_us(); }
  // Takes the place in the stream.
  void join_stream();

  Step poll() override;
  // The first error so far.
  const Status& status() const { return status_; }
  void note(const Status& status) {
    if (status_.ok()) status_ = status;
  }

 private:
  struct Member {
    Communicator* communicator;
    std::unique_ptr<StreamCall> call;
    std::unique_ptr<PointToPoint::Operation> operation;
  };

  bool turn_has_come();
  void start();
  Step poll(Member* member);
  void leave_stream();

  Stream* const stream_ = nullptr;
  NativeTurn turn_;
  bool started_ = false;
  std::vector<Member> members_;  // that have not ended
  Status status_;
};

}  // namespace hetccl

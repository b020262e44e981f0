// A call that waits for its turn in its communicator's queue and in its stream's, and is then run
// by the progress thread.
#pragma once

#include <condition_variable>
#include <mutex>

#include "lib/communicator.h"
#include "lib/native_turn.h"
#include "lib/run/progress_thread.h"
#include "lib/stream.h"

namespace hetccl {

class StreamCall final : public run::Task {
 public:
  // In a stream, the library's or a native one that waits for the call, the call deletes itself
  // when it has ended; else its maker waits for it.
  StreamCall(Communicator* communicator, Communicator::Prepared prepared, Stream* stream,
             NativeTurn turn = {})
      : communicator_(communicator),
        prepared_(std::move(prepared)),
        stream_(stream),
        turn_(std::move(turn)) {}

  Step poll() override;
  Status wait();

 private:
  bool is_first();
  Result<bool> start();
  void finish(const Status& status);

  Communicator* const communicator_;
  const Communicator::Prepared prepared_;
  Stream* const stream_;
  NativeTurn turn_;
  bool started_ = false;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  Status status_;
};

}  // namespace hetccl

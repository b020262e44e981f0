// A stream of the host: calls run in the order given, in the background. Any thread.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "lib/base/status.h"
#include "lib/run/progress_thread.h"

namespace hetccl {

class Communicator;
class StreamCall;

class Stream {
 public:
  Status synchronize();  // the first error since the last synchronize
  hetcclResult_t query();

 private:
  friend class StreamCall;
  friend class Batch;
  friend class Communicator;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<run::Task*> queue_;  // calls and batches
  Status first_error_;
};

}  // namespace hetccl

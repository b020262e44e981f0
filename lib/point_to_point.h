// Send and Recv of one communicator: for each ordered pair of ranks a stream of operations, the
// k-th sent received k-th, over a lane of their own, so that they never meet a collective's
// messages. Operations of different pairs and directions run side by side; an operation is as many
// messages as it has chunks, one if it is empty, and each names the whole operation.
//
// Thread rule: any thread. Whoever waits polls, and a poll moves all operations that are under way.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "lib/base/status.h"
#include "lib/base/types.h"
#include "lib/device/accelerator.h"
#include "lib/net/lane.h"
#include "lib/run/port.h"

namespace hetccl {

class PointToPoint {
 public:
  using Clock = std::chrono::steady_clock;

  struct Options {
    std::unique_ptr<net::Lane> lane;  // null: one rank
    int ranks, rank;
    unsigned depth;
    size_t chunk_bytes;
    double timeout_s;                           // 0: for ever
    std::function<Status()> failure;            // of the communicator
    std::function<void(const Status&)> broken;  // ends the communicator on all ranks
  };
  explicit PointToPoint(Options options);
  ~PointToPoint();

  struct Window;  // chunks of device memory on their way

  // One Send or Recv. Its owner keeps it until poll() has said that it ended.
  struct Operation {
    Operation(bool is_send, int other, const void* memory, size_t elements, DataType of,
              device::Accelerator* owner);
    ~Operation();

    const bool sends;
    const int peer;
    std::byte* const data;  // of a send: only read
    const size_t count;
    const DataType type;
    const size_t bytes;
    device::Accelerator* const device;  // whose memory it is; null: the host's

    // Guarded by the owner's mutex.
    bool started = false;  // its stream's turn has come
    size_t chunks = 1;
    size_t issued = 0, announced = 0, done = 0;
    uint64_t first = 0;  // number of the message before the first
    bool moved = true;   // since moved_at
    Clock::time_point moved_at{};
    std::unique_ptr<Window> window;
    Status status;  // once ended
    bool ended = false;
  };

  // Takes its place among those of its pair and direction.
  void submit(Operation* operation);
  // From now on the operation may move.
  void start(Operation* operation);
  enum class Turn { kIdle, kMoved, kEnded };
  // Moves what can be moved. kEnded: `operation` is its owner's again, status and all.
  Turn poll(Operation* operation);

  // No operation is left. False: not until `end`.
  bool wait_until_empty(Clock::time_point end);
  void wait_until_empty();
  // All that was sent has been taken. Does the network's work.
  bool settled();

 private:
  using Queue = std::deque<Operation*>;

  bool move_all();
  bool move_sends(int peer);
  bool move_receives(int peer);
  bool move_own();
  bool advance_send(Operation* op);
  bool advance_receive(Operation* op);
  void announce(Operation* op);
  bool take_message(Operation* op);
  bool copy_chunk(Operation* from, Operation* to);
  // The next chunk of a send, or null while it is on its way from the device.
  const std::byte* next_chunk(Operation* op);
  // A chunk that came goes where it belongs. done_chunks() counts those that are there.
  void put_chunk(Operation* op, const std::byte* from);
  bool count_arrivals(Operation* op, bool release);
  bool open_window(Operation* op);
  bool check_port(Operation* op);
  void idle_round();
  void check_wait();
  void mismatched(const Operation& op, uint64_t named, size_t got_bytes);
  void end_front(Queue* queue);
  void end_all(const Status& status);
  size_t chunk_size(const Operation& op, size_t chunk) const;
  std::string text_of(const Operation& op) const;

  Options o_;
  std::mutex mutex_;
  std::condition_variable empty_;
  std::vector<Queue> sends_, receives_;  // by peer
  std::vector<int> busy_;                // peers with any
  size_t left_ = 0;                      // operations not given back to their owners
  uint32_t idle_rounds_ = 0;
  bool failed_ = false;
  std::map<device::Accelerator*, std::unique_ptr<run::Port>> ports_;
};

}  // namespace hetccl

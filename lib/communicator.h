// A communicator: members of a session, a lane between them, and the programs that run over it.
//
// Thread rule: any thread. One mutex serialises calls. A call given to a stream waits in queue_ and
// is run by the progress thread; while the queue is not empty, blocking calls go through it too, so
// that calls run in the order in which they were made.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <fstream>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "lib/base/quick_mutex.h"
#include "lib/base/settings.h"
#include "lib/call.h"
#include "lib/call_history.h"
#include "lib/coll/select.h"
#include "lib/context.h"
#include "lib/delegation.h"
#include "lib/device_paths.h"
#include "lib/device_run.h"
#include "lib/group.h"
#include "lib/native_turn.h"
#include "lib/net/control.h"
#include "lib/operators.h"
#include "lib/point_to_point.h"
#include "lib/program_cache.h"
#include "lib/registrations.h"
#include "lib/run/execution.h"
#include "lib/scratch.h"
#include "lib/stream.h"

namespace hetccl {

// What a rank's device is, as all ranks know it.
struct DeviceCard {
  int kind = hetcclMemoryHost;
  std::string description;  // "" of the host
};

class Communicator final : public net::GroupListener {
 public:
  // Collective over `members`, session ranks in the order of their ranks here. `trouble`: what made
  // this rank's settings or arguments bad; all ranks then fail with it. `devices`: of all members,
  // where their settings are agreed on already; empty: both are exchanged now.
  static Result<std::unique_ptr<Communicator>> create(std::shared_ptr<net::Session> session,
                                                      net::GroupId id, std::vector<int> members,
                                                      int rank, const Settings& settings,
                                                      const Status& trouble,
                                                      std::vector<DeviceCard> devices);
  ~Communicator() override;

  int ranks() const { return static_cast<int>(members_.size()); }
  int rank() const { return rank_; }

  // Complete on return.
  Status call(const Call& call);
  // Ordered in `stream`; returns at once.
  Status call(const Call& call, Stream* stream);
  // Ordered in a native stream of the communicator's device, or where it has none of the buffers'.
  Status call_native(const Call& call, hetcclStream_t stream);

  // ---- for groups, which make calls without waiting for the communicator

  // What this rank can see is wrong with a call, else the device of a buffer; null: the host's.
  Result<device::Accelerator*> check(const Call& call);
  Result<device::Accelerator*> check(const Group::Message& message);
  // Between the two, no other thread makes a call. False: one is in the way.
  bool try_hold() { return mutex_.try_lock(); }
  void let_go() { mutex_.unlock(); }
  // Held: a call that has its place in the order of calls. Whoever gets it polls it.
  Result<std::unique_ptr<StreamCall>> queue_call(const Call& call);
  // In a native stream of the communicator's device, or of `buffers`' where it has none.
  Result<NativeTurn> take_turn(device::Accelerator* buffers, hetcclStream_t stream) const;
  PointToPoint& point_to_point() { return *point_to_point_; }
  bool has_failed() const { return failed_.load(std::memory_order_acquire); }
  // Fruitless looks before a waiter leaves its core to others.
  uint32_t patience() const { return crowded_ ? 0 : static_cast<uint32_t>(settings_.spin); }

  // What the new communicator has of its own; negative: as this one.
  struct SplitConfig {
    double timeout_s = -1;
    int device_kind = -1, device = -1;
  };
  Result<std::unique_ptr<Communicator>> split(int64_t color, int64_t key, const Status& trouble,
                                              const SplitConfig& config);
  // Of the ranks that are neither left out nor lost; also once this one has failed.
  Result<std::unique_ptr<Communicator>> shrink(const int* exclude, int nexclude,
                                               const SplitConfig& config);

  Result<RedOp> add_operator(std::shared_ptr<const MadeOperator> made);
  Status remove_operator(RedOp op);
  Registrations& registrations() { return registrations_; }

  Status finalize();            // waits for calls in streams; refuses further ones
  void settle(double seconds);  // bounded: everything sent has been consumed
  bool abort(double seconds);   // ends calls in progress; false: one did not end
  Status failure() const;       // success while sound

  // For people: in descriptions and in the log.
  void set_name(std::string name) { name_ = std::move(name); }
  std::string last_algorithm() const;
  std::string describe() const;  // JSON: rank table, links, settings in force

  // net::GroupListener
  void on_failure(const Status& why) override;
  bool describe_call(uint64_t sequence, net::CallRecord* record) override;

 private:
  friend class Batch;
  friend class StreamCall;

  Communicator(std::shared_ptr<net::Session> session, net::GroupId id, std::vector<int> members,
               int rank, const Settings& settings);
  Status agree_on_settings(const Status& trouble, const DeviceCard& device);
  std::vector<int> device_kinds() const;
  bool has_devices() const;
  Result<std::vector<int>> others_than(const int* exclude, int nexclude) const;
  Status find_device_paths();
  Status find_delegation();
  Status make_executions();
  void make_point_to_point(std::unique_ptr<net::Lane> lane);
  Status connect();
  void read_places();
  std::chrono::steady_clock::time_point creation_deadline() const;

  // What a call needs to run; made while mutex_ is held.
  struct Prepared {
    const CachedProgram* program = nullptr;     // the cache's, while mutex_ is held
    std::shared_ptr<const CachedProgram> kept;  // for a call that outlives that
    run::Buffers buffers;
    Call call{};  // delegated, or of device memory: as it was made, without the lists
    Where where;
    uint64_t sequence = 0;
    uint64_t signature = 0;
  };
  Status prepare(const Call& call, bool keep, Prepared* prepared);
  Result<const std::shared_ptr<const CachedProgram>*> program_for(const Call& call);
  std::shared_ptr<const CachedProgram> make_program(const Call& call, const Extents& extents);
  std::shared_ptr<const CachedProgram> make_delegated(const Call& call, const Extents& extents);
  size_t piece_of(const Call& call, const Extents& extents) const;
  void start_piece();
  Status reserve_scratch();
  Status usable() const;
  void record_call(const Call& call);

  // The holder of the turn runs one prepared call.
  void enqueue(StreamCall* call);
  void take_place(StreamCall* call);
  Status run(const Prepared& prepared);
  Status call_prepared(const Call& call);
  const CachedProgram* ready_made(const Call& call);
  Status run_ready_made(const Call& call, const CachedProgram& program);
  Status finish();
  Status begin(const Prepared& prepared);
  enum class Turn { kIdle, kMoved, kDone };
  Turn step(Status* status);  // one round; kDone: *status says how it ended
  Turn step_copies(Status* status);
  Turn idle_round(Status* status);
  void broken(const Status& why);  // by this rank: tells the others
  void end_call(const Status& status);
  void back_off();
  Status check_wait();  // time-out, comparison of argument lists
  Status mismatched();
  void fail(const Status& why);

  const std::shared_ptr<net::Session> session_;
  const net::GroupId id_;
  const std::vector<int> members_;
  const int rank_;
  Settings settings_;
  std::string name_;
  coll::Forced forced_;
  coll::CostModel model_;
  device::Device* device_ = nullptr;
  std::unique_ptr<net::Lane> lane_;
  std::unique_ptr<run::Execution> execution_;
  std::unique_ptr<DeviceRun> device_run_;
  std::unique_ptr<Delegation> delegation_;
  std::unique_ptr<PointToPoint> point_to_point_;
  net::Lane* host_lane_ = nullptr;              // over lane_, or itself
  std::vector<FoundPath> paths_;                // between devices, to all ranks
  device::Accelerator* accelerator_ = nullptr;  // of this rank; null: none
  std::vector<DeviceCard> devices_;             // of all ranks
  size_t chunk_bytes_ = 0;
  bool one_node_ = true;
  bool crowded_ = false;  // more ranks than cores on this machine
  bool joined_ = false;

  QuickMutex mutex_;
  ProgramCache cache_;
  Operators operators_;
  Registrations registrations_;
  CallHistory history_;
  uint64_t sequence_ = 0;
  uint64_t children_ = 0;
  struct Lineage;
  std::shared_ptr<Lineage> lineage_;  // null: not shrunk yet
  std::atomic<bool> finalized_{false};
  std::atomic<const char*> last_algorithm_{""};
  std::set<coll::Collective> noticed_;  // forced algorithms that gave way
  std::ofstream record_;

  std::mutex queue_mutex_;
  std::condition_variable queue_empty_;
  std::deque<StreamCall*> queue_;
  std::atomic<size_t> queued_{0};  // queue_.size(), readable without queue_mutex_

  // Of the call that runs; its runner's own.
  uint64_t current_sequence_ = 0;
  uint64_t current_signature_ = 0;
  const CachedProgram* current_ = nullptr;
  enum class Phase {
    kRunning,
    kCopyingIn,  // with device memory only, as the next
    kFinishing,
    kDelegated,  // with the vendor's library
  };
  Phase phase_ = Phase::kRunning;
  bool with_device_ = false;
  run::Execution* executing_ = nullptr;
  net::Lane* over_ = nullptr;
  run::Buffers buffers_;
  size_t begun_ = 0;  // elements of the pieces that were begun
  Scratch work_, temp_;
  uint32_t idle_rounds_ = 0;
  std::chrono::steady_clock::time_point idle_since_{};
  double next_comparison_s_ = 0;

  std::atomic<bool> failed_{false};
  mutable std::mutex failure_mutex_;
  std::condition_variable failure_known_;
  Status failure_;
};

}  // namespace hetccl

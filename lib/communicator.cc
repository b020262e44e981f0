#include "lib/communicator.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "lib/base/hash.h"
#include "lib/base/log.h"
#include "lib/coll/in_order.h"
#include "lib/stream_call.h"

namespace hetccl {

using Clock = std::chrono::steady_clock;

namespace {

constexpr size_t kPiece = 1 << 20;           // of a large all-reduce: what the L2 cache holds
constexpr size_t kSmall = 16 * 1024;         // bytes; below, what a step costs is its waiting
constexpr size_t kUnknownBlock = 16 * 1024;  // bytes, for blocks whose sizes not all ranks know
constexpr double kMismatchWait_s = 5;        // for the verdict of the control plane

}  // namespace

// ---- calls

Status Communicator::usable() const {
  if (failed_.load(std::memory_order_acquire)) return failure();
  if (finalized_) return invalid_usage("the communicator has been finalized");
  return {};
}

Status Communicator::prepare(const Call& call, bool keep, Prepared* p) {
  if (Status s = usable(); !s.ok()) return s;
  const auto found = program_for(call);
  if (!found.ok()) return found.status();
  const CachedProgram* const program = (*found)->get();
  if (Status s = check_buffers(call, ranks(), rank_, program->extents); !s.ok()) return s;
  if (device::any_loaded()) {
    const Result<Where> where = locate(call, program->extents);
    if (!where.ok()) return where.status();
    p->where = *where;
    if (!where->host() || program->delegate != nullptr) {
      p->call = call;
      p->call.counts = p->call.displacements = nullptr;
      p->call.send_counts = p->call.send_displacements = nullptr;
    }
  }
  p->program = program;
  if (keep) p->kept = **found;
  last_algorithm_.store(program->delegate != nullptr ? program->delegate : program->algorithm->name,
                        std::memory_order_relaxed);
  p->buffers.input = static_cast<const std::byte*>(call.send);
  p->buffers.output = static_cast<std::byte*>(call.recv);
  p->sequence = ++sequence_;
  history_.add(p->sequence, *program);
  if (settings_.check) p->signature = hash_mix(program->hash, p->sequence) | 1;
  if (record_.is_open()) record_call(call);
  return {};
}

Result<const std::shared_ptr<const CachedProgram>*> Communicator::program_for(const Call& call) {
  if (is_valid(call.type)) {
    if (const auto* found = cache_.find(call, ranks())) return found;
  }
  const Result<Extents> extents = check_arguments(call, ranks(), rank_, operators_);
  if (!extents.ok()) return extents.status();
  return cache_.insert(call, ranks(), make_program(call, *extents));
}

std::shared_ptr<const CachedProgram> Communicator::make_program(const Call& call,
                                                                const Extents& extents) {
  const auto made_operator =
      call.reduces() ? operators_.find(call.op) : std::shared_ptr<const MadeOperator>();
  if (made_operator == nullptr && delegation_->takes(call) &&
      forced_.wanted(call.collective).empty()) {
    return make_delegated(call, extents);
  }
  const bool reduces = call.reduces();
  run::Shape shape;
  shape.reduction = {call.type, call.op, ranks(), made_operator.get()};
  shape.reduces = reduces;
  shape.element_bytes = size_of(call.type);
  shape.accumulator_bytes = reduces ? accumulator_size(call.type, call.op) : size_of(call.type);
  if (made_operator != nullptr) {
    shape.accumulator_bytes = made_operator->accumulator_bytes(call.type);
    shape.marks_partials = true;
  }
  shape.max_message = chunk_bytes_;
  coll::Query query{};
  query.collective = call.collective;
  query.ranks = ranks();
  query.root = call.root;
  query.own_counts = shape.own_counts = call.own_counts;
  query.bytes = call.own_counts ? static_cast<size_t>(ranks()) * kUnknownBlock
                                : extents.total_elements * shape.element_bytes;
  query.element_bytes = shape.element_bytes;
  query.accumulator_bytes = shape.accumulator_bytes;
  query.needs_rank_order =
      made_operator != nullptr
          ? made_operator->needs_rank_order(call.type, settings_.reproducible)
          : reduces && settings_.reproducible && !order_free(call.type, call.op);
  const coll::Choice choice = coll::choose(query, forced_, model_);
  if (choice.forced_ignored && noticed_.insert(call.collective).second) {
    log::warn("HETCCL_ALGO: no forced algorithm can serve " + text_of(call, ranks()) + "; using " +
              choice.algorithm->name);
  }
  if (log::enabled(log::Level::kInfo)) {
    log::info((name_.empty() ? "" : name_ + ": ") + text_of(call, ranks()) + ": " +
              choice.algorithm->name + ", " + choice.reason);
  }
  shape.unbuffered = choice.algorithm->unbuffered;
  // Ranks that share a core do better to go on with whatever is there than to give the core away.
  shape.in_order = one_node_ && (!crowded_ || query.bytes <= kSmall) && !call.apart(ranks()) &&
                   coll::runs_in_order(*choice.algorithm, ranks(), call.root, settings_.depth);
  auto bind = [&](size_t count) {
    Call part = call;
    part.count = count;
    return run::Program(
        coll::make_plan(*choice.algorithm, ranks(), rank_, call.root, call.apart(ranks())),
        layout_of(part, *choice.algorithm, ranks(), rank_), shape);
  };
  const size_t piece = piece_of(call, extents);
  CachedProgram made{choice.algorithm,
                     extents,
                     hash_of(call, ranks()),
                     CallHistory::pack(call),
                     call.count,
                     call.has_lists() ? text_of(call, ranks()) : std::string(),
                     piece,
                     bind(piece != 0 ? piece : call.count),
                     {}};
  made.ready_made = made.program.straight() != nullptr && made.program.work_bytes() == 0 &&
                    made.program.temp_bytes() == 0 && execution_->runs_straight() &&
                    !record_.is_open() && !call.has_lists();
  if (made_operator != nullptr) {
    made.hash = hash_mix(made.hash, made_operator->hash());
    made.text = text_of(call, ranks()) + " (" + made_operator->text() + ")";
    made.made_operator = made_operator;
  }
  if (piece != 0 && call.count % piece != 0) made.last.emplace(bind(call.count % piece));
  return std::make_shared<CachedProgram>(std::move(made));
}

// The signature of the meeting's messages is the call's.
std::shared_ptr<const CachedProgram> Communicator::make_delegated(const Call& call,
                                                                  const Extents& extents) {
  Call meeting;
  meeting.collective = coll::Collective::kBarrier;
  CachedProgram made = *make_program(meeting, {});
  made.ready_made = false;
  made.extents = extents;
  made.hash = hash_of(call, ranks());
  made.what = CallHistory::pack(call);
  made.count = call.count;
  made.delegate = delegation_->name();
  if (log::enabled(log::Level::kInfo)) {
    log::info((name_.empty() ? "" : name_ + ": ") + text_of(call, ranks()) + ": delegated to " +
              delegation_->reason());
  }
  return std::make_shared<CachedProgram>(std::move(made));
}

// Within a node, the results of a large all-reduce would leave the cache before they are passed on.
size_t Communicator::piece_of(const Call& call, const Extents& extents) const {
  if (call.collective != coll::Collective::kAllReduce || !one_node_ || has_devices()) {
    return 0;
  }
  const size_t piece = kPiece / size_of(call.type) / 64 * 64;
  return extents.total_elements > piece ? piece : 0;
}

void Communicator::record_call(const Call& call) {
  // Replay knows no lists of counts, and no operators made at run time.
  if (call.has_lists() || (call.reduces() && !is_builtin(call.op))) record_ << "# ";
  record_ << coll::name_of(call.collective) << ' ' << call.count << ' ' << name_of(call.type) << ' '
          << (call.reduces() ? name_of(call.op) : "-");
  if (call.rooted()) record_ << ' ' << call.root;
  record_ << std::endl;
}

Status Communicator::call_prepared(const Call& call) {
  std::unique_lock lock(mutex_);
  // Only a holder of mutex_ adds to the queue, so that an empty one stays empty.
  const bool queued = queued_.load(std::memory_order_acquire) != 0;
  Prepared prepared;
  if (Status s = prepare(call, queued, &prepared); !s.ok()) return s;
  if (!queued) return run(prepared);
  StreamCall waiting(this, std::move(prepared), nullptr);
  enqueue(&waiting);
  lock.unlock();
  return waiting.wait();
}

Status Communicator::call(const Call& call, Stream* stream) {
  std::lock_guard lock(mutex_);
  Prepared prepared;
  if (Status s = prepare(call, true, &prepared); !s.ok()) return s;
  auto* const made = new StreamCall(this, std::move(prepared), stream);
  {
    std::lock_guard stream_lock(stream->mutex_);
    stream->queue_.push_back(made);
  }
  enqueue(made);
  return {};
}

Status Communicator::call_native(const Call& call, hetcclStream_t stream) {
  std::unique_lock lock(mutex_);
  device::Accelerator* buffers = nullptr;
  if (accelerator_ == nullptr) {
    const Result<Extents> extents = check_arguments(call, ranks(), rank_, operators_);
    if (!extents.ok()) return extents.status();
    const Result<Where> where = locate(call, *extents);
    if (!where.ok()) return where.status();
    buffers = where->any();
  }
  Result<NativeTurn> turn = take_turn(buffers, stream);
  if (!turn.ok()) return turn.status();
  Prepared prepared;
  if (Status s = prepare(call, true, &prepared); !s.ok()) return s;
  if (!turn->waits_for_us()) {
    // The device cannot keep the stream waiting, so the caller waits.
    StreamCall waiting(this, std::move(prepared), nullptr, std::move(*turn));
    enqueue(&waiting);
    lock.unlock();
    return waiting.wait();
  }
  enqueue(new StreamCall(this, std::move(prepared), nullptr, std::move(*turn)));
  return {};
}

void Communicator::enqueue(StreamCall* call) {
  take_place(call);
  Context::get().progress_thread().submit(call);
}

void Communicator::take_place(StreamCall* call) {
  std::lock_guard lock(queue_mutex_);
  queue_.push_back(call);
  queued_.store(queue_.size(), std::memory_order_release);
}

Status Communicator::run(const Prepared& prepared) {
  if (Status s = begin(prepared); !s.ok()) return s;
  return finish();
}

Status Communicator::finish() {
  Status status;
  for (;;) {
    switch (step(&status)) {
      case Turn::kDone:
        end_call(status);
        return status;
      case Turn::kMoved:
        break;
      case Turn::kIdle:
        back_off();
    }
  }
}

Status Communicator::begin(const Prepared& prepared) {
  if (failed_.load(std::memory_order_acquire)) return failure();  // since it was queued
  current_sequence_ = prepared.sequence;
  current_signature_ = prepared.signature;
  current_ = prepared.program;
  buffers_ = prepared.buffers;
  const bool delegated = current_->delegate != nullptr;
  with_device_ = !prepared.where.host() && !delegated;
  Status s;
  if (delegated) s = delegation_->begin(prepared.call, prepared.where, current_->extents);
  if (with_device_) s = device_run_->begin(prepared.where, prepared.call, *current_, &buffers_);
  executing_ = with_device_ ? device_run_->execution() : execution_.get();
  over_ = with_device_ ? device_run_->lane() : host_lane_;
  if (s.ok() && executing_ == execution_.get()) s = reserve_scratch();
  if (!s.ok()) {
    // The others already count on this rank, so the communicator cannot go on.
    broken(s);
    return failure();
  }
  begun_ = 0;
  phase_ = with_device_ ? Phase::kCopyingIn : Phase::kRunning;
  if (!with_device_) start_piece();
  idle_rounds_ = 0;
  next_comparison_s_ = 1;
  return {};
}

Status Communicator::reserve_scratch() {
  const run::Program& program = current_->program;
  if (program.work_bytes() != 0) buffers_.work = work_.reserve(program.work_bytes());
  if (program.temp_bytes() != 0) buffers_.temp = temp_.reserve(program.temp_bytes());
  if ((program.work_bytes() == 0 || buffers_.work != nullptr) &&
      (program.temp_bytes() == 0 || buffers_.temp != nullptr)) {
    return {};
  }
  return system_error("out of memory for " +
                      std::to_string(program.work_bytes() + program.temp_bytes()) +
                      " bytes of partial results");
}

void Communicator::start_piece() {
  const size_t left = current_->extents.total_elements - begun_;
  const bool last = current_->piece != 0 && left < current_->piece;
  run::Buffers at = buffers_;
  if (begun_ != 0) {
    const size_t skip = begun_ * current_->program.shape().element_bytes;
    at.input += skip;
    at.output += skip;
  }
  executing_->start(last ? *current_->last : current_->program, at, current_signature_);
  begun_ += current_->piece == 0 ? left : std::min(left, current_->piece);
}

Communicator::Turn Communicator::step(Status* status) {
  if (phase_ != Phase::kRunning) return step_copies(status);
  // What has arrived counts, even if its sender is gone by now.
  switch (executing_->poll()) {
    case run::Execution::Outcome::kDone:
      if (begun_ != current_->extents.total_elements) {
        start_piece();
      } else if (current_->delegate != nullptr) {
        phase_ = Phase::kDelegated;
        idle_rounds_ = 0;
      } else if (with_device_) {
        phase_ = Phase::kFinishing;
      } else {
        return Turn::kDone;
      }
      return Turn::kMoved;
    case run::Execution::Outcome::kMismatch:
      *status = mismatched();
      return Turn::kDone;
    case run::Execution::Outcome::kMoved:
      idle_rounds_ = 0;
      return Turn::kMoved;
    case run::Execution::Outcome::kIdle:
      break;
  }
  return idle_round(status);
}

// What a device does before the first step and after the last, or the vendor's library instead.
Communicator::Turn Communicator::step_copies(Status* status) {
  const bool before = phase_ == Phase::kCopyingIn;
  const Result<bool> ready = before                        ? device_run_->prepared()
                             : phase_ == Phase::kDelegated ? delegation_->finished()
                                                           : device_run_->finished();
  if (!ready.ok()) {
    broken(ready.status());
    *status = failure();
    return Turn::kDone;
  }
  if (!*ready) return idle_round(status);
  if (!before) return Turn::kDone;
  phase_ = Phase::kRunning;
  start_piece();
  return Turn::kMoved;
}

Communicator::Turn Communicator::idle_round(Status* status) {
  if (failed_.load(std::memory_order_acquire)) {
    *status = failure();
    return Turn::kDone;
  }
  if (over_ != nullptr) {
    if (Result<bool> moved = over_->progress(); !moved.ok()) {
      broken(moved.status());
      return Turn::kIdle;  // the next step ends the call
    } else if (*moved) {
      return Turn::kMoved;
    }
  }
  if (++idle_rounds_ % 64 == 0) {
    if (Status s = check_wait(); !s.ok()) fail(s);
  }
  return Turn::kIdle;
}

void Communicator::broken(const Status& why) {
  session_->announce_failure(id_, why.code(),
                             "rank " + std::to_string(rank_) + ": " + why.message());
  fail(why);
}

// After an error nothing may touch the caller's buffers any more: the lane ends at once.
void Communicator::end_call(const Status& status) {
  if (status.ok()) {
    if (lane_) lane_->pause();
  } else {
    execution_->abandon();
    lane_.reset();
    if (device_run_) device_run_->abandon();
    delegation_->abandon();
  }
}

void Communicator::back_off() {
  if (!crowded_ && idle_rounds_ < settings_.spin) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
  } else {
    sched_yield();
  }
}

Status Communicator::check_wait() {
  const auto now = Clock::now();
  if (idle_rounds_ == 64) idle_since_ = now;
  const double waited = std::chrono::duration<double>(now - idle_since_).count();
  if (waited < next_comparison_s_) return {};
  if (settings_.check) session_->compare_calls(id_, current_sequence_);
  next_comparison_s_ *= 2;
  if (settings_.timeout_s > 0) {
    next_comparison_s_ = std::min(next_comparison_s_, settings_.timeout_s);
    if (waited >= settings_.timeout_s) {
      uint64_t hash;
      std::string text;
      history_.find(current_sequence_, ranks(), &hash, &text);
      Status s = timeout_error(
          "rank " + std::to_string(rank_) + " waited " + std::to_string(std::lround(waited)) +
          " s in call " + std::to_string(current_sequence_) + ", " + text + "; see HETCCL_TIMEOUT");
      session_->announce_failure(id_, s.code(), s.message());
      return s;
    }
  }
  return {};
}

// A message of another call came. The control plane finds out who differs; what this rank knows by
// itself serves if no verdict comes.
Status Communicator::mismatched() {
  const run::Mismatch m = executing_->mismatch();
  executing_->abandon();
  constexpr uint64_t kCounts = uint64_t{1} << 48;  // above it another call's signature
  if (current_->program.shape().own_counts && m.named_elements < kCounts) {
    uint64_t hash;
    std::string text;
    history_.find(current_sequence_, ranks(), &hash, &text);
    broken(invalid_usage("rank " + std::to_string(m.peer) + " sends " +
                         std::to_string(m.named_elements) + " elements to rank " +
                         std::to_string(rank_) + ", which expects " +
                         std::to_string(m.expected_elements) + " in call " +
                         std::to_string(current_sequence_) + ", " + text));
    return failure();
  }
  // A rank that only sends may have run ahead by as many calls as messages fit on the way.
  const uint64_t earliest = current_sequence_ - std::min(current_sequence_ - 1, settings_.depth);
  for (uint64_t s = earliest; s <= current_sequence_; ++s) session_->compare_calls(id_, s);
  std::unique_lock lock(failure_mutex_);
  if (failure_known_.wait_for(lock, std::chrono::duration<double>(kMismatchWait_s),
                              [&] { return !failure_.ok(); })) {
    return failure_;
  }
  lock.unlock();
  uint64_t hash;
  std::string text;
  history_.find(current_sequence_, ranks(), &hash, &text);
  Status s = invalid_usage(
      "rank " + std::to_string(rank_) + " makes call " + std::to_string(current_sequence_) + ", " +
      text + "; rank " + std::to_string(m.peer) + " sent " + std::to_string(m.received_bytes) +
      " bytes of another call where " + std::to_string(m.expected_bytes) + " were due");
  session_->announce_failure(id_, s.code(), s.message());
  fail(s);
  return failure();
}

// ---- operators

Result<RedOp> Communicator::add_operator(std::shared_ptr<const MadeOperator> made) {
  std::lock_guard lock(mutex_);
  return operators_.add(std::move(made));
}

Status Communicator::remove_operator(RedOp op) {
  std::lock_guard lock(mutex_);
  const Status s = operators_.remove(op);
  if (s.ok()) cache_.forget(op);
  return s;
}

// ---- ending

Status Communicator::finalize() {
  {
    std::lock_guard lock(mutex_);
    finalized_ = true;
  }
  {
    std::unique_lock lock(queue_mutex_);
    queue_empty_.wait(lock, [&] { return queue_.empty(); });
  }
  point_to_point_->wait_until_empty();
  return failure();
}

void Communicator::settle(double seconds) {
  const auto end = Clock::now() + std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3));
  {
    std::unique_lock lock(queue_mutex_);
    queue_empty_.wait_until(lock, end, [&] { return queue_.empty(); });
  }
  point_to_point_->wait_until_empty(end);
  std::unique_lock lock(mutex_, end);
  if (!lock.owns_lock() || !lane_) return;
  finalized_ = true;
  for (int round = 0; !failed_ && Clock::now() < end; ++round) {
    const bool settled = point_to_point_->settled();
    if (settled && lane_->quiet()) return;
    if (!lane_->progress().ok()) return;
    if (round < 1000) {
      sched_yield();
    } else {
      usleep(50);
    }
  }
}

bool Communicator::abort(double seconds) {
  session_->announce_failure(id_, hetcclRemoteError, "rank " + std::to_string(rank_) + " aborted");
  fail(remote_error("this rank aborted the communicator"));
  const auto end = Clock::now() + std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3));
  {
    std::unique_lock lock(queue_mutex_);
    if (!queue_empty_.wait_until(lock, end, [&] { return queue_.empty(); })) return false;
  }
  if (!point_to_point_->wait_until_empty(end)) return false;
  std::unique_lock lock(mutex_, end);
  return lock.owns_lock();
}

Status Communicator::failure() const {
  if (!failed_.load(std::memory_order_acquire)) return {};
  std::lock_guard lock(failure_mutex_);
  return failure_;
}

// The first error is what every later call gets.
void Communicator::fail(const Status& why) {
  {
    std::lock_guard lock(failure_mutex_);
    if (!failure_.ok()) return;
    failure_ = why;
    failed_.store(true, std::memory_order_release);
  }
  failure_known_.notify_all();
}

void Communicator::on_failure(const Status& why) { fail(why); }

bool Communicator::describe_call(uint64_t sequence, net::CallRecord* record) {
  return history_.find(sequence, ranks(), &record->hash, &record->text);
}

std::string Communicator::last_algorithm() const {
  return last_algorithm_.load(std::memory_order_relaxed);
}

}  // namespace hetccl

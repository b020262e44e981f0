#include "lib/communicator.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "lib/base/log.h"
#include "lib/base/packing.h"
#include "lib/stream_call.h"

namespace hetccl {

using Clock = std::chrono::steady_clock;

namespace {

constexpr size_t kSharedMemoryChunk = 64
                                      << 10;  // flat from 32 to 128 KiB: it lives in the L2 cache
constexpr size_t kNetworkChunk = 256 << 10;   // a round trip costs less than its transfer
constexpr size_t kPiece = 1 << 20;            // of a large all-reduce: what the L2 cache holds
constexpr double kMismatchWait_s = 5;         // for the verdict of the control plane

uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t h = a ^ (b + 0x9E3779B97F4A7C15ull + (a << 6) + (a >> 2));
  h *= 0x94D049BB133111EBull;
  return h ^ (h >> 29);
}

// The first trouble among the cards of all ranks.
struct Trouble {
  static void put(Packer* card, const Status& status) {
    card->put<int32_t>(status.code()).put(status.message());
  }
  static Status take(Unpacker* card, int rank) {
    const auto code = static_cast<hetcclResult_t>(card->get<int32_t>());
    const std::string text = card->get_string();
    if (code == hetcclSuccess) return {};
    return {code, "rank " + std::to_string(rank) + ": " + text};
  }
};

}  // namespace

Communicator::Communicator(std::shared_ptr<net::Session> session, net::GroupId id,
                           std::vector<int> members, int rank, const Settings& settings)
    : session_(std::move(session)),
      id_(id),
      members_(std::move(members)),
      rank_(rank),
      settings_(settings),
      cache_(settings.plan_cache) {}

Communicator::~Communicator() {
  if (joined_) session_->leave(id_);
}

Result<std::unique_ptr<Communicator>> Communicator::create(std::shared_ptr<net::Session> session,
                                                           net::GroupId id,
                                                           std::vector<int> members, int rank,
                                                           const Settings& settings,
                                                           const Status& trouble, bool agree) {
  std::unique_ptr<Communicator> c(
      new Communicator(std::move(session), id, std::move(members), rank, settings));
  if (Status s = c->session_->join(id, c->members_, c.get()); !s.ok()) return s;
  c->joined_ = true;
  Status local = trouble;
  if (agree) {
    if (Status s = c->agree_on_settings(trouble); !s.ok()) return s;
  }
  if (Status s = c->connect(); !s.ok()) return s;
  if (agree && rank == 0 && !c->settings_.record.empty()) {
    c->record_.open(c->settings_.record, std::ios::app);
    if (!c->record_) log::warn("cannot write the record of calls to " + c->settings_.record);
  }
  return c;
}

Clock::time_point Communicator::creation_deadline() const {
  // Without a time-out a dead rank still ends the wait.
  const double seconds = settings_.timeout_s > 0 ? settings_.timeout_s : 1e8;
  return Clock::now() + std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3));
}

// Rank 0's values hold; rank 0 reports the difference, once.
Status Communicator::agree_on_settings(const Status& trouble) {
  const std::vector<std::string> mine = agreed_values(settings_);
  Packer card;
  Trouble::put(&card, trouble);
  card.put<uint32_t>(HETCCL_VERSION);
  for (const std::string& value : mine) card.put(value);
  std::vector<std::string> cards;
  Status s = session_->allgather(id_, std::move(card).take(), &cards, creation_deadline());
  if (!s.ok()) return s;
  std::vector<std::string> decided;
  for (int r = 0; r < ranks(); ++r) {
    Unpacker u(cards[r]);
    if (Status t = Trouble::take(&u, r); !t.ok()) return t;
    const auto version = u.get<uint32_t>();
    if (version != HETCCL_VERSION) {
      return invalid_usage("rank " + std::to_string(r) + " runs hetccl version " +
                           std::to_string(version) + ", rank " + std::to_string(rank_) + " runs " +
                           std::to_string(HETCCL_VERSION));
    }
    std::vector<std::string> theirs;
    for (size_t k = 0; k < mine.size(); ++k) theirs.push_back(u.get_string());
    if (!u.finished()) return internal_error("settings of rank " + std::to_string(r) + " garbled");
    if (r == 0) decided = theirs;
    for (size_t k = 0; k < mine.size() && rank_ == 0; ++k) {
      if (theirs[k] == decided[k]) continue;
      log::warn(agreed_name(k) + " is \"" + theirs[k] + "\" on rank " + std::to_string(r) +
                " and \"" + decided[k] + "\" on rank 0; rank 0's value holds for all");
    }
  }
  return adopt_agreed_values(decided, &settings_);
}

void Communicator::read_places() {
  std::vector<std::string> known;
  for (int member : members_) {
    const std::string& where = session_->place(member).shared_memory;
    auto found = std::find(known.begin(), known.end(), where);
    model_.node_of.push_back(static_cast<int>(found - known.begin()));
    if (found == known.end()) known.push_back(where);
  }
  one_node_ = known.size() == 1;
  chunk_bytes_ = settings_.chunk_bytes != 0 ? settings_.chunk_bytes
                 : one_node_                ? kSharedMemoryChunk
                                            : kNetworkChunk;
  const std::vector<int> node_of = model_.node_of;
  model_ = coll::default_cost_model(node_of, chunk_bytes_);
}

Status Communicator::connect() {
  read_places();
  Status trouble;
  if (auto forced = coll::Forced::parse(settings_.algo); forced.ok()) {
    forced_ = *forced;
  } else {
    trouble = forced.status();
  }
  if (auto device = device::host_device(settings_.isa); device.ok()) {
    device_ = *device;
  } else {
    trouble = device.status();
  }
  std::unique_ptr<net::LaneSetup> setup;
  if (ranks() > 1 && trouble.ok()) {
    auto fabric = Context::get().fabric(settings_);
    if (!fabric.ok()) {
      trouble = fabric.status();
    } else {
      auto opened = (*fabric)->open_lane(
          ranks(), rank_, {chunk_bytes_, static_cast<unsigned>(settings_.depth), false});
      if (opened.ok()) {
        setup = std::move(*opened);
      } else {
        trouble = opened.status();
      }
    }
  }
  cpu_set_t cores;
  CPU_ZERO(&cores);
  sched_getaffinity(0, sizeof cores, &cores);
  Packer card;
  Trouble::put(&card, trouble);
  card.put(cores).put(setup ? setup->card() : std::string());
  std::vector<std::string> cards;
  Status s = session_->allgather(id_, std::move(card).take(), &cards, creation_deadline());
  if (!s.ok()) return s;
  const std::string& host = session_->place(members_[rank_]).host;
  int ranks_here = 0;
  std::vector<bool> shares(cards.size());
  for (int r = 0; r < ranks(); ++r) {
    Unpacker u(cards[r]);
    if (Status t = Trouble::take(&u, r); !t.ok()) return t;
    const auto theirs = u.get<cpu_set_t>();
    cards[r] = u.get_string();
    if (!u.finished()) return internal_error("card of rank " + std::to_string(r) + " garbled");
    shares[r] = model_.node_of[r] == model_.node_of[rank_];
    if (session_->place(members_[r]).host != host) continue;
    ++ranks_here;
    CPU_OR(&cores, &cores, &theirs);
  }
  crowded_ = ranks_here > CPU_COUNT(&cores);
  if (setup) {
    auto lane = setup->connect(cards, shares);
    if (!lane.ok()) return lane.status();
    lane_ = std::move(*lane);
  }
  execution_ = std::make_unique<run::Execution>(lane_.get(), device_, ranks(),
                                                static_cast<unsigned>(settings_.depth));
  return {};
}

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
  if (Status s = check_buffers(call, rank_, program->extents); !s.ok()) return s;
  p->program = program;
  if (keep) p->kept = **found;
  last_algorithm_.store(program->algorithm, std::memory_order_relaxed);
  p->buffers.input = static_cast<const std::byte*>(call.send);
  p->buffers.output = static_cast<std::byte*>(call.recv);
  p->sequence = ++sequence_;
  history_.add(p->sequence, call, *program);
  if (settings_.check) p->signature = mix(program->hash, p->sequence) | 1;
  if (record_.is_open()) record_call(call);
  return {};
}

Result<const std::shared_ptr<const CachedProgram>*> Communicator::program_for(const Call& call) {
  if (is_valid(call.type)) {
    if (const auto* found = cache_.find(call, ranks())) return found;
  }
  const Result<Extents> extents = check_arguments(call, ranks(), rank_);
  if (!extents.ok()) return extents.status();
  return cache_.insert(call, ranks(), make_program(call, *extents));
}

std::shared_ptr<const CachedProgram> Communicator::make_program(const Call& call,
                                                                const Extents& extents) {
  const bool reduces = call.reduces();
  run::Shape shape;
  shape.reduction = {call.type, call.op, ranks()};
  shape.reduces = reduces;
  shape.element_bytes = size_of(call.type);
  shape.accumulator_bytes = reduces ? accumulator_size(call.type, call.op) : size_of(call.type);
  shape.max_message = chunk_bytes_;
  coll::Query query{};
  query.collective = call.collective;
  query.ranks = ranks();
  query.root = call.root;
  query.bytes = extents.total_elements * shape.element_bytes;
  query.element_bytes = shape.element_bytes;
  query.accumulator_bytes = shape.accumulator_bytes;
  query.needs_rank_order = reduces && settings_.reproducible && !order_free(call.type, call.op);
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
  auto bind = [&](size_t count) {
    Call part = call;
    part.count = count;
    return run::Program(coll::make_plan(*choice.algorithm, ranks(), rank_, call.root),
                        layout_of(part, *choice.algorithm, ranks(), rank_), shape);
  };
  const size_t piece = piece_of(call, extents);
  CachedProgram made{choice.algorithm,
                     extents,
                     hash_of(call, ranks()),
                     call.counts != nullptr ? text_of(call, ranks()) : std::string(),
                     piece,
                     bind(piece != 0 ? piece : call.count),
                     {}};
  if (piece != 0 && call.count % piece != 0) made.last.emplace(bind(call.count % piece));
  return std::make_shared<CachedProgram>(std::move(made));
}

// Within a node, the results of a large all-reduce would leave the cache before they are passed on.
size_t Communicator::piece_of(const Call& call, const Extents& extents) const {
  if (call.collective != coll::Collective::kAllReduce || !one_node_) return 0;
  const size_t piece = kPiece / size_of(call.type) / 64 * 64;
  return extents.total_elements > piece ? piece : 0;
}

void Communicator::record_call(const Call& call) {
  if (call.counts != nullptr) record_ << "# ";  // replay knows no lists of counts
  record_ << coll::name_of(call.collective) << ' ' << call.count << ' ' << name_of(call.type) << ' '
          << (call.reduces() ? name_of(call.op) : "-") << '\n'
          << std::flush;
}

Status Communicator::call(const Call& call) {
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

void Communicator::enqueue(StreamCall* call) {
  {
    std::lock_guard lock(queue_mutex_);
    queue_.push_back(call);
    queued_.store(queue_.size(), std::memory_order_release);
  }
  Context::get().progress_thread().submit(call);
}

Status Communicator::run(const Prepared& prepared) {
  if (Status s = begin(prepared); !s.ok()) return s;
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
  const run::Program& program = current_->program;
  if (program.work_bytes() != 0) buffers_.work = work_.reserve(program.work_bytes());
  if (program.temp_bytes() != 0) buffers_.temp = temp_.reserve(program.temp_bytes());
  if ((program.work_bytes() != 0 && buffers_.work == nullptr) ||
      (program.temp_bytes() != 0 && buffers_.temp == nullptr)) {
    // The others already count on this rank, so the communicator cannot go on.
    Status s = system_error("out of memory for " +
                            std::to_string(program.work_bytes() + program.temp_bytes()) +
                            " bytes of partial results");
    session_->announce_failure(id_, s.code(), "rank " + std::to_string(rank_) + ": " + s.message());
    fail(s);
    return s;
  }
  begun_ = 0;
  start_piece();
  idle_rounds_ = 0;
  next_comparison_s_ = 1;
  return {};
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
  execution_->start(last ? *current_->last : current_->program, at, current_signature_);
  begun_ += current_->piece == 0 ? left : std::min(left, current_->piece);
}

Communicator::Turn Communicator::step(Status* status) {
  // What has arrived counts, even if its sender is gone by now.
  switch (execution_->poll()) {
    case run::Execution::Outcome::kDone:
      if (begun_ == current_->extents.total_elements) return Turn::kDone;
      start_piece();
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
  if (failed_.load(std::memory_order_acquire)) {
    *status = failure();
    return Turn::kDone;
  }
  if (Result<bool> moved = lane_->progress(); !moved.ok()) {
    session_->announce_failure(id_, moved.status().code(), moved.status().message());
    fail(moved.status());
    return Turn::kIdle;  // the next step ends the call
  } else if (*moved) {
    return Turn::kMoved;
  }
  if (++idle_rounds_ % 64 == 0) {
    if (Status s = check_wait(); !s.ok()) fail(s);
  }
  return Turn::kIdle;
}

// After an error nothing may touch the caller's buffers any more: the lane ends at once.
void Communicator::end_call(const Status& status) {
  if (!lane_) return;
  if (status.ok()) {
    lane_->pause();
  } else {
    execution_->abandon();
    lane_.reset();
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
  const run::Mismatch m = execution_->mismatch();
  execution_->abandon();
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

// ---- split

Result<std::unique_ptr<Communicator>> Communicator::split(int64_t color, int64_t key,
                                                          const Status& trouble, double timeout_s) {
  std::lock_guard lock(mutex_);
  if (Status s = usable(); !s.ok()) return s;
  Packer card;
  Trouble::put(&card, trouble);
  card.put(color).put(key);
  std::vector<std::string> cards;
  Status s = session_->allgather(id_, std::move(card).take(), &cards, creation_deadline());
  if (!s.ok()) return s;
  struct Member {
    int64_t key;
    int rank;
  };
  std::vector<Member> chosen;
  for (int r = 0; r < ranks(); ++r) {
    Unpacker u(cards[r]);
    if (Status t = Trouble::take(&u, r); !t.ok()) return t;
    const auto their_color = u.get<int64_t>();
    const auto their_key = u.get<int64_t>();
    if (color >= 0 && their_color == color) chosen.push_back({their_key, r});
  }
  const uint64_t child = ++children_;
  if (color < 0) return std::unique_ptr<Communicator>();
  std::stable_sort(chosen.begin(), chosen.end(),
                   [](const Member& a, const Member& b) { return a.key < b.key; });
  std::vector<int> members;
  int rank = -1;
  for (const Member& m : chosen) {
    if (m.rank == rank_) rank = static_cast<int>(members.size());
    members.push_back(members_[m.rank]);
  }
  Settings settings = settings_;
  if (timeout_s >= 0) settings.timeout_s = timeout_s;
  const net::GroupId id = mix(mix(id_, child), static_cast<uint64_t>(color));
  return create(session_, id, std::move(members), rank, settings, {}, false);
}

// ---- ending

Status Communicator::finalize() {
  {
    std::lock_guard lock(mutex_);
    finalized_ = true;
  }
  std::unique_lock lock(queue_mutex_);
  queue_empty_.wait(lock, [&] { return queue_.empty(); });
  return failure();
}

void Communicator::settle(double seconds) {
  const auto end = Clock::now() + std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3));
  {
    std::unique_lock lock(queue_mutex_);
    queue_empty_.wait_until(lock, end, [&] { return queue_.empty(); });
  }
  std::unique_lock lock(mutex_, end);
  if (!lock.owns_lock() || !lane_) return;
  finalized_ = true;
  for (int round = 0; !failed_ && !lane_->quiet() && Clock::now() < end; ++round) {
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
  const coll::Algorithm* const last = last_algorithm_.load(std::memory_order_relaxed);
  return last != nullptr ? last->name : "";
}

}  // namespace hetccl

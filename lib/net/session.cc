// A session as its user sees it: every method hands its work to the control thread.
#include <algorithm>
#include <cmath>
#include <thread>
#include <utility>

#include "lib/net/control.h"
#include "lib/net/control_mesh.h"
#include "lib/net/control_thread.h"
#include "lib/net/interfaces.h"
#include "lib/net/place.h"
#include "lib/net/session_groups.h"
#include "lib/net/session_record.h"

namespace hetccl::net {
namespace {

using std::chrono::milliseconds;

// All ranks of the session, for the exchange that ends its creation.
constexpr GroupId kCreationGroup = ~GroupId{0};
// Member 0 is given this long to say who is missing.
constexpr milliseconds kMissingLimit{1500};
// A good-bye is confirmed at once unless a neighbour does not read.
constexpr milliseconds kFarewellLimit{1000};
constexpr std::chrono::microseconds kFarewellPause{500};

Status forked() {
  return invalid_usage(
      "this communicator was made before the process forked, and belongs to the parent process");
}

// Nobody to tell: whoever creates the session waits for the exchange itself.
class NoListener final : public GroupListener {
 public:
  void on_failure(const Status&) override {}
  bool describe_call(uint64_t, CallRecord*) override { return false; }
};

// Lives until the mesh has closed, after the session itself perhaps.
struct Core {
  explicit Core(ControlThread* thread) : groups(thread) {}
  SessionGroups groups;
  std::shared_ptr<ControlMesh> mesh;
};

class SessionImpl final : public Session {
 public:
  SessionImpl(ControlThread* thread, std::vector<Place> places, std::shared_ptr<Core> core)
      : thread_(thread),
        places_(std::move(places)),
        rank_(core->mesh->self()),
        core_(std::move(core)) {}
  ~SessionImpl() override { say_good_bye(); }

  int ranks() const override { return static_cast<int>(places_.size()); }
  int rank() const override { return rank_; }
  const Place& place(int rank) const override { return places_[static_cast<size_t>(rank)]; }

  bool is_lost(int rank) const override;
  Status start(Clock::time_point deadline);
  Status join(GroupId id, std::vector<int> members, GroupListener* listener) override;
  void leave(GroupId id) override;
  Status allgather(GroupId id, const std::string& mine, std::vector<std::string>* all,
                   Clock::time_point deadline) override;
  void announce_failure(GroupId id, hetcclResult_t code, const std::string& text) override;
  void compare_calls(GroupId id, uint64_t sequence) override;

 private:
  void say_good_bye();

  ControlThread* thread_;
  std::vector<Place> places_;
  int rank_;
  std::shared_ptr<Core> core_;
  bool created_ = false;
};

// Ends with an exchange among all ranks, so that either all have a session or none.
Status SessionImpl::start(Clock::time_point deadline) {
  static NoListener* const nobody = new NoListener;
  std::vector<int> everybody(places_.size());
  for (size_t r = 0; r < everybody.size(); ++r) everybody[r] = static_cast<int>(r);
  Status status;
  const bool ran = thread_->call([&] {
    core_->mesh->start(&core_->groups, core_);
    status = core_->groups.join(kCreationGroup, everybody, nobody);
  });
  if (!ran) return forked();
  std::vector<std::string> all;
  if (status.ok()) status = allgather(kCreationGroup, "", &all, deadline);
  if (!status.ok()) {
    announce_failure(kCreationGroup, hetcclRemoteError,
                     "rank " + std::to_string(rank_) + " could not join: " + status.message());
    return {status.code(), "cannot connect the ranks: " + status.message()};
  }
  // The group stays, so that member 0 can repeat the table for one whose copy was lost.
  created_ = true;
  return {};
}

bool SessionImpl::is_lost(int rank) const {
  bool lost = false;
  thread_->call([&] { lost = (core_->mesh->state(rank) & (kDeparted | kDead)) != 0; });
  return lost;
}

Status SessionImpl::join(GroupId id, std::vector<int> members, GroupListener* listener) {
  Status status;
  const bool ran =
      thread_->call([&] { status = core_->groups.join(id, std::move(members), listener); });
  return ran ? status : forked();
}

void SessionImpl::leave(GroupId id) {
  thread_->call([&] { core_->groups.leave(id); });
}

Status SessionImpl::allgather(GroupId id, const std::string& mine, std::vector<std::string>* all,
                              Clock::time_point deadline) {
  auto exchange = std::make_shared<Exchange>();
  if (!thread_->post([core = core_, id, mine, exchange] {
        core->groups.start_allgather(id, mine, exchange);
      })) {
    return forked();
  }
  const auto done = [&] { return exchange->done; };
  std::unique_lock lock(exchange->mutex);
  if (!exchange->condition.wait_until(lock, deadline, done)) {
    lock.unlock();
    thread_->post([core = core_, id, exchange] { core->groups.expire(id, exchange); });
    lock.lock();
    if (!exchange->condition.wait_for(lock, kMissingLimit, done)) {
      return timeout_error(
          "timed out in an exchange: rank 0, which collects it, has not arrived "
          "or does not answer");
    }
  }
  if (exchange->status.ok()) *all = std::move(exchange->all);
  return exchange->status;
}

// Done when it returns: the caller may exit at once, and the others still hear of it.
void SessionImpl::announce_failure(GroupId id, hetcclResult_t code, const std::string& text) {
  thread_->call([&] { core_->groups.announce_failure(id, code, text); });
}

void SessionImpl::compare_calls(GroupId id, uint64_t sequence) {
  thread_->post([core = core_, id, sequence] { core->groups.compare_calls(id, sequence); });
}

void SessionImpl::say_good_bye() {
  bool settled = true;
  const bool ran = thread_->call([&] {
    core_->groups.leave_all();
    if (!created_) return core_->mesh->abandon();
    core_->mesh->depart();
    settled = core_->mesh->settled();
  });
  if (!ran || thread_->on_thread()) return;
  // A process that exits with its good-bye unsent would pass for dead.
  const Clock::time_point limit = Clock::now() + kFarewellLimit;
  while (!settled && Clock::now() < limit) {
    std::this_thread::sleep_for(kFarewellPause);
    thread_->call([&] { settled = core_->mesh->settled(); });
  }
}

struct Preparation {
  LocalPlace local;
  ControlThread* thread = nullptr;
  Listener listener;
  std::vector<Address> addresses;
};

Status prepare(int ranks, const SessionOptions& options, Preparation* out) {
  Result<LocalPlace> local = find_place(options.node_override);
  if (!local.ok()) return local.status();
  out->local = std::move(*local);
  Result<ControlThread*> thread = ControlThread::get();
  if (!thread.ok()) return thread.status();
  out->thread = *thread;
  // Checked even where it is not needed: a setting is right or wrong whatever the ranks.
  Result<std::vector<Address>> addresses = select_addresses(options.interfaces, list_interfaces());
  if (!addresses.ok()) return addresses.status();
  out->addresses = std::move(*addresses);
  if (ranks == 1) return {};
  Result<Listener> listener = open_listener();
  if (!listener.ok()) return listener.status();
  out->listener = std::move(*listener);
  return {};
}

Clock::time_point deadline_after(double seconds) {
  constexpr double kForever = 1e9;
  if (seconds <= 0 || seconds > kForever || std::isnan(seconds)) return Clock::time_point::max();
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

Result<std::shared_ptr<Session>> Session::create(int ranks, int rank, const Allgather& allgather,
                                                 const SessionOptions& options) {
  if (ranks < 1 || rank < 0 || rank >= ranks) {
    return invalid_argument("rank " + std::to_string(rank) + " of " + std::to_string(ranks) +
                            ": the number of ranks is at least 1, and ranks count from 0");
  }
  const Clock::time_point deadline = deadline_after(options.timeout_s);
  Preparation own;
  const Status prepared = prepare(ranks, options, &own);
  SessionRecord mine = make_record(ranks, rank, own.local);
  // A rank that cannot take part still joins the exchange, or the others would wait for it.
  if (!prepared.ok()) set_failure(&mine, prepared);
  mine.port = own.listener.port;
  mine.addresses_used = static_cast<uint8_t>(own.addresses.size());
  std::copy(own.addresses.begin(), own.addresses.end(), mine.addresses);
  std::vector<SessionRecord> records(static_cast<size_t>(ranks));
  const int failed = allgather(&mine, records.data(), sizeof(SessionRecord));
  if (!prepared.ok()) return prepared;
  if (failed != 0) {
    return system_error("the allgather that was given to create the communicator failed with " +
                        std::to_string(failed) + " on rank " + std::to_string(rank));
  }
  Status status = check_records(records, ranks);
  if (!status.ok()) return status;
  std::vector<Place> places;
  for (const SessionRecord& record : records) places.push_back(place_of(record));
  auto core = std::make_shared<Core>(own.thread);
  core->mesh = std::make_shared<ControlMesh>(own.thread, std::move(records), rank,
                                             options.timeout_s, std::move(own.listener));
  core->groups.set_mesh(core->mesh.get());
  auto session = std::make_shared<SessionImpl>(own.thread, std::move(places), std::move(core));
  status = session->start(deadline);
  if (!status.ok()) return status;
  return std::shared_ptr<Session>(std::move(session));
}

}  // namespace hetccl::net

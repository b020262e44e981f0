// The meeting of ranks that only share a unique id: the process that made the id collects a record
// of every rank and answers each with the table of all. Served by the control thread; the ranks
// themselves wait in their own threads (meeting_client.cc).
#include "lib/net/meeting.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "lib/net/control.h"
#include "lib/net/control_door.h"
#include "lib/net/control_link.h"
#include "lib/net/control_thread.h"
#include "lib/net/place.h"

namespace hetccl::net {
namespace {

using std::chrono::milliseconds;
using LinkPtr = std::shared_ptr<ControlLink>;

// How long ranks that come late are told why there is no table.
constexpr milliseconds kRefusalLimit{60'000};
// How long answers may take to leave.
constexpr milliseconds kAnswerLimit{30'000};
// Ranks ask by themselves when their time is over; this is for those that cannot.
constexpr double kOvertime = 10;  // seconds
constexpr size_t kMaxMeetings = 256;
constexpr size_t kFragmentBytes = kMaxPayload / 2;

class Meeting : public std::enable_shared_from_this<Meeting> {
 public:
  Meeting(ControlThread* thread, Listener listener, const MeetingId& id, double timeout_s)
      : thread_(thread),
        door_(std::make_shared<ControlDoor>(thread, std::move(listener), timeout_s)),
        id_(id),
        timeout_s_(timeout_s) {}

  void open();
  void close();
  bool unused() const { return ranks_ < 0; }

 private:
  struct Member {
    LinkPtr link;
    std::string record;
    bool complete = false;
  };

  bool on_hello(const LinkPtr& link, const Frame& hello);
  void on_frame(int rank, const Frame& frame);
  void on_closed(int rank);
  void answer_all();
  void refuse_all(const std::string& why);
  void close_if_answered();
  std::string missing() const;
  template <typename F>
  void after(milliseconds delay, F task);

  ControlThread* thread_;
  std::shared_ptr<ControlDoor> door_;
  MeetingId id_;
  double timeout_s_;
  int ranks_ = -1;  // as the first one says
  int first_ = -1;  // who that was
  uint64_t record_bytes_ = 0;
  size_t complete_ = 0;
  std::string refusal_;
  bool answered_ = false;
  std::map<int, Member> members_;
};

// Touched by the control thread only. Meetings stay here while they last.
std::list<std::shared_ptr<Meeting>>& meetings() {
  static auto* list = new std::list<std::shared_ptr<Meeting>>;
  return *list;
}

template <typename F>
void Meeting::after(milliseconds delay, F task) {
  thread_->after(delay, [weak = weak_from_this(), task = std::move(task)] {
    if (auto self = weak.lock()) task();
  });
}

EncodedFrame refusal_frame(const std::string& why) {
  Frame frame;
  frame.type = FrameType::kRefused;
  frame.payload = why;
  return encode(frame);
}

void Meeting::open() {
  door_->open([this](const LinkPtr& link, Frame& hello) { return on_hello(link, hello); });
  // An id that was made and never used costs a socket: the oldest such one gives way.
  auto& open = meetings();
  open.push_back(shared_from_this());
  if (open.size() <= kMaxMeetings) return;
  auto oldest = std::find_if(open.begin(), open.end(), [](const auto& m) { return m->unused(); });
  if (oldest != open.end()) std::shared_ptr<Meeting>(*oldest)->close();
}

void Meeting::close() {
  door_->close();
  for (auto& [rank, member] : members_) member.link->close();
  // Not here: the caller may be one of its own methods.
  auto& open = meetings();
  auto self = std::find(open.begin(), open.end(), shared_from_this());
  if (self == open.end()) return;
  thread_->post([keep = *self] {});
  open.erase(self);
}

bool Meeting::on_hello(const LinkPtr& link, const Frame& hello) {
  MeetingHello said;
  if (!decode(hello, &said) || !same_secret(said.secret, id_.secret, sizeof(id_.secret))) {
    return false;
  }
  const std::string who = "rank " + std::to_string(said.rank);
  if (refusal_.empty() && ranks_ >= 0) {
    if (said.ranks != ranks_) {
      refuse_all("the ranks disagree on how many they are: rank " + std::to_string(first_) +
                 " says " + std::to_string(ranks_) + ", " + who + " says " +
                 std::to_string(said.ranks));
    } else if (said.record_bytes != record_bytes_) {
      refuse_all(who + " and rank " + std::to_string(first_) +
                 " run different versions of hetccl: install one version everywhere");
    } else if (members_.contains(said.rank)) {
      refuse_all("two processes say that they are " + who + " of " + std::to_string(ranks_));
    }
  }
  if (!refusal_.empty() || answered_) {
    link->send(refusal_frame(answered_ ? "the ranks of this id have met already" : refusal_));
    return false;
  }
  if (ranks_ < 0) {
    ranks_ = said.ranks;
    first_ = said.rank;
    record_bytes_ = said.record_bytes;
    if (timeout_s_ > 0) {
      after(milliseconds(static_cast<int64_t>((std::min(timeout_s_, 1e9) + kOvertime) * 1000)),
            [this] {
              if (!answered_ && refusal_.empty()) refuse_all(missing());
            });
    }
  }
  const int rank = said.rank;
  members_[rank].link = link;
  link->set_max_payload(record_bytes_);
  ControlLink::Callbacks callbacks;
  callbacks.on_frame = [this, rank](Frame& frame) { on_frame(rank, frame); };
  callbacks.on_closed = [this, rank](int, const std::string&) { on_closed(rank); };
  callbacks.on_drained = [this] { close_if_answered(); };
  link->set_callbacks(std::move(callbacks));
  return true;
}

void Meeting::on_frame(int rank, const Frame& frame) {
  auto found = members_.find(rank);
  if (found == members_.end() || answered_) return;
  Member& member = found->second;
  if (frame.type == FrameType::kMissing) return member.link->send(refusal_frame(missing()));
  if (frame.type != FrameType::kJoin || member.complete || frame.payload.size() != record_bytes_) {
    return;
  }
  member.record = frame.payload;
  member.complete = true;
  if (++complete_ == static_cast<size_t>(ranks_)) answer_all();
}

std::string Meeting::missing() const {
  std::string text = "timed out waiting for ";
  size_t count = 0;
  constexpr size_t kMostNamed = 16;
  for (int rank = 0; rank < ranks_; ++rank) {
    auto found = members_.find(rank);
    if (found != members_.end() && found->second.complete) continue;
    if (++count <= kMostNamed) text += (count > 1 ? ", rank " : "rank ") + std::to_string(rank);
  }
  if (count > kMostNamed) text += " and " + std::to_string(count - kMostNamed) + " more";
  return text + " of " + std::to_string(ranks_) + " to come to the meeting";
}

void Meeting::on_closed(int rank) {
  if (answered_) return close_if_answered();
  members_.erase(rank);
  if (refusal_.empty()) {
    refuse_all("rank " + std::to_string(rank) +
               " left the meeting before all had come (its process ended or gave up)");
  }
}

void Meeting::answer_all() {
  answered_ = true;
  door_->close();
  std::string table;
  table.reserve(record_bytes_ * members_.size());
  for (auto& [rank, member] : members_) table += member.record;
  size_t offset = 0;
  while (offset < table.size()) {
    const size_t piece = std::min(table.size() - offset, kFragmentBytes);
    Frame frame;
    frame.type = FrameType::kMet;
    frame.payload = table.substr(offset, piece);
    const EncodedFrame encoded = encode(frame);
    for (auto& [rank, member] : members_) member.link->send(encoded);
    offset += piece;
  }
  after(kAnswerLimit, [this] { close(); });
}

// The ranks close their ends when they have read all.
void Meeting::close_if_answered() {
  if (!answered_) return;
  const bool done = std::all_of(members_.begin(), members_.end(),
                                [](const auto& m) { return !m.second.link->is_open(); });
  if (done) close();
}

void Meeting::refuse_all(const std::string& why) {
  refusal_ = why;
  for (auto& [rank, member] : members_) member.link->send(refusal_frame(why));
  after(kRefusalLimit, [this] { close(); });
}

}  // namespace

Result<hetcclUniqueId> open_meeting(const SessionOptions& options) {
  Result<std::vector<Address>> addresses = select_addresses(options.interfaces, list_interfaces());
  if (!addresses.ok()) return addresses.status();
  Result<LocalPlace> local = find_place("");
  if (!local.ok()) return local.status();
  Result<ControlThread*> thread = ControlThread::get();
  if (!thread.ok()) return thread.status();
  Result<Listener> listener = open_listener();
  if (!listener.ok()) return listener.status();
  MeetingId id = make_meeting_id(*addresses, listener->port, local->machine);
  auto meeting = std::make_shared<Meeting>(*thread, std::move(*listener), id, options.timeout_s);
  (*thread)->call([&] { meeting->open(); });
  return encode(id);
}

}  // namespace hetccl::net

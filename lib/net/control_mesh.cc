#include "lib/net/control_mesh.h"

#include <algorithm>

#include "lib/base/log.h"

namespace hetccl::net {
namespace {

// More than the longest way in a tree of any size that is still sound.
constexpr uint8_t kMaxHops = 250;
// How long output may keep a session open that all ranks have left.
constexpr std::chrono::milliseconds kFlushLimit{5000};
// Within this time the good-bye of a rank that is gone comes round, if it said one, and as often
// again while this rank has no place in the tree.
constexpr std::chrono::milliseconds kGrace{1000};
constexpr int kMostDelays = 2;

std::vector<std::string> nodes_of(const std::vector<SessionRecord>& records) {
  std::vector<std::string> nodes;
  for (const SessionRecord& record : records) nodes.push_back(place_of(record).node);
  return nodes;
}

EncodedFrame state_news(int rank, uint8_t bits) {
  Frame frame;
  frame.type = FrameType::kState;
  frame.payload = Writer().number<int32_t>(rank).number(bits).take();
  return encode(frame);
}

}  // namespace

ControlMesh::ControlMesh(ControlThread* thread, std::vector<SessionRecord> records, int self,
                         double timeout_s, Listener listener)
    : thread_(thread),
      records_(std::move(records)),
      self_(self),
      timeout_s_(timeout_s),
      door_(std::make_shared<ControlDoor>(thread, std::move(listener), timeout_s)),
      tree_(nodes_of(records_), self),
      states_(records_.size(), 0) {}

void ControlMesh::start(MeshClient* client, std::shared_ptr<void> keep_alive) {
  client_ = client;
  keep_alive_ = std::move(keep_alive);
  if (ranks() == 1) return;
  door_->open([this](const LinkPtr& link, Frame& hello) { return on_hello(link, hello); });
  expect_children();
  attach();
}

void ControlMesh::depart() {
  if (closed_) return;
  mark(self_, kDeparted, self_, "");
}

void ControlMesh::abandon() { close(); }

void ControlMesh::close() {
  if (closed_) return;
  closed_ = true;
  stop_dialing();
  for (auto& [rank, link] : links_) link->close();
  for (auto& [rank, process] : processes_) thread_->forget(process.token, process.fd.get());
  while (!probes_.empty()) drop_probe(probes_.begin()->first);
  links_.clear();
  processes_.clear();
  held_.clear();
  door_->close();
  // Not here: the caller may be a method of what would be freed.
  thread_->post([keep = std::move(keep_alive_)] {});
}

bool ControlMesh::attached() const {
  const int parent = tree_.parent(self_);
  return parent < 0 || links_.contains(parent);
}

bool ControlMesh::settled() const {
  if (closed_) return true;
  return heard_ && attached() && held_.empty() &&
         std::all_of(links_.begin(), links_.end(),
                     [](const auto& link) { return link.second->drained(); });
}

// ---- messages

void ControlMesh::send(int to, FrameType type, std::string payload) {
  if (closed_) return;
  Frame frame{type, 0, self_, to, std::move(payload)};
  if (to == self_) return client_->on_message(frame);
  route(to, encode(frame));
}

void ControlMesh::send_to_everybody(FrameType type, std::string payload) {
  if (closed_) return;
  const Frame frame{type, 0, self_, kToEverybody, std::move(payload)};
  const EncodedFrame encoded = encode(frame);
  for (auto& [rank, link] : links_) link->send(encoded);
  client_->on_message(frame);
}

void ControlMesh::route(int to, const EncodedFrame& frame) {
  const int hop = tree_.next_hop(to);
  if (hop < 0) return;  // gone: whoever waits for an answer hears of that instead
  auto link = links_.find(hop);
  if (link == links_.end()) {
    held_.emplace_back(to, frame);
  } else {
    link->second->send(frame);
  }
}

void ControlMesh::flush_held() {
  std::deque<std::pair<int, EncodedFrame>> waiting;
  waiting.swap(held_);
  for (auto& [to, frame] : waiting) route(to, frame);
}

void ControlMesh::on_link_frame(int rank, Frame& frame) {
  if (closed_) return;
  if (frame.type == FrameType::kSync) return on_sync(rank, frame);
  if (frame.type == FrameType::kState) {
    Reader reader(frame.payload);
    const int about = reader.number<int32_t>();
    const uint8_t bits = reader.number<uint8_t>();
    if (reader.done() && about >= 0 && about < ranks()) mark(about, bits, rank, "");
    return;
  }
  const bool known = frame.from >= 0 && frame.from < ranks();
  if (!known || frame.to < kToEverybody || frame.to == kToLink || frame.to >= ranks()) return;
  if (frame.to == self_) {
    if (frame.type != FrameType::kHeard) return client_->on_message(frame);
    heard_ = true;
    return;
  }
  if (++frame.hops > kMaxHops) return;
  const EncodedFrame encoded = encode(frame);
  if (frame.to != kToEverybody) return route(frame.to, encoded);
  for (auto& [other, link] : links_) {
    if (other != rank) link->send(encoded);
  }
  client_->on_message(frame);
}

// ---- what is known of the ranks

std::string ControlMesh::encode_states() const {
  return std::string(states_.begin(), states_.end());
}

void ControlMesh::on_sync(int rank, const Frame& frame) {
  if (frame.payload.size() != states_.size()) return;
  const auto merge = [&](int about) {
    const auto bits = static_cast<uint8_t>(frame.payload[static_cast<size_t>(about)]);
    if (bits != 0 && !closed_) mark(about, bits, rank, "");
  };
  // Its own good-bye first: who confirms the others' depends on that.
  merge(rank);
  for (int about = 0; about < ranks(); ++about) merge(about);
  if ((state(rank) & kDeparted) != 0) confirm(rank, rank);
}

// Said by the first rank on a good-bye's way that stays: whatever happens to those between, this
// rank hands it on.
void ControlMesh::confirm(int rank, int origin) {
  const bool from_one_that_leaves = origin == rank || (state(origin) & kDeparted) != 0;
  if (closed_ || rank == self_ || !from_one_that_leaves || (state(self_) & kDeparted) != 0) return;
  send(rank, FrameType::kHeard, "");
}

void ControlMesh::establish(int rank, LinkPtr link) {
  auto& slot = links_[rank];
  if (slot != nullptr && slot != link) slot->close();
  slot = std::move(link);
  slot->set_max_payload(kMaxPayload);
  drop_probe(rank);
  watch_process(rank);
  flush_held();
}

void ControlMesh::drop_probe(int rank) {
  auto found = probes_.find(rank);
  if (found == probes_.end()) return;
  if (found->second.link != nullptr) found->second.link->close();
  probes_.erase(found);
}

void ControlMesh::mark(int rank, uint8_t bits, int origin, const std::string& why) {
  uint8_t& state = states_[static_cast<size_t>(rank)];
  uint8_t news = bits & static_cast<uint8_t>(~state);
  // Whoever has said good-bye may end as it likes, whatever order the news came in.
  if ((state & kDeparted) != 0) news &= static_cast<uint8_t>(~kDead);
  if (news == 0 || closed_) return;
  state |= news;
  const EncodedFrame frame = state_news(rank, news);
  for (auto& [other, link] : links_) {
    if (other != origin && other != rank) link->send(frame);
  }
  if ((news & kDeparted) != 0) confirm(rank, origin);
  if (!why.empty()) reasons_[rank] = why;
  if ((news & kDead) != 0) {
    const std::string& reason = reasons_[rank];
    log::info("control plane: " + describe_rank(rank, record(rank)) + " is lost" +
              (reason.empty() ? "" : ": " + reason));
  }
  client_->on_state(rank, news, reasons_[rank]);
  if ((news & kGone) != 0 && (state & (kDead | kDeparted)) == 0) {
    after(kGrace, [this, rank] { judge(rank, kMostDelays); });
  }
  if ((news & kGone) != 0 && rank != self_) lose(rank);
  finish_if_done();
}

void ControlMesh::judge(int rank, int delays_left) {
  if ((state(rank) & (kDead | kDeparted)) != 0) return;
  if (attached() || delays_left == 0) return mark(rank, kDead, self_, "");
  after(kGrace, [this, rank, delays_left] { judge(rank, delays_left - 1); });
}

void ControlMesh::lose(int rank) {
  if (closed_) return;
  // What it sent before it went still counts.
  if (auto found = links_.find(rank); found != links_.end()) {
    const LinkPtr link = found->second;
    link->drain_input();
    link->close();
    links_.erase(rank);
  }
  if (auto found = processes_.find(rank); found != processes_.end()) {
    thread_->forget(found->second.token, found->second.fd.get());
    processes_.erase(found);
  }
  if (closed_ || tree_.gone(rank)) return;
  drop_probe(rank);
  tree_.set_gone(rank);
  if (dial_.rank == rank) stop_dialing();
  attach();
  expect_children();
  flush_held();
  client_->on_tree_changed();
}

void ControlMesh::on_link_closed(int rank, int error, const std::string& why) {
  if (closed_) return;
  links_.erase(rank);
  // A connection that was reset may have taken a good-bye with it.
  const bool certain = error == 0 && (state(rank) & kDeparted) == 0;
  mark(rank, certain ? kGone | kDead : kGone, self_, why);
}

void ControlMesh::finish_if_done() {
  if (closed_ || (state(self_) & kDeparted) == 0) return;
  const bool all = std::all_of(states_.begin(), states_.end(), [](uint8_t s) { return s != 0; });
  if (!all) return;
  const bool drained = std::all_of(links_.begin(), links_.end(),
                                   [](const auto& link) { return link.second->drained(); });
  if (drained) return close();
  if (!std::exchange(finishing_, true)) after(kFlushLimit, [this] { close(); });
}

}  // namespace hetccl::net

#include "lib/net/session_groups.h"

#include <algorithm>

#include "lib/base/log.h"

namespace hetccl::net {
namespace {

// Of messages for groups that are not joined yet. A group's card exchange stays far below.
constexpr size_t kMaxEarlyBytes = size_t{1} << 30;
constexpr size_t kMaxLeft = 4096;
constexpr size_t kMaxAnnouncements = 64;
constexpr size_t kFragmentBytes = kMaxPayload / 2;
// From this part of the session on, a table goes to all rather than to each.
constexpr size_t kEverybodyShare = 4;
constexpr size_t kMostNamed = 16;  // ranks in one text

std::string failure_payload(GroupId id, const Status& why) {
  // A text has to fit a frame.
  return Writer()
      .number(id)
      .number<int32_t>(why.code())
      .text(std::string_view(why.message()).substr(0, 64 * 1024))
      .take();
}

}  // namespace

void Exchange::finish(Status why) {
  std::lock_guard lock(mutex);
  if (done) return;
  done = true;
  status = std::move(why);
  condition.notify_all();
}

void SessionGroups::set_mesh(ControlMesh* mesh) {
  mesh_ = mesh;
  loss_reasons_.resize(static_cast<size_t>(mesh->ranks()));
  comparison_.emplace(thread_, mesh,
                      [this](GroupId id, const std::vector<int>& members, const Status& why) {
                        for (int member : members) {
                          mesh_->send(member, FrameType::kFailure, failure_payload(id, why));
                        }
                      });
}

SessionGroups::Group* SessionGroups::find(GroupId id) {
  auto found = groups_.find(id);
  return found == groups_.end() ? nullptr : found->second.get();
}

int SessionGroups::index_of(const Group& group, int rank) const {
  auto found = std::find(group.members.begin(), group.members.end(), rank);
  return found == group.members.end() ? -1 : static_cast<int>(found - group.members.begin());
}

// ---- membership

Status SessionGroups::join(GroupId id, std::vector<int> members, GroupListener* listener) {
  if (groups_.contains(id)) {
    return internal_error("group " + std::to_string(id) + " exists already in this session");
  }
  std::vector<int> sorted = members;
  std::sort(sorted.begin(), sorted.end());
  const bool sound = !sorted.empty() && sorted.front() >= 0 && sorted.back() < mesh_->ranks() &&
                     std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end() &&
                     std::binary_search(sorted.begin(), sorted.end(), mesh_->self());
  if (!sound) return internal_error("group " + std::to_string(id) + ": the members are not sound");
  auto made = std::make_unique<Group>();
  Group& group = *made;
  group.id = id;
  group.members = std::move(members);
  group.index = index_of(group, mesh_->self());
  group.listener = listener;
  groups_[id] = std::move(made);
  left_.erase(id);
  for (int member : group.members) {
    if ((mesh_->state(member) & kDead) != 0) {
      fail_as_heard(group, loss(group, member, loss_reasons_[static_cast<size_t>(member)]));
    }
  }
  std::deque<std::pair<GroupId, Frame>> early;
  early.swap(early_);
  early_bytes_ = 0;
  for (auto& [other, frame] : early) {
    if (other == id) {
      on_joined_message(frame, group);
    } else {
      keep_for_later(other, frame);
    }
  }
  return {};
}

void SessionGroups::leave(GroupId id) {
  Group* group = find(id);
  if (group == nullptr) return;
  fail_rounds(*group, invalid_usage("the communicator was destroyed meanwhile"));
  groups_.erase(id);
  if (left_.insert(id).second) left_order_.push_back(id);
  if (left_order_.size() > kMaxLeft) {
    left_.erase(left_order_.front());
    left_order_.pop_front();
  }
}

void SessionGroups::leave_all() {
  while (!groups_.empty()) leave(groups_.begin()->first);
}

void SessionGroups::keep_for_later(GroupId id, const Frame& frame) {
  if (left_.contains(id)) return;
  early_.emplace_back(id, frame);
  early_bytes_ += frame.payload.size();
  while (early_bytes_ > kMaxEarlyBytes) {
    log::warn("control plane: dropped a message for a communicator that was never made here");
    early_bytes_ -= early_.front().second.payload.size();
    early_.pop_front();
  }
}

void SessionGroups::on_message(const Frame& frame) {
  switch (frame.type) {
    case FrameType::kCompare:
      return comparison_->on_request(frame);
    case FrameType::kAnswer:
      return comparison_->on_answer(frame);
    case FrameType::kAsk:
      return on_ask(frame);
    default:
      break;
  }
  Reader reader(frame.payload);
  const GroupId id = reader.number<uint64_t>();
  if (!reader.ok()) return;
  if (Group* group = find(id)) return on_joined_message(frame, *group);
  // Only members that wait want a table, and only they are asked who is missing.
  if (frame.type == FrameType::kPart || frame.type == FrameType::kFailure) {
    keep_for_later(id, frame);
  }
}

void SessionGroups::on_joined_message(const Frame& frame, Group& group) {
  Reader reader(frame.payload);
  reader.number<uint64_t>();  // the group
  if (index_of(group, frame.from) < 0 && frame.type != FrameType::kFailure) return;
  switch (frame.type) {
    case FrameType::kPart:
      return on_part(frame, group, reader);
    case FrameType::kTable:
      return on_table(group, reader);
    case FrameType::kMissing:
      return on_missing(frame, group, reader);
    case FrameType::kFailure:
      return on_failure(group, reader);
    default:
      return;
  }
}

// ---- failures

void SessionGroups::fail_rounds(Group& group, const Status& why) {
  std::map<uint64_t, Round> rounds;
  rounds.swap(group.rounds);
  for (auto& [call, round] : rounds) {
    if (round.exchange != nullptr) round.exchange->finish(why);
  }
}

void SessionGroups::fail(Group& group, const Status& why) {
  if (group.failure.ok()) group.failure = why;
  fail_rounds(group, why);
}

void SessionGroups::fail_as_heard(Group& group, const Status& why) {
  group.heard = true;
  fail(group, why);
  group.listener->on_failure(why);
}

void SessionGroups::on_failure(Group& group, Reader reader) {
  const int code = reader.number<int32_t>();
  const std::string_view text = reader.text();
  if (!reader.done() || code <= hetcclSuccess || code > hetcclTimeout) return;
  const Status why(static_cast<hetcclResult_t>(code), std::string(text));
  // Repeated after a change of the tree.
  if (group.heard && group.failure.code() == why.code() &&
      group.failure.message() == why.message()) {
    return;
  }
  fail_as_heard(group, why);
}

void SessionGroups::announce_failure(GroupId id, hetcclResult_t code, const std::string& text) {
  Group* group = find(id);
  if (group == nullptr || code == hetcclSuccess) return;
  if (group->heard) return;
  const Status why(code, text);
  fail(*group, why);
  Announcement said{{}, failure_payload(id, why)};
  for (int member : group->members) {
    if (member == mesh_->self()) continue;
    said.to.push_back(member);
    mesh_->send(member, FrameType::kFailure, said.payload);
  }
  announcements_.push_back(std::move(said));
  if (announcements_.size() > kMaxAnnouncements) announcements_.pop_front();
}

Status SessionGroups::loss(const Group& group, int rank, const std::string& why) const {
  const std::string who = describe_rank(index_of(group, rank), mesh_->record(rank));
  if (rank == mesh_->self()) {
    return remote_error("the other ranks lost the connection to this one, " + who +
                        ", and have given it up");
  }
  return remote_error(who + " died" + (why.empty() ? "" : " (" + why + ")"));
}

void SessionGroups::on_state(int rank, uint8_t news, const std::string& why) {
  if ((news & kDead) != 0) loss_reasons_[static_cast<size_t>(rank)] = why;
  std::vector<GroupId> concerned;
  for (auto& [id, group] : groups_) {
    if (index_of(*group, rank) >= 0) concerned.push_back(id);
  }
  for (GroupId id : concerned) {
    Group* group = find(id);
    if (group == nullptr) continue;
    if ((news & kDead) != 0) {
      fail_as_heard(*group, loss(*group, rank, why));
    } else if ((news & kDeparted) != 0 && rank == group->members[0] && rank != mesh_->self()) {
      // Nobody is left who could collect the shares.
      fail_rounds(*group, remote_error(describe_rank(0, mesh_->record(rank)) +
                                       " has left the communicator"));
    }
  }
  if ((news & kGone) != 0) comparison_->on_lost(rank);
}

void SessionGroups::on_tree_changed() {
  for (auto& [id, group] : groups_) {
    if (group->index == 0) continue;
    for (auto& [call, round] : group->rounds) {
      if (round.exchange != nullptr) send_share(*group, call, round);
    }
  }
  for (const Announcement& said : announcements_) {
    for (int member : said.to) mesh_->send(member, FrameType::kFailure, said.payload);
  }
}

// ---- comparison of calls

void SessionGroups::compare_calls(GroupId id, uint64_t sequence) {
  if (Group* group = find(id)) comparison_->request(id, sequence, group->members);
}

void SessionGroups::on_ask(const Frame& frame) {
  Reader reader(frame.payload);
  const GroupId id = reader.number<uint64_t>();
  const uint64_t sequence = reader.number<uint64_t>();
  const uint64_t number = reader.number<uint64_t>();
  if (!reader.done()) return;
  CallAnswer answer = CallAnswer::kNotHere;
  CallRecord call;
  if (Group* group = find(id)) {
    answer =
        group->listener->describe_call(sequence, &call) ? CallAnswer::kMade : CallAnswer::kNotYet;
  }
  mesh_->send(frame.from, FrameType::kAnswer,
              Writer()
                  .number(number)
                  .number(static_cast<uint8_t>(answer))
                  .number(call.hash)
                  .text(std::string_view(call.text).substr(0, 16 * 1024))
                  .take());
}

// ---- allgather

void SessionGroups::start_allgather(GroupId id, const std::string& mine,
                                    std::shared_ptr<Exchange> exchange) {
  Group* group = find(id);
  if (group == nullptr) {
    return exchange->finish(internal_error("group " + std::to_string(id) + " was not joined"));
  }
  if (!group->failure.ok()) return exchange->finish(group->failure);
  const int first = group->members[0];
  if (first != mesh_->self() && (mesh_->state(first) & kDeparted) != 0) {
    return exchange->finish(
        remote_error(describe_rank(0, mesh_->record(first)) + " has left the communicator"));
  }
  const uint64_t call = group->calls++;
  Round& round = group->rounds[call];
  round.mine = mine;
  round.exchange = std::move(exchange);
  send_share(*group, call, round);
}

void SessionGroups::send_share(Group& group, uint64_t call, const Round& round) {
  const std::string bytes = round.mine;  // the round may end while it is sent
  size_t offset = 0;
  do {
    const size_t piece = std::min(bytes.size() - offset, kFragmentBytes);
    mesh_->send(group.members[0], FrameType::kPart,
                Writer()
                    .number(group.id)
                    .number(call)
                    .number<uint64_t>(bytes.size())
                    .number<uint64_t>(offset)
                    .raw(std::string_view(bytes).substr(offset, piece))
                    .take());
    offset += piece;
  } while (offset < bytes.size());
}

void SessionGroups::on_part(const Frame& frame, Group& group, Reader reader) {
  const uint64_t call = reader.number<uint64_t>();
  const uint64_t total = reader.number<uint64_t>();
  const uint64_t offset = reader.number<uint64_t>();
  const int index = index_of(group, frame.from);
  if (!reader.ok() || group.index != 0 || index < 0 || !group.failure.ok()) return;
  if (group.last_round && call <= *group.last_round) {
    if (call == *group.last_round && offset == 0) send_table(group, call, frame.from);
    return;
  }
  Round& round = group.rounds[call];
  round.shares.resize(group.members.size());
  Share& share = round.shares[static_cast<size_t>(index)];
  if (share.complete) return;
  if (offset == 0) share.bytes.clear();
  if (share.bytes.size() != offset) return;  // the rest of a share that is being sent again
  share.bytes.append(reader.rest());
  if (share.bytes.size() != total) return;
  share.complete = true;
  if (++round.arrived == group.members.size()) complete(group, call);
}

void SessionGroups::complete(Group& group, uint64_t call) {
  Writer writer;
  for (const Share& share : group.rounds[call].shares) writer.text(share.bytes);
  group.last_table = writer.take();
  group.last_round = call;
  send_table(group, call, kToEverybody);
}

// To one member that asks again, or to all.
void SessionGroups::send_table(Group& group, uint64_t call, int only_to) {
  const std::string table = group.last_table;
  const std::vector<int> members = group.members;
  const GroupId id = group.id;
  const bool everybody = only_to == kToEverybody && members.size() > 2 &&
                         members.size() * kEverybodyShare >= static_cast<size_t>(mesh_->ranks());
  size_t offset = 0;
  do {
    const size_t piece = std::min(table.size() - offset, kFragmentBytes);
    const std::string payload = Writer()
                                    .number(id)
                                    .number(call)
                                    .number<uint64_t>(table.size())
                                    .number<uint64_t>(offset)
                                    .raw(std::string_view(table).substr(offset, piece))
                                    .take();
    offset += piece;
    if (everybody) {
      mesh_->send_to_everybody(FrameType::kTable, payload);
    } else {
      for (int member : members) {
        if (only_to != kToEverybody && member != only_to) continue;
        mesh_->send(member, FrameType::kTable, payload);
      }
    }
  } while (offset < table.size());
}

void SessionGroups::on_table(Group& group, Reader reader) {
  const uint64_t call = reader.number<uint64_t>();
  const uint64_t total = reader.number<uint64_t>();
  const uint64_t offset = reader.number<uint64_t>();
  auto found = group.rounds.find(call);
  if (!reader.ok() || found == group.rounds.end() || found->second.exchange == nullptr) return;
  Round& round = found->second;
  if (offset == 0) round.table.clear();
  if (round.table.size() != offset) return;
  round.table.append(reader.rest());
  if (round.table.size() != total) return;
  std::vector<std::string> all;
  Reader table(round.table);
  for (size_t i = 0; i < group.members.size(); ++i) all.emplace_back(table.text());
  const std::shared_ptr<Exchange> exchange = std::move(round.exchange);
  const bool sound = table.done();
  group.rounds.erase(found);
  {
    std::lock_guard lock(exchange->mutex);
    exchange->all = std::move(all);
  }
  exchange->finish(sound ? Status() : internal_error("a table of shares is malformed"));
}

// ---- deadlines

std::string SessionGroups::missing_text(const Group& group, uint64_t call) const {
  std::vector<int> missing;
  const auto found = group.rounds.find(call);
  for (size_t i = 0; i < group.members.size(); ++i) {
    const bool has = found != group.rounds.end() && i < found->second.shares.size() &&
                     found->second.shares[i].complete;
    if (!has) missing.push_back(static_cast<int>(i));
  }
  return describe_members(missing);
}

std::string SessionGroups::describe_members(const std::vector<int>& members) const {
  std::string text = members.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < members.size() && i < kMostNamed; ++i) {
    text += (i > 0 ? ", " : "") + std::to_string(members[i]);
  }
  if (members.size() > kMostNamed) {
    text += " and " + std::to_string(members.size() - kMostNamed) + " more";
  }
  return text;
}

void SessionGroups::expire(GroupId id, const std::shared_ptr<Exchange>& exchange) {
  Group* group = find(id);
  if (group == nullptr) return exchange->finish(timeout_error("timed out"));
  for (auto& [call, round] : group->rounds) {
    if (round.exchange != exchange) continue;
    if (group->index == 0) {
      const Status why =
          timeout_error("timed out waiting for " + missing_text(*group, call) + " of " +
                        std::to_string(group->members.size()) + " to join the exchange");
      // Whatever patience the others have, nobody collects any more.
      const std::string answer =
          Writer().number(id).number(call).number<uint8_t>(1).text(why.message()).take();
      for (size_t i = 1; i < group->members.size(); ++i) {
        mesh_->send(group->members[i], FrameType::kMissing, answer);
      }
      return fail(*group, why);
    }
    // Member 0 knows more.
    return mesh_->send(group->members[0], FrameType::kMissing,
                       Writer().number(id).number(call).number<uint8_t>(0).text("").take());
  }
}

void SessionGroups::on_missing(const Frame& frame, Group& group, Reader reader) {
  const uint64_t call = reader.number<uint64_t>();
  const bool is_answer = reader.number<uint8_t>() != 0;
  const std::string text(reader.text());
  if (!reader.done()) return;
  if (!is_answer) {
    // A failed group has thrown away who was there, but kept what it made of that.
    const std::string answer =
        group.failure.ok() ? "timed out waiting for " + missing_text(group, call) + " of " +
                                 std::to_string(group.members.size()) + " to join the exchange"
                           : group.failure.message();
    return mesh_->send(
        frame.from, FrameType::kMissing,
        Writer().number(group.id).number(call).number<uint8_t>(1).text(answer).take());
  }
  auto found = group.rounds.find(call);
  if (found != group.rounds.end() && found->second.exchange != nullptr) {
    fail(group, timeout_error(text));
  }
}

}  // namespace hetccl::net

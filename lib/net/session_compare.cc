#include "lib/net/session_compare.h"

#include <algorithm>
#include <unordered_map>

#include "lib/base/log.h"

namespace hetccl::net {
namespace {

// Whoever has not answered by then (a stopped process) is left out.
constexpr std::chrono::milliseconds kAnswerLimit{1000};

std::string list_ranks(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(ranks[i]);
  return text;
}

}  // namespace

std::optional<std::pair<int, int>> find_disagreement(
    const std::vector<std::optional<CallRecord>>& calls) {
  std::unordered_map<uint64_t, size_t> votes;
  size_t made = 0;
  const CallRecord* reference = nullptr;
  for (const auto& call : calls) {
    if (!call) continue;
    if (reference == nullptr) reference = &*call;
    ++made;
    ++votes[call->hash];
  }
  if (votes.size() < 2) return std::nullopt;
  for (const auto& call : calls) {
    if (call && votes[call->hash] * 2 > made) {
      reference = &*call;
      break;
    }
  }
  int alike = -1;
  int differs = -1;
  for (int rank = static_cast<int>(calls.size()) - 1; rank >= 0; --rank) {
    const auto& call = calls[static_cast<size_t>(rank)];
    if (call) (call->hash == reference->hash ? alike : differs) = rank;
  }
  return std::minmax({alike, differs});
}

std::string describe_disagreement(uint64_t sequence, const std::pair<int, int>& ranks,
                                  const std::vector<std::optional<CallRecord>>& calls) {
  const auto one = [&](int rank) {
    return "rank " + std::to_string(rank) + ": " + calls[static_cast<size_t>(rank)]->text;
  };
  return "ranks " + std::to_string(ranks.first) + " and " + std::to_string(ranks.second) +
         " disagree in call " + std::to_string(sequence) + ": " + one(ranks.first) + "; " +
         one(ranks.second);
}

// Not simply member 0, which may have said good-bye while others still wait.
void CallComparison::request(GroupId id, uint64_t sequence, const std::vector<int>& members) {
  Writer writer;
  writer.number(id).number(sequence).number<uint32_t>(static_cast<uint32_t>(members.size()));
  for (int member : members) writer.number<int32_t>(member);
  for (int member : members) {
    if (mesh_->state(member) == 0) {
      return mesh_->send(member, FrameType::kCompare, writer.take());
    }
  }
}

void CallComparison::on_request(const Frame& frame) {
  Reader reader(frame.payload);
  Inquiry inquiry;
  inquiry.id = reader.number<uint64_t>();
  inquiry.sequence = reader.number<uint64_t>();
  const uint32_t count = reader.number<uint32_t>();
  for (uint32_t i = 0; i < count && reader.ok(); ++i) {
    const int member = reader.number<int32_t>();
    if (member < 0 || member >= mesh_->ranks()) return;
    inquiry.members.push_back(member);
  }
  if (!reader.done() || inquiry.members.empty()) return;
  // All members that wait ask at about the same time: one inquiry serves them.
  for (const auto& [number, other] : inquiries_) {
    if (other.id == inquiry.id && other.sequence == inquiry.sequence) return;
  }
  const uint64_t number = next_number_++;
  inquiry.calls.resize(inquiry.members.size());
  inquiry.answered.resize(inquiry.members.size(), false);
  inquiry.open = inquiry.members.size();
  const std::string ask =
      Writer().number(inquiry.id).number(inquiry.sequence).number(number).take();
  const std::vector<int> members = inquiry.members;
  inquiry.timer = thread_->after(
      kAnswerLimit, [this, number, alive = std::weak_ptr<ControlMesh>(mesh_->weak_from_this())] {
        if (auto mesh = alive.lock(); mesh != nullptr && !mesh->closed()) conclude(number);
      });
  inquiries_.emplace(number, std::move(inquiry));
  for (int member : members) mesh_->send(member, FrameType::kAsk, ask);
  for (int member : members) {
    if ((mesh_->state(member) & kGone) != 0) on_lost(member);
  }
}

void CallComparison::on_answer(const Frame& frame) {
  Reader reader(frame.payload);
  const uint64_t number = reader.number<uint64_t>();
  const auto answer = static_cast<CallAnswer>(reader.number<uint8_t>());
  CallRecord call;
  call.hash = reader.number<uint64_t>();
  call.text = reader.text();
  auto found = inquiries_.find(number);
  if (!reader.done() || found == inquiries_.end()) return;
  Inquiry& inquiry = found->second;
  for (size_t i = 0; i < inquiry.members.size(); ++i) {
    if (inquiry.members[i] != frame.from || inquiry.answered[i]) continue;
    inquiry.answered[i] = true;
    if (answer == CallAnswer::kMade) inquiry.calls[i] = std::move(call);
    if (--inquiry.open == 0) conclude(number);
    return;
  }
}

void CallComparison::on_lost(int rank) {
  std::vector<uint64_t> complete;
  for (auto& [number, inquiry] : inquiries_) {
    for (size_t i = 0; i < inquiry.members.size(); ++i) {
      if (inquiry.members[i] != rank || inquiry.answered[i]) continue;
      inquiry.answered[i] = true;
      if (--inquiry.open == 0) complete.push_back(number);
    }
  }
  for (uint64_t number : complete) conclude(number);
}

void CallComparison::conclude(uint64_t number) {
  auto found = inquiries_.find(number);
  if (found == inquiries_.end()) return;
  const Inquiry inquiry = std::move(found->second);
  inquiries_.erase(found);
  thread_->cancel(inquiry.timer);
  if (const auto pair = find_disagreement(inquiry.calls)) {
    return verdict_(inquiry.id, inquiry.members,
                    invalid_usage(describe_disagreement(inquiry.sequence, *pair, inquiry.calls)));
  }
  std::vector<int> missing;
  for (size_t i = 0; i < inquiry.calls.size(); ++i) {
    if (!inquiry.calls[i]) missing.push_back(static_cast<int>(i));
  }
  if (!missing.empty() && log::enabled(log::Level::kInfo)) {
    log::info("call " + std::to_string(inquiry.sequence) + " waits: " + list_ranks(missing) +
              " of " + std::to_string(inquiry.calls.size()) + " did not make it yet");
  }
}

}  // namespace hetccl::net

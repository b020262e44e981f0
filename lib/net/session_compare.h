// The comparison of argument lists: one rank, the coordinator, asks all members of a group for what
// they were asked to do in their k-th call and, if two differ, tells all.
//
// Thread rule: the control thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lib/net/control.h"
#include "lib/net/control_mesh.h"

namespace hetccl::net {

enum class CallAnswer : uint8_t { kMade = 1, kNotYet = 2, kNotHere = 3 };

// Two members that differ, the lower one first; none: all that have made the call agree. Where more
// than half agree, one that does not is named and one of those; else the lowest that differ.
std::optional<std::pair<int, int>> find_disagreement(
    const std::vector<std::optional<CallRecord>>& calls);
std::string describe_disagreement(uint64_t sequence, const std::pair<int, int>& ranks,
                                  const std::vector<std::optional<CallRecord>>& calls);

class CallComparison {
 public:
  using Verdict = std::function<void(GroupId, const std::vector<int>& members, const Status&)>;
  CallComparison(ControlThread* thread, ControlMesh* mesh, Verdict verdict)
      : thread_(thread), mesh_(mesh), verdict_(std::move(verdict)) {}

  // Sends the request to whoever coordinates `members`.
  void request(GroupId id, uint64_t sequence, const std::vector<int>& members);
  void on_request(const Frame& frame);
  void on_answer(const Frame& frame);
  void on_lost(int rank);

 private:
  struct Inquiry {
    GroupId id;
    uint64_t sequence;
    std::vector<int> members;
    std::vector<std::optional<CallRecord>> calls;
    std::vector<bool> answered;
    size_t open;  // answers that are still to come
    uint64_t timer = 0;
  };
  void conclude(uint64_t number);

  ControlThread* thread_;
  ControlMesh* mesh_;
  Verdict verdict_;
  uint64_t next_number_ = 1;
  std::map<uint64_t, Inquiry> inquiries_;
};

}  // namespace hetccl::net

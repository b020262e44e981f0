// The communicators of a session, as one rank sees them: who belongs to them, whether they have
// failed, the allgathers in progress, and the comparison of calls.
//
// Allgather: every member sends its share to member 0, which sends the table of all shares back.
// Shares and tables travel in fragments that fit a frame. When the tree changes, members that still
// wait send their share again, and member 0 answers a share that it has had with the table.
//
// Thread rule: the control thread only, except for Exchange.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "lib/net/control.h"
#include "lib/net/control_mesh.h"
#include "lib/net/session_compare.h"

namespace hetccl::net {

// Where a thread waits for an allgather.
struct Exchange {
  std::mutex mutex;
  std::condition_variable condition;
  bool done = false;
  Status status;
  std::vector<std::string> all;

  void finish(Status why);
};

class SessionGroups final : public MeshClient {
 public:
  explicit SessionGroups(ControlThread* thread) : thread_(thread) {}
  void set_mesh(ControlMesh* mesh);

  Status join(GroupId id, std::vector<int> members, GroupListener* listener);
  void leave(GroupId id);
  void leave_all();
  void start_allgather(GroupId id, const std::string& mine, std::shared_ptr<Exchange> exchange);
  // The deadline has passed: finishes the exchange with what member 0 knows of the others.
  void expire(GroupId id, const std::shared_ptr<Exchange>& exchange);
  void announce_failure(GroupId id, hetcclResult_t code, const std::string& text);
  void compare_calls(GroupId id, uint64_t sequence);

  // MeshClient
  void on_message(const Frame& frame) override;
  void on_state(int rank, uint8_t news, const std::string& why) override;
  void on_tree_changed() override;

 private:
  struct Share {
    std::string bytes;
    bool complete = false;
  };
  // The k-th allgather of a group.
  struct Round {
    std::string mine;
    std::shared_ptr<Exchange> exchange;  // none: this rank has not come to it yet
    std::vector<Share> shares;           // at member 0
    size_t arrived = 0;
    std::string table;  // as far as it has come
  };
  struct Group {
    GroupId id;
    std::vector<int> members;
    int index = 0;  // of this rank
    GroupListener* listener = nullptr;
    Status failure;
    bool heard = false;  // the failure came from elsewhere: the others know
    uint64_t calls = 0;  // allgathers of this rank
    std::map<uint64_t, Round> rounds;
    std::optional<uint64_t> last_round;  // at member 0: the last one that is complete,
    std::string last_table;              // and what it gave
  };
  struct Announcement {
    std::vector<int> to;
    std::string payload;
  };

  Group* find(GroupId id);
  int index_of(const Group& group, int rank) const;
  void on_part(const Frame& frame, Group& group, Reader reader);
  void on_table(Group& group, Reader reader);
  void on_missing(const Frame& frame, Group& group, Reader reader);
  void on_failure(Group& group, Reader reader);
  void on_ask(const Frame& frame);
  void on_joined_message(const Frame& frame, Group& group);
  void send_share(Group& group, uint64_t call, const Round& round);
  void send_table(Group& group, uint64_t call, int only_to);
  void complete(Group& group, uint64_t call);
  void fail(Group& group, const Status& why);  // known here only
  void fail_as_heard(Group& group, const Status& why);
  void fail_rounds(Group& group, const Status& why);
  Status loss(const Group& group, int rank, const std::string& why) const;
  std::string missing_text(const Group& group, uint64_t call) const;
  void keep_for_later(GroupId id, const Frame& frame);
  std::string describe_members(const std::vector<int>& members) const;

  ControlThread* thread_;
  ControlMesh* mesh_ = nullptr;
  std::optional<CallComparison> comparison_;
  std::unordered_map<GroupId, std::unique_ptr<Group>> groups_;
  std::vector<std::string> loss_reasons_;  // what this rank saw, by rank
  // Messages for groups that this rank will join.
  std::deque<std::pair<GroupId, Frame>> early_;
  size_t early_bytes_ = 0;
  // Groups that this rank has left lately: what still comes for them is dropped.
  std::unordered_set<GroupId> left_;
  std::deque<GroupId> left_order_;
  // Said lately, and said again when the tree changes: the first may have been lost on its way.
  std::deque<Announcement> announcements_;
};

}  // namespace hetccl::net

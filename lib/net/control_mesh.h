// The sockets between the ranks of a session: keeps the tree connected, passes messages along it,
// and knows of every rank whether it is there, has said good-bye, or is dead.
//
// What is known of a rank only ever grows (departed, gone, dead); every link begins with an
// exchange of all that both ends know and then carries news, so that all ranks come to know the
// same even where the tree was cut meanwhile. When a neighbour is gone, the ranks below it attach
// to another (ControlTree says to which). Messages under way through a rank that goes may be lost;
// senders repeat theirs when the client hears that the tree has changed.
//
// A rank that has said good-bye goes on forwarding until all have, or until its process ends. Its
// process should not end before it is settled(): a rank that stays has confirmed the good-bye. So a
// rank that is gone and of which no good-bye comes round within a while is dead.
//
// Thread rule: the control thread only.
#pragma once

#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lib/net/control_door.h"
#include "lib/net/control_link.h"
#include "lib/net/control_thread.h"
#include "lib/net/control_tree.h"
#include "lib/net/session_record.h"

namespace hetccl::net {

enum RankState : uint8_t {
  kDeparted = 1,  // has said good-bye
  kGone = 2,      // no longer takes part in the tree
  kDead = 4,      // gone without a good-bye
};

class MeshClient {
 public:
  virtual ~MeshClient() = default;
  virtual void on_message(const Frame& frame) = 0;
  // `news`: RankState bits that are new of `rank`; `why`: what this rank saw, or empty.
  virtual void on_state(int rank, uint8_t news, const std::string& why) = 0;
  virtual void on_tree_changed() = 0;
};

class ControlMesh : public std::enable_shared_from_this<ControlMesh> {
 public:
  ControlMesh(ControlThread* thread, std::vector<SessionRecord> records, int self, double timeout_s,
              Listener listener);

  // `client` lives until the mesh has closed: the mesh holds on to `keep_alive` until then.
  void start(MeshClient* client, std::shared_ptr<void> keep_alive);
  void depart();   // good-bye: closes by itself once all have said so
  void abandon();  // closes now, which the others take for a death

  void send(int to, FrameType type, std::string payload);
  void send_to_everybody(FrameType type, std::string payload);
  // After depart(): nothing is left to be said, and the good-bye is known to a rank that stays.
  bool settled() const;
  bool closed() const { return closed_; }

  int self() const { return self_; }
  int ranks() const { return static_cast<int>(records_.size()); }
  const SessionRecord& record(int rank) const { return records_[static_cast<size_t>(rank)]; }
  uint8_t state(int rank) const { return states_[static_cast<size_t>(rank)]; }

 private:
  using LinkPtr = std::shared_ptr<ControlLink>;
  // The attempt to reach a parent.
  struct Dial {
    int rank = -1;  // none
    LinkPtr link;
    size_t candidate = 0;  // address
    bool refused = true;   // at all addresses of this round
    std::string why;
    Clock::time_point since;
    uint64_t timer = 0;
  };
  struct Process {
    Fd fd;
    uint64_t token = 0;
  };
  // Attempts to reach a child that has not attached, only to learn whether it is still there.
  struct Probe {
    LinkPtr link;
    size_t attempts = 0;
    size_t refusals = 0;  // one after the other
    Clock::time_point since;
  };

  // control_mesh.cc: messages and what is known of the ranks
  void on_link_frame(int rank, Frame& frame);
  void on_link_closed(int rank, int error, const std::string& why);
  void establish(int rank, LinkPtr link);
  void on_sync(int rank, const Frame& frame);
  void mark(int rank, uint8_t bits, int origin, const std::string& why);
  void lose(int rank);
  void confirm(int rank, int origin);
  void judge(int rank, int delays_left);
  bool attached() const;
  void drop_probe(int rank);
  void route(int to, const EncodedFrame& frame);
  void flush_held();
  void finish_if_done();
  void close();
  std::string encode_states() const;

  // control_mesh_connect.cc: who connects to whom
  bool on_hello(const LinkPtr& link, const Frame& hello);
  void attach();
  void dial_next();
  void on_dial_failed(int error, const std::string& why);
  void on_dial_round_over();
  void stop_dialing();
  std::vector<Address> candidates(int rank) const;
  void watch_process(int rank);
  void on_process_exit(int rank);
  void expect_children();
  void probe_children();
  void on_probe_failed(int rank, int error, const std::string& why);
  template <typename F>
  uint64_t after(std::chrono::milliseconds delay, F task);

  ControlThread* thread_;
  std::vector<SessionRecord> records_;
  int self_;
  double timeout_s_;
  std::shared_ptr<ControlDoor> door_;
  ControlTree tree_;
  std::vector<uint8_t> states_;
  MeshClient* client_ = nullptr;
  std::shared_ptr<void> keep_alive_;
  bool closed_ = false;
  bool finishing_ = false;
  bool heard_ = false;                  // this rank's good-bye
  std::map<int, std::string> reasons_;  // why a rank is taken for gone
  std::map<int, LinkPtr> links_;        // by the rank at the other end
  std::map<int, Process> processes_;
  std::map<int, Probe> probes_;
  bool probing_ = false;  // a timer is set
  Dial dial_;
  std::deque<std::pair<int, EncodedFrame>> held_;  // for ranks that cannot be reached now
};

template <typename F>
uint64_t ControlMesh::after(std::chrono::milliseconds delay, F task) {
  return thread_->after(delay, [weak = weak_from_this(), task = std::move(task)] {
    if (auto self = weak.lock(); self != nullptr && !self->closed_) task();
  });
}

}  // namespace hetccl::net

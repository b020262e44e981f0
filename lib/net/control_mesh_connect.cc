// How links of the mesh come about: each rank connects to its parent, proves that it belongs to the
// session by the parent's key, and is watched as a process where the system allows it. Parents look
// after children that do not come.
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "lib/base/log.h"
#include "lib/net/control_mesh.h"

namespace hetccl::net {
namespace {

using std::chrono::milliseconds;

constexpr uint64_t kHelloMagic = 0x6f6c'6c65'6874'6368;
constexpr milliseconds kRetryPause{100};
constexpr milliseconds kProbePause{1000};

}  // namespace

// ---- the side of the parent

bool ControlMesh::on_hello(const LinkPtr& link, const Frame& hello) {
  Reader reader(hello.payload);
  const bool ours = reader.number<uint64_t>() == kHelloMagic;
  const int rank = reader.number<int32_t>();
  const std::string_view key = reader.raw(kKeyBytes);
  // A parent's rank is always the lower one.
  if (!ours || !reader.done() || rank <= self_ || rank >= ranks() ||
      !same_secret(reinterpret_cast<const uint8_t*>(key.data()), record(self_).key, kKeyBytes)) {
    return false;
  }
  Frame sync;
  sync.type = FrameType::kSync;
  sync.payload = encode_states();
  link->send(encode(sync));
  // One that the others have given up hears so, and that is all.
  if ((state(rank) & kGone) != 0) return false;
  ControlLink::Callbacks callbacks;
  callbacks.on_frame = [this, rank](Frame& frame) { on_link_frame(rank, frame); };
  callbacks.on_closed = [this, rank](int error, const std::string& why) {
    on_link_closed(rank, error, why);
  };
  callbacks.on_drained = [this] { finish_if_done(); };
  link->set_callbacks(std::move(callbacks));
  establish(rank, link);
  return true;
}

// ---- the side of the child

std::vector<Address> ControlMesh::candidates(int rank) const {
  const SessionRecord& there = record(rank);
  if (std::strncmp(there.machine, record(self_).machine, sizeof(there.machine)) == 0) {
    return {loopback_address()};
  }
  return {there.addresses, there.addresses + there.addresses_used};
}

void ControlMesh::attach() {
  if (closed_) return;
  const int parent = tree_.parent(self_);
  if (parent < 0 || links_.contains(parent) || dial_.rank == parent) return;
  stop_dialing();
  dial_.rank = parent;
  dial_.since = Clock::now();
  dial_next();
}

void ControlMesh::stop_dialing() {
  if (dial_.link != nullptr) dial_.link->close();
  thread_->cancel(dial_.timer);
  dial_ = Dial();
}

void ControlMesh::dial_next() {
  const int rank = dial_.rank;
  const std::vector<Address> addresses = candidates(rank);
  if (dial_.candidate >= addresses.size()) return on_dial_round_over();
  const Address& address = addresses[dial_.candidate];
  const uint16_t port = record(rank).port;
  dial_.why = "connecting to " + to_string(address, port) + ": ";
  Fd fd = start_connect(address, port);
  if (!fd.valid()) return on_dial_failed(errno, error_text(errno));
  tune_connection(fd.get(), timeout_s_);
  ControlLink::Callbacks callbacks;
  callbacks.on_connected = [this, rank] {
    Frame hello;
    hello.payload.assign(reinterpret_cast<const char*>(record(rank).key), kKeyBytes);
    hello.payload = Writer().number(kHelloMagic).number<int32_t>(self_).raw(hello.payload).take();
    dial_.link->send(encode(hello));
    Frame sync;
    sync.type = FrameType::kSync;
    sync.payload = encode_states();
    dial_.link->send(encode(sync));
  };
  callbacks.on_frame = [this, rank](Frame& frame) {
    if (dial_.rank == rank && dial_.link != nullptr) {
      if (frame.type != FrameType::kSync) return;
      LinkPtr link = std::move(dial_.link);
      stop_dialing();
      establish(rank, std::move(link));
    }
    on_link_frame(rank, frame);
  };
  callbacks.on_closed = [this, rank](int error, const std::string& why) {
    if (dial_.rank == rank && dial_.link != nullptr) return on_dial_failed(error, why);
    on_link_closed(rank, error, why);
  };
  callbacks.on_drained = [this] { finish_if_done(); };
  dial_.link = ControlLink::open(thread_, std::move(fd), true, kMaxPayload, std::move(callbacks));
}

void ControlMesh::on_dial_failed(int error, const std::string& why) {
  if (closed_) return;
  dial_.link.reset();
  dial_.why += why;
  // Whoever accepts and then hangs up is not the one that is wanted.
  if (error != ECONNREFUSED && error != ECONNRESET && error != 0) dial_.refused = false;
  ++dial_.candidate;
  dial_next();
}

// Listening sockets are there before anybody knows of them, and as long as their rank: a refusal
// says that it is gone. Other failures may pass.
void ControlMesh::on_dial_round_over() {
  const double limit = timeout_s_ > 0 ? timeout_s_ : 600;
  if (dial_.refused || Clock::now() - dial_.since > std::chrono::duration<double>(limit)) {
    const std::string why = dial_.why + " (HETCCL_SOCKET_IFNAME chooses the interface)";
    return mark(dial_.rank, kGone, self_, why);
  }
  dial_.candidate = 0;
  dial_.refused = true;
  dial_.timer = after(kRetryPause, [this] { dial_next(); });
}

// ---- children that have not attached

void ControlMesh::expect_children() {
  if (closed_) return;
  for (int child : tree_.children()) watch_process(child);
  if (!std::exchange(probing_, true)) after(kProbePause, [this] { probe_children(); });
}

// A child without a link may die unnoticed. Its listening socket is there as long as it is, even
// while it is stopped.
void ControlMesh::probe_children() {
  probing_ = false;
  for (int child : tree_.children()) {
    if (closed_) return;
    if (links_.contains(child) || tree_.gone(child)) continue;
    if (!std::exchange(probing_, true)) after(kProbePause, [this] { probe_children(); });
    Probe& probe = probes_[child];
    if (probe.attempts == 0) probe.since = Clock::now();
    if (probe.link != nullptr && probe.link->is_open()) continue;
    const std::vector<Address> addresses = candidates(child);
    if (addresses.empty()) continue;
    const Address& address = addresses[probe.attempts++ % addresses.size()];
    Fd fd = start_connect(address, record(child).port);
    if (!fd.valid()) {
      on_probe_failed(child, errno, error_text(errno));
      continue;
    }
    tune_connection(fd.get(), timeout_s_);
    ControlLink::Callbacks callbacks;
    callbacks.on_connected = [this, child] {
      Probe& reached = probes_[child];
      reached.refusals = 0;
      reached.since = Clock::now();
      reached.link->close();
    };
    callbacks.on_frame = [](Frame&) {};
    callbacks.on_closed = [this, child](int error, const std::string& why) {
      on_probe_failed(child, error, why);
    };
    probe.link =
        ControlLink::open(thread_, std::move(fd), true, kMaxStrangerPayload, std::move(callbacks));
  }
}

void ControlMesh::on_probe_failed(int rank, int error, const std::string& why) {
  auto found = probes_.find(rank);
  if (closed_ || found == probes_.end() || links_.contains(rank)) return;
  Probe& probe = found->second;
  probe.refusals = error == ECONNREFUSED ? probe.refusals + 1 : 0;
  const bool refused = probe.refusals > candidates(rank).size();
  const double limit = timeout_s_ > 0 ? timeout_s_ : 600;
  if (!refused && Clock::now() - probe.since < std::chrono::duration<double>(limit)) return;
  mark(rank, kGone, self_, "it cannot be reached: " + why);
}

// ---- processes of this host

void ControlMesh::watch_process(int rank) {
  const SessionRecord& there = record(rank);
  const SessionRecord& here = record(self_);
  if (closed_ || processes_.contains(rank) || there.pid == here.pid ||
      std::strncmp(there.pid_context, here.pid_context, sizeof(there.pid_context)) != 0) {
    return;
  }
  Fd fd = Fd::open([&] { return static_cast<int>(::syscall(SYS_pidfd_open, there.pid, 0)); });
  if (!fd.valid()) {
    // Where the system has no such call, the end of the connection tells.
    if (errno == ESRCH) after(milliseconds(0), [this, rank] { on_process_exit(rank); });
    return;
  }
  Process& process = processes_[rank];
  process.token =
      thread_->watch(fd.get(), EPOLLIN, [this, rank](uint32_t) { on_process_exit(rank); });
  process.fd = std::move(fd);
}

void ControlMesh::on_process_exit(int rank) {
  if (closed_) return;
  if (auto found = processes_.find(rank); found != processes_.end()) {
    thread_->forget(found->second.token, found->second.fd.get());
    processes_.erase(found);
  }
  const auto link = links_.find(rank);
  const bool linked = link != links_.end();
  // A good-bye may be among what it sent last.
  if (linked) LinkPtr(link->second)->drain_input();
  if (closed_) return;
  // Without a link its good-bye may be on its way by another rank.
  const bool certain = linked && (state(rank) & kDeparted) == 0;
  mark(rank, certain ? kGone | kDead : kGone, self_, "process ended");
}

}  // namespace hetccl::net

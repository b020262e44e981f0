#include "lib/device_paths.h"

#include <sched.h>

#include <algorithm>
#include <cstring>

#include "lib/base/hash.h"
#include "lib/base/packing.h"
#include "lib/run/port.h"

namespace hetccl {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kProbeBytes = 256 << 10;
constexpr double kProbeLimit_s = 5;
constexpr int kRounds = 5;      // of a measurement; the best counts
constexpr double kClearly = 2;  // what is slower by less may be so by chance

enum Verdict : uint8_t { kNotTried, kWorks, kSlower, kFails };

std::vector<uint64_t> pattern_of(int rank) {
  std::vector<uint64_t> pattern(kProbeBytes / sizeof(uint64_t));
  uint64_t h = static_cast<uint64_t>(rank) + 1;
  for (uint64_t& word : pattern) word = h = hash_mix(h, 0x9E3779B97F4A7C15ull);
  return pattern;
}

// One rank's part of the search. What goes wrong with a path is a verdict, not an error.
class Prober {
 public:
  explicit Prober(const PathSearch& search)
      : s_(search), ranks_(static_cast<int>(search.kinds.size())), found_(search.kinds.size()) {}
  ~Prober();

  Result<std::vector<FoundPath>> run();

 private:
  struct Card {
    bool direct = false;
    std::string handle, lane, why;
    std::string error;  // a device that cannot be used fails the creation
  };
  bool same_vendor(int r) const {
    return s_.kinds[r] != hetcclMemoryHost && s_.kinds[r] == s_.kinds[s_.rank];
  }
  bool same_node(int r) const { return s_.node_of[r] == s_.node_of[s_.rank]; }
  bool both_have_devices(int r) const {
    return s_.kinds[r] != hetcclMemoryHost && s_.kinds[s_.rank] != hetcclMemoryHost;
  }

  std::string make_card();
  Status no_copy(const char* direction);
  Status prepare_memory(Packer* card);
  Verdict try_ipc(int peer, std::string* why);
  void try_direct(const std::vector<Card>& cards, std::vector<uint8_t>* verdicts);
  Verdict try_direct(net::Lane* lane, int peer);
  struct Landing {
    std::byte* memory;
    bool on_device;
  };
  struct Exchanged {
    double seconds = 0;
    const std::byte* data = nullptr;  // null: it did not end
  };
  Exchanged exchange(net::Lane* lane, int peer, const Landing& from, const Landing& next);
  bool wait_for(const std::function<bool()>& done);
  // Seconds of one copy; negative: it failed or took too long.
  double time_copy(void* to, const void* from);
  bool holds_pattern(const void* device, int rank);
  Status conclude(const std::vector<Card>& cards,
                  const std::vector<std::vector<uint8_t>>& verdicts);

  const PathSearch& s_;
  const int ranks_;
  std::vector<FoundPath> found_;
  bool takes_part_ = true;  // it has a device
  std::unique_ptr<run::Port> port_;
  std::unique_ptr<device::Queue> queue_;
  std::byte* source_ = nullptr;  // device memory with this rank's pattern
  std::byte* landing_ = nullptr;
  std::byte* host_ = nullptr;  // pinned
  std::unique_ptr<net::LaneSetup> setup_;
  double host_copy_s_ = 0;
};

Prober::~Prober() {
  if (s_.accelerator == nullptr) return;
  queue_.reset();
  for (std::byte* memory : {source_, landing_}) {
    if (memory != nullptr) (void)s_.accelerator->free(memory).ok();
  }
  if (host_ != nullptr) (void)s_.accelerator->free_host(host_).ok();
}

bool Prober::wait_for(const std::function<bool()>& done) {
  const auto end = Clock::now() + std::chrono::duration<double>(kProbeLimit_s);
  while (!done()) {
    if (Clock::now() > end) return false;
    sched_yield();
  }
  return true;
}

double Prober::time_copy(void* to, const void* from) {
  const auto begin = Clock::now();
  if (!queue_->copy(to, from, kProbeBytes).ok()) return -1;
  bool failed = false;
  const bool ended = wait_for([&] {
    const Result<bool> idle = queue_->idle();
    failed = !idle.ok();
    return failed || *idle;
  });
  if (failed || !ended) return -1;
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

bool Prober::holds_pattern(const void* device, int rank) {
  std::memset(host_, 0, kProbeBytes);
  return time_copy(host_, device) >= 0 &&
         std::memcmp(host_, pattern_of(rank).data(), kProbeBytes) == 0;
}

Status Prober::no_copy(const char* direction) {
  const Result<bool> idle = queue_->idle();
  return {hetcclUnhandledDeviceError,
          std::string("a copy ") + direction + " " + s_.accelerator->description() +
              (idle.ok() ? " does not end" : " failed: " + idle.status().message())};
}

Status Prober::prepare_memory(Packer* card) {
  auto queue = s_.accelerator->make_queue();
  if (!queue.ok()) return queue.status();
  queue_ = std::move(*queue);
  for (std::byte** memory : {&source_, &landing_}) {
    const auto made = s_.accelerator->allocate(kProbeBytes);
    if (!made.ok()) return made.status();
    *memory = static_cast<std::byte*>(*made);
  }
  const auto host = s_.accelerator->allocate_host(kProbeBytes);
  if (!host.ok()) return host.status();
  host_ = static_cast<std::byte*>(*host);
  std::memcpy(host_, pattern_of(s_.rank).data(), kProbeBytes);
  if (time_copy(source_, host_) < 0) return no_copy("to");
  host_copy_s_ = 1e9;
  for (int round = 0; round < kRounds; ++round) {
    const double took = time_copy(host_, source_);
    if (took < 0) return no_copy("from");
    host_copy_s_ = std::min(host_copy_s_, took);
  }
  std::string handle, why;
  if (s_.accelerator->abilities().ipc) {
    const auto exported = s_.accelerator->export_memory(source_);
    if (exported.ok()) {
      handle = *exported;
    } else {
      why = exported.status().message();
    }
  } else {
    why = "the device cannot show its memory to other processes";
  }
  const bool reached = s_.accelerator->abilities().direct && s_.fabric != nullptr &&
                       s_.fabric->reaches(s_.accelerator->kind());
  if (reached) {
    auto setup = s_.fabric->open_lane(ranks_, s_.rank, {kProbeBytes, 4});
    if (!setup.ok()) return setup.status();
    setup_ = std::move(*setup);
  }
  card->put<uint8_t>(reached).put(handle).put(setup_ ? setup_->card() : std::string()).put(why);
  card->put(std::string());
  return {};
}

std::string Prober::make_card() {
  Packer card;
  Status s = s_.accelerator != nullptr ? prepare_memory(&card) : system_error("no device");
  if (s.ok()) return std::move(card).take();
  takes_part_ = false;
  Packer none;
  none.put<uint8_t>(0).put(std::string()).put(std::string()).put(std::string());
  none.put(s_.accelerator != nullptr ? s.message() : std::string());
  return std::move(none).take();
}

// Whether this rank's device can read the peer's memory, and faster than by way of the host.
Verdict Prober::try_ipc(int peer, std::string* why) {
  const auto mapped = s_.accelerator->import_memory(*why);
  if (!mapped.ok()) {
    *why = mapped.status().message();
    return kFails;
  }
  Verdict verdict = kFails;
  *why = "a pattern in its memory was not read back";
  double best = 1e9;
  bool ended = true;
  for (int round = 0; round < kRounds && ended; ++round) {
    const double took = time_copy(landing_, *mapped);
    ended = took >= 0;
    best = std::min(best, took);
  }
  if (ended && holds_pattern(landing_, peer)) {
    // Staged data are copied twice. Who wants it direct gets it.
    verdict = s_.setting == "direct" || best <= kClearly * 2 * host_copy_s_ ? kWorks : kSlower;
    *why = verdict == kWorks ? "" : "reading its memory is slower than going through the host";
  }
  (void)s_.accelerator->close_memory(*mapped).ok();
  return verdict;
}

// A message each way; the next landing is announced before the own message goes, so that the other
// side's next message finds it.
Prober::Exchanged Prober::exchange(net::Lane* lane, int peer, const Landing& from,
                                   const Landing& next) {
  const auto begin = Clock::now();
  const net::Piece piece{from.memory, kProbeBytes};
  const uint64_t number = lane->sends_accepted(peer) + 1;
  net::Received message{};
  bool announced = next.memory == nullptr, sent = false, received = false;
  const bool ended = wait_for([&] {
    announced = announced || lane->try_announce(peer, next.memory, kProbeBytes, next.on_device);
    sent = sent || (announced && lane->try_send(peer, {&piece, 1}, {1}, true));
    received = received || lane->try_receive(peer, 0, &message);
    return !lane->progress().ok() || (sent && received && lane->sends_done(peer) >= number);
  });
  if (!ended || !received) return {};
  lane->release(peer);
  return {std::chrono::duration<double>(Clock::now() - begin).count(), message.data};
}

// Both sides go through the same rounds, whatever they see: one to meet, some from device memory to
// device memory, and some between hosts for comparison, which staging adds two copies to.
Verdict Prober::try_direct(net::Lane* lane, int peer) {
  std::vector<std::byte> other(kProbeBytes);
  auto address = [&](std::byte* memory) {
    return Landing{static_cast<std::byte*>(s_.accelerator->network_address(memory)), true};
  };
  const Landing source = address(source_), landing = address(landing_);
  const Landing host_source{host_, false}, host_landing{other.data(), false};
  const Landing first = landing;
  if (!wait_for([&] { return lane->try_announce(peer, first.memory, kProbeBytes, true); })) {
    return kFails;
  }
  double direct = 1e9, staged = 1e9;
  bool right = true;
  for (int round = 0; round <= 2 * kRounds; ++round) {
    const bool on_device = round <= kRounds;
    Landing next = round < kRounds ? landing : host_landing;
    if (round == 2 * kRounds) next.memory = nullptr;
    const Exchanged did = exchange(lane, peer, on_device ? source : host_source, next);
    if (did.data == nullptr) return kFails;
    if (round == 0) continue;
    if (on_device) right = right && did.data == landing.memory;
    if (round == 1) right = right && holds_pattern(landing_, peer);
    double& best = on_device ? direct : staged;
    best = std::min(best, did.seconds);
  }
  if (!right) return kFails;
  const bool worth_it = direct <= staged + kClearly * 2 * host_copy_s_;
  return s_.setting == "direct" || worth_it ? kWorks : kSlower;
}

// A message each way with every rank of another node whose device the network claims to reach, over
// a lane of its own, which may get stuck.
void Prober::try_direct(const std::vector<Card>& cards, std::vector<uint8_t>* verdicts) {
  std::vector<std::string> lane_cards;
  std::vector<bool> shares;
  std::vector<int> peers;
  for (int r = 0; r < ranks_; ++r) {
    lane_cards.push_back(cards[r].lane);
    shares.push_back(same_node(r));
    if (r != s_.rank && cards[r].direct && !same_node(r) && both_have_devices(r)) {
      peers.push_back(r);
    }
  }
  if (!setup_ || peers.empty()) return;
  auto connected = setup_->connect(lane_cards, shares);
  if (!connected.ok()) return;
  net::Lane& lane = **connected;
  for (int peer : peers) (*verdicts)[peer] = try_direct(&lane, peer);
  wait_for([&] { return lane.quiet() || !lane.progress().ok(); });
}

Result<std::vector<FoundPath>> Prober::run() {
  std::vector<std::string> texts;
  if (Status s = s_.allgather(make_card(), &texts); !s.ok()) return s;
  std::vector<Card> cards;
  for (const std::string& text : texts) {
    Unpacker u(text);
    Card card;
    card.direct = u.get<uint8_t>() != 0;
    card.handle = u.get_string();
    card.lane = u.get_string();
    card.why = u.get_string();
    card.error = u.get_string();
    if (!u.finished()) return internal_error("a card of device paths is garbled");
    if (!card.error.empty()) {
      return Status(hetcclUnhandledDeviceError,
                    "rank " + std::to_string(cards.size()) + ": " + card.error);
    }
    cards.push_back(std::move(card));
  }
  // Verdicts of this rank on every other: reading its memory, and what came by the network.
  std::vector<uint8_t> mine(2 * static_cast<size_t>(ranks_), kNotTried);
  std::vector<uint8_t> direct(static_cast<size_t>(ranks_), kNotTried);
  for (int r = 0; r < ranks_; ++r) {
    if (r == s_.rank || !same_node(r) || !same_vendor(r) || cards[r].handle.empty()) continue;
    if (!takes_part_) continue;
    std::string why = cards[r].handle;
    mine[r] = try_ipc(r, &why);
    found_[r].reason = why;
  }
  if (takes_part_) try_direct(cards, &direct);
  std::copy(direct.begin(), direct.end(), mine.begin() + ranks_);
  Packer card;
  for (uint8_t v : mine) card.put(v);
  if (Status s = s_.allgather(std::move(card).take(), &texts); !s.ok()) return s;
  std::vector<std::vector<uint8_t>> verdicts;
  for (const std::string& text : texts) {
    Unpacker u(text);
    verdicts.emplace_back();
    for (int k = 0; k < 2 * ranks_; ++k) verdicts.back().push_back(u.get<uint8_t>());
    if (!u.finished()) return internal_error("verdicts on device paths are garbled");
  }
  if (Status s = conclude(cards, verdicts); !s.ok()) return s;
  return std::move(found_);
}

Status Prober::conclude(const std::vector<Card>& cards,
                        const std::vector<std::vector<uint8_t>>& verdicts) {
  for (int r = 0; r < ranks_; ++r) {
    FoundPath& f = found_[r];
    if (r == s_.rank || !both_have_devices(r)) {
      f.reason = r == s_.rank ? "" : "one of the two has no device";
      continue;
    }
    f.path.ipc_in = verdicts[s_.rank][r] == kWorks;
    f.path.ipc_out = verdicts[r][s_.rank] == kWorks;
    f.path.direct =
        verdicts[s_.rank][ranks_ + r] == kWorks && verdicts[r][ranks_ + s_.rank] == kWorks;
    if (f.path.ipc_in || f.path.ipc_out) {
      f.reason = "a pattern was read back from the other's memory";
    } else if (f.path.direct) {
      f.reason = "a pattern went from device to device by the network";
    } else if (f.reason.empty()) {
      if (!same_node(r)) {
        const uint8_t mine = verdicts[s_.rank][ranks_ + r];
        const bool slower = mine == kSlower || verdicts[r][ranks_ + s_.rank] == kSlower;
        f.reason = mine == kNotTried ? "the network library does not reach this device memory"
                   : slower ? "the network's own access is slower than going through the host"
                            : "a pattern did not get from device to device by the network";
      } else if (!same_vendor(r)) {
        f.reason = "devices of two vendors cannot read each other's memory";
      } else {
        f.reason = cards[r].why.empty() ? "its memory cannot be read from here" : cards[r].why;
      }
    }
  }
  if (s_.setting != "direct") return {};
  for (int a = 0; a < ranks_; ++a) {
    for (int b = 0; b < a; ++b) {
      if (s_.kinds[a] == hetcclMemoryHost || s_.kinds[b] == hetcclMemoryHost) continue;
      const bool ipc = verdicts[a][b] == kWorks && verdicts[b][a] == kWorks;
      const bool direct = verdicts[a][ranks_ + b] == kWorks && verdicts[b][ranks_ + a] == kWorks;
      if (ipc || direct) continue;
      return invalid_usage("HETCCL_PATH is direct, but data of ranks " + std::to_string(b) +
                           " and " + std::to_string(a) +
                           " must be staged; hetccl_info --paths with HETCCL_PATH=auto says why");
    }
  }
  return {};
}

}  // namespace

Result<std::vector<FoundPath>> find_paths(const PathSearch& search) {
  std::vector<FoundPath> staged(search.kinds.size());
  const auto devices = std::count_if(search.kinds.begin(), search.kinds.end(),
                                     [](int kind) { return kind != hetcclMemoryHost; });
  for (size_t r = 0; r < staged.size(); ++r) {
    if (static_cast<int>(r) == search.rank) continue;
    staged[r].reason = devices == 0 ? "neither has a device" : "one of the two has no device";
  }
  if (devices < 2) return staged;
  if (search.setting == "staged") {
    for (FoundPath& f : staged) f.reason = "HETCCL_PATH is staged";
    return staged;
  }
  return Prober(search).run();
}

}  // namespace hetccl

// How communicators come to be: agreement on settings, the exchange of cards, split.
#include <sched.h>

#include <algorithm>

#include "lib/base/hash.h"
#include "lib/base/log.h"
#include "lib/base/packing.h"
#include "lib/communicator.h"

namespace hetccl {

using Clock = std::chrono::steady_clock;

namespace {

constexpr size_t kSharedMemoryChunk = 64 << 10;  // lives in the L2 cache
constexpr double kDelegationLimit_s = 60;        // for all ranks to join a vendor's library
constexpr size_t kNetworkChunk = 256 << 10;      // a round trip costs less than its transfer

constexpr unsigned kMessageDepth = 4;  // chunks of a Send in flight

constexpr unsigned kPatience = 64;  // looks at a flag between two looks at everything else

// The first trouble among the cards of all ranks.
struct Trouble {
  static void put(Packer* card, const Status& status) {
    card->put<int32_t>(status.code()).put(status.message());
  }
  static Status take(Unpacker* card, int rank) {
    const auto code = static_cast<hetcclResult_t>(card->get<int32_t>());
    const std::string text = card->get_string();
    if (code == hetcclSuccess) return {};
    return {code, "rank " + std::to_string(rank) + ": " + text};
  }
};

void put_device(Packer* card, const DeviceCard& device) {
  card->put<int32_t>(device.kind).put(device.description);
}

DeviceCard take_device(Unpacker* card) {
  const auto kind = card->get<int32_t>();
  return {kind, card->get_string()};
}

// As configured, or the calling thread's current device where a vendor's runtime is in use; null:
// none. Communicators made from this one have the same device, whatever is current then.
Result<device::Accelerator*> find_device(Settings* settings) {
  device::find_backends();
  device::Backend* chosen = nullptr;
  if (settings->device_kind > hetcclMemoryHost) {
    auto found = device::backend(static_cast<device::Kind>(settings->device_kind));
    if (!found.ok()) return found.status();
    chosen = *found;
  } else if (settings->device_kind < 0) {
    for (device::Backend* loaded : device::loaded_backends()) {
      if (chosen == nullptr && loaded->current_device() >= 0) chosen = loaded;
    }
  }
  for (device::Backend* loaded : device::loaded_backends()) {
    loaded->set_max_blocks(static_cast<int>(settings->max_ctas));
  }
  if (chosen == nullptr) return static_cast<device::Accelerator*>(nullptr);
  const int ordinal = settings->device >= 0 ? settings->device : chosen->current_device();
  auto device = chosen->device(std::max(0, ordinal));
  if (!device.ok()) return device.status();
  settings->device_kind = chosen->kind();
  settings->device = (*device)->ordinal();
  return *device;
}

DeviceCard card_of(const Result<device::Accelerator*>& device) {
  if (!device.ok() || *device == nullptr) return {};
  return {(*device)->kind(), (*device)->description()};
}

}  // namespace

Communicator::Communicator(std::shared_ptr<net::Session> session, net::GroupId id,
                           std::vector<int> members, int rank, const Settings& settings)
    : session_(std::move(session)),
      id_(id),
      members_(std::move(members)),
      rank_(rank),
      settings_(settings),
      cache_(settings.plan_cache) {}

Communicator::~Communicator() {
  // Whoever has failed is not waited for.
  if (delegation_ && failed_) delegation_->abandon();
  delegation_.reset();
  if (joined_) session_->leave(id_);
}

Result<std::unique_ptr<Communicator>> Communicator::create(
    std::shared_ptr<net::Session> session, net::GroupId id, std::vector<int> members, int rank,
    const Settings& settings, const Status& trouble, std::vector<DeviceCard> devices) {
  std::unique_ptr<Communicator> c(
      new Communicator(std::move(session), id, std::move(members), rank, settings));
  if (Status s = c->session_->join(id, c->members_, c.get()); !s.ok()) return s;
  c->joined_ = true;
  const bool agree = devices.empty();
  const auto device = find_device(&c->settings_);
  if (device.ok()) c->accelerator_ = *device;
  if (agree) {
    Status s = c->agree_on_settings(trouble.ok() ? device.status() : trouble, card_of(device));
    if (!s.ok()) return s;
  } else {
    c->devices_ = std::move(devices);
  }
  if (Status s = Delegation::check(c->settings_.delegate, c->device_kinds()); !s.ok()) return s;
  if (Status s = c->connect(); !s.ok()) return s;
  if (agree && rank == 0 && !c->settings_.record.empty()) {
    c->record_.open(c->settings_.record, std::ios::app);
    if (!c->record_) log::warn("cannot write the record of calls to " + c->settings_.record);
  }
  return c;
}

Clock::time_point Communicator::creation_deadline() const {
  // Without a time-out a dead rank still ends the wait.
  const double seconds = settings_.timeout_s > 0 ? settings_.timeout_s : 1e8;
  return Clock::now() + std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3));
}

std::vector<int> Communicator::device_kinds() const {
  std::vector<int> kinds;
  for (const DeviceCard& card : devices_) kinds.push_back(card.kind);
  return kinds;
}

bool Communicator::has_devices() const {
  return std::any_of(devices_.begin(), devices_.end(),
                     [](const DeviceCard& d) { return d.kind != hetcclMemoryHost; });
}

// Rank 0's values hold; rank 0 reports the difference, once.
Status Communicator::agree_on_settings(const Status& trouble, const DeviceCard& device) {
  const std::vector<std::string> mine = agreed_values(settings_);
  Packer card;
  Trouble::put(&card, trouble);
  card.put<uint32_t>(HETCCL_VERSION);
  for (const std::string& value : mine) card.put(value);
  put_device(&card, device);
  std::vector<std::string> cards;
  Status s = session_->allgather(id_, std::move(card).take(), &cards, creation_deadline());
  if (!s.ok()) return s;
  std::vector<std::string> decided;
  for (int r = 0; r < ranks(); ++r) {
    Unpacker u(cards[r]);
    if (Status t = Trouble::take(&u, r); !t.ok()) return t;
    const auto version = u.get<uint32_t>();
    if (version != HETCCL_VERSION) {
      return invalid_usage("rank " + std::to_string(r) + " runs hetccl version " +
                           std::to_string(version) + ", rank " + std::to_string(rank_) + " runs " +
                           std::to_string(HETCCL_VERSION));
    }
    std::vector<std::string> theirs;
    for (size_t k = 0; k < mine.size(); ++k) theirs.push_back(u.get_string());
    devices_.push_back(take_device(&u));
    if (!u.finished()) return internal_error("settings of rank " + std::to_string(r) + " garbled");
    if (r == 0) decided = theirs;
    for (size_t k = 0; k < mine.size() && rank_ == 0; ++k) {
      if (theirs[k] == decided[k]) continue;
      log::warn(agreed_name(k) + " is \"" + theirs[k] + "\" on rank " + std::to_string(r) +
                " and \"" + decided[k] + "\" on rank 0; rank 0's value holds for all");
    }
  }
  return adopt_agreed_values(decided, &settings_);
}

void Communicator::read_places() {
  std::vector<std::string> known;
  std::vector<int> node_of;
  for (int member : members_) {
    const std::string& where = session_->place(member).shared_memory;
    auto found = std::find(known.begin(), known.end(), where);
    node_of.push_back(static_cast<int>(found - known.begin()));
    if (found == known.end()) known.push_back(where);
  }
  one_node_ = known.size() == 1;
  chunk_bytes_ = settings_.chunk_bytes != 0    ? settings_.chunk_bytes
                 : one_node_ && !has_devices() ? kSharedMemoryChunk
                                               : kNetworkChunk;
  model_ = coll::default_cost_model(node_of, chunk_bytes_);
}

Status Communicator::connect() {
  read_places();
  Status trouble;
  if (auto forced = coll::Forced::parse(settings_.algo); forced.ok()) {
    forced_ = *forced;
  } else {
    trouble = forced.status();
  }
  if (auto device = device::host_device(settings_.isa); device.ok()) {
    device_ = *device;
  } else {
    trouble = device.status();
  }
  std::unique_ptr<net::LaneSetup> setup, messages;
  if (ranks() > 1 && trouble.ok()) {
    auto fabric = Context::get().fabric(settings_);
    if (!fabric.ok()) {
      trouble = fabric.status();
    } else {
      auto opened = (*fabric)->open_lane(ranks(), rank_,
                                         {chunk_bytes_, static_cast<unsigned>(settings_.depth)});
      if (opened.ok()) {
        setup = std::move(*opened);
      } else {
        trouble = opened.status();
      }
      auto apart = (*fabric)->open_lane(ranks(), rank_, {chunk_bytes_, kMessageDepth});
      if (apart.ok()) {
        messages = std::move(*apart);
      } else {
        trouble = apart.status();
      }
    }
  }
  cpu_set_t cores;
  CPU_ZERO(&cores);
  sched_getaffinity(0, sizeof cores, &cores);
  Packer card;
  Trouble::put(&card, trouble);
  card.put(cores).put(setup ? setup->card() : std::string());
  card.put(messages ? messages->card() : std::string());
  std::vector<std::string> cards;
  Status s = session_->allgather(id_, std::move(card).take(), &cards, creation_deadline());
  if (!s.ok()) return s;
  const std::string& host = session_->place(members_[rank_]).host;
  int ranks_here = 0;
  std::vector<bool> shares(cards.size());
  std::vector<std::string> message_cards;
  for (int r = 0; r < ranks(); ++r) {
    Unpacker u(cards[r]);
    if (Status t = Trouble::take(&u, r); !t.ok()) return t;
    const auto theirs = u.get<cpu_set_t>();
    std::string lane_card = u.get_string();
    message_cards.push_back(u.get_string());
    if (!u.finished()) return internal_error("card of rank " + std::to_string(r) + " garbled");
    cards[r] = std::move(lane_card);
    shares[r] = model_.node_of[r] == model_.node_of[rank_];
    if (session_->place(members_[r]).host != host) continue;
    ++ranks_here;
    CPU_OR(&cores, &cores, &theirs);
  }
  crowded_ = ranks_here > CPU_COUNT(&cores);
  if (setup) {
    auto lane = setup->connect(cards, shares);
    if (!lane.ok()) return lane.status();
    lane_ = std::move(*lane);
    auto apart = messages->connect(message_cards, shares);
    if (!apart.ok()) return apart.status();
    make_point_to_point(std::move(*apart));
  } else {
    make_point_to_point(nullptr);
  }
  if (Status found = find_device_paths(); !found.ok()) return found;
  if (Status found = find_delegation(); !found.ok()) return found;
  return make_executions();
}

Status Communicator::find_device_paths() {
  PathSearch search;
  search.rank = rank_;
  search.kinds = device_kinds();
  search.node_of = model_.node_of;
  search.accelerator = accelerator_;
  search.setting = settings_.path;
  search.fabric = nullptr;
  if (ranks() > 1) {
    auto fabric = Context::get().fabric(settings_);
    if (!fabric.ok()) return fabric.status();
    search.fabric = *fabric;
  }
  search.allgather = [&](std::string mine, std::vector<std::string>* all) {
    return session_->allgather(id_, std::move(mine), all, creation_deadline());
  };
  auto found = find_paths(search);
  if (!found.ok()) return found.status();
  paths_ = std::move(*found);
  return {};
}

Status Communicator::find_delegation() {
  DelegationSearch search;
  search.rank = rank_;
  search.kinds = device_kinds();
  for (int member : members_) search.hosts.push_back(session_->place(member).host);
  search.accelerator = accelerator_;
  search.setting = settings_.delegate;
  search.reproducible = settings_.reproducible;
  search.library = settings_.delegate_library;
  search.limit_s = kDelegationLimit_s;
  // Whoever has failed waits for the others no longer than the time-out.
  if (settings_.timeout_s > 0) search.limit_s = std::min(search.limit_s, settings_.timeout_s / 2);
  search.allgather = [&](std::string mine, std::vector<std::string>* all) {
    return session_->allgather(id_, std::move(mine), all, creation_deadline());
  };
  search.failure = [&] { return failure(); };
  auto agreed = Delegation::agree(search);
  if (!agreed.ok()) return agreed.status();
  delegation_ = std::move(*agreed);
  if (rank_ == 0 && has_devices()) {
    log::info(
        (delegation_->name() != nullptr ? "calls may be delegated to " : "no call is delegated: ") +
        delegation_->reason());
  }
  return {};
}

void Communicator::make_point_to_point(std::unique_ptr<net::Lane> lane) {
  PointToPoint::Options options;
  options.lane = std::move(lane);
  options.ranks = ranks();
  options.rank = rank_;
  options.depth = kMessageDepth;
  options.chunk_bytes = chunk_bytes_;
  options.timeout_s = settings_.timeout_s;
  options.failure = [this] { return failure(); };
  options.broken = [this](const Status& why) { broken(why); };
  point_to_point_ = std::make_unique<PointToPoint>(std::move(options));
}

Status Communicator::make_executions() {
  DeviceRun::Options options;
  options.lane = lane_.get();
  for (const FoundPath& found : paths_) options.paths.push_back(found.path);
  options.depth = settings_.depth;
  options.chunk_bytes = chunk_bytes_;
  options.staging_bytes = settings_.staging_size;
  options.host_below = settings_.host_below;
  device_run_ = std::make_unique<DeviceRun>(options);
  auto host_lane = device_run_->open_host_lane(accelerator_);
  if (!host_lane.ok()) return host_lane.status();
  host_lane_ = *host_lane;
  execution_ = std::make_unique<run::Execution>(host_lane_, device_, ranks(),
                                                static_cast<unsigned>(settings_.depth));
  execution_->set_patience(crowded_ ? 0 : kPatience);
  device_run_->set_on_host(execution_.get());
  return {};
}

Result<std::unique_ptr<Communicator>> Communicator::split(int64_t color, int64_t key,
                                                          const Status& trouble,
                                                          const SplitConfig& config) {
  std::lock_guard lock(mutex_);
  if (Status s = usable(); !s.ok()) return s;
  Settings settings = settings_;
  if (config.timeout_s >= 0) settings.timeout_s = config.timeout_s;
  if (config.device_kind >= 0) settings.device_kind = config.device_kind;
  if (config.device_kind >= 0 || config.device >= 0) settings.device = config.device;
  const auto device = find_device(&settings);
  Packer card;
  Trouble::put(&card, trouble.ok() ? device.status() : trouble);
  card.put(color).put(key);
  put_device(&card, card_of(device));
  std::vector<std::string> cards;
  Status s = session_->allgather(id_, std::move(card).take(), &cards, creation_deadline());
  if (!s.ok()) return s;
  struct Member {
    int64_t key;
    int rank;
  };
  std::vector<Member> chosen;
  std::vector<DeviceCard> devices_by_rank;
  for (int r = 0; r < ranks(); ++r) {
    Unpacker u(cards[r]);
    if (Status t = Trouble::take(&u, r); !t.ok()) return t;
    const auto their_color = u.get<int64_t>();
    const auto their_key = u.get<int64_t>();
    devices_by_rank.push_back(take_device(&u));
    if (color >= 0 && their_color == color) chosen.push_back({their_key, r});
  }
  const uint64_t child = ++children_;
  if (color < 0) return std::unique_ptr<Communicator>();
  std::stable_sort(chosen.begin(), chosen.end(),
                   [](const Member& a, const Member& b) { return a.key < b.key; });
  std::vector<int> members;
  std::vector<DeviceCard> devices;
  int rank = -1;
  for (const Member& m : chosen) {
    if (m.rank == rank_) rank = static_cast<int>(members.size());
    members.push_back(members_[m.rank]);
    devices.push_back(devices_by_rank[m.rank]);
  }
  const net::GroupId id = hash_mix(hash_mix(id_, child), static_cast<uint64_t>(color));
  return create(session_, id, std::move(members), rank, settings, {}, std::move(devices));
}

}  // namespace hetccl

#include "lib/delegation.h"

#include <sched.h>

#include <algorithm>
#include <map>
#include <optional>

#include "lib/base/packing.h"

namespace hetccl {
namespace {

using Clock = std::chrono::steady_clock;
using device::VendorCall;
using device::VendorGroup;

constexpr double kLeave_s = 5;
// A rank's death is noticed by the vendor's library as a broken connection, and by the control
// plane as what it is; whoever hears of the former waits a little for the latter.
constexpr double kNews_s = 2;

std::optional<VendorCall::Collective> vendor_collective(coll::Collective collective) {
  switch (collective) {
    case coll::Collective::kAllReduce:
      return VendorCall::Collective::kAllReduce;
    case coll::Collective::kReduce:
      return VendorCall::Collective::kReduce;
    case coll::Collective::kReduceScatter:
      return VendorCall::Collective::kReduceScatter;
    case coll::Collective::kBroadcast:
      return VendorCall::Collective::kBroadcast;
    case coll::Collective::kAllGather:
      return VendorCall::Collective::kAllGather;
    case coll::Collective::kAllToAll:
      return VendorCall::Collective::kAllToAll;
    default:
      return std::nullopt;
  }
}

// Why these devices have no library in common; "" where they may.
std::string mixed(const std::vector<int>& kinds) {
  for (size_t r = 0; r < kinds.size(); ++r) {
    if (kinds[r] == hetcclMemoryHost) return "rank " + std::to_string(r) + " has no device";
    if (kinds[r] == kinds[0]) continue;
    const auto name = [&](size_t k) {
      return device::name_of(static_cast<device::Kind>(kinds[k]));
    };
    return std::string("rank 0 has a device of ") + name(0) + ", rank " + std::to_string(r) +
           " one of " + name(r);
  }
  return "";
}

// Which ranks have one device; "" where none do.
std::string shared_device(const std::vector<std::string>& hosts,
                          const std::vector<std::string>& devices) {
  std::map<std::pair<std::string, std::string>, size_t> first;
  for (size_t r = 0; r < devices.size(); ++r) {
    if (devices[r].empty()) continue;
    const auto [at, is_new] = first.emplace(std::make_pair(hosts[r], devices[r]), r);
    if (is_new) continue;
    return "ranks " + std::to_string(at->second) + " and " + std::to_string(r) +
           " have one device (" + devices[r] + "), and vendors' libraries want one for each";
  }
  return "";
}

Status refused(const std::string& why) {
  return invalid_usage("HETCCL_DELEGATE is require, but " + why);
}

std::string blame(size_t rank, const std::string& why) {
  return "rank " + std::to_string(rank) + ": " + why;
}

}  // namespace

// ---- agreement

Delegation::Delegation(const DelegationSearch& search)
    : ranks_(static_cast<int>(search.kinds.size())),
      accelerator_(search.accelerator),
      all_numbers_(search.setting == "require" && !search.reproducible) {}

Delegation::~Delegation() {
  if (group_ != nullptr) {
    group_->leave(kLeave_s);
    if (group_->is_stuck()) return;
  }
  group_.reset();
  outgrown_.push_back(send_.memory);
  outgrown_.push_back(recv_.memory);
  for (void* memory : outgrown_) {
    if (memory != nullptr) (void)accelerator_->free(memory).ok();
  }
}

Status Delegation::check(const std::string& setting, const std::vector<int>& kinds) {
  if (setting != "require" || kinds.size() == 1) return {};
  const std::string why = mixed(kinds);
  return why.empty() ? Status() : refused(why);
}

Result<std::unique_ptr<Delegation>> Delegation::agree(const DelegationSearch& search) {
  std::unique_ptr<Delegation> made(new Delegation(search));
  if (Status s = made->find(search); !s.ok()) return s;
  if (made->group_ == nullptr && made->ranks_ > 1 && search.setting == "require") {
    return refused(made->reason_);
  }
  return made;
}

// An error is one of the communicator; that nothing is delegated is none.
Status Delegation::find(const DelegationSearch& search) {
  if (search.setting == "off") {
    reason_ = "HETCCL_DELEGATE is off";
  } else if (ranks_ == 1) {
    reason_ = "there is one rank";
  } else {
    reason_ = mixed(search.kinds);
  }
  if (!reason_.empty()) return {};
  std::string id;
  if (Status s = find_library(search, &id); !s.ok() || !reason_.empty()) return s;
  return join(search, id);
}

Status Delegation::find_library(const DelegationSearch& search, std::string* id) {
  const auto found = device::VendorLibrary::load(accelerator_->kind(), search.library);
  std::string why = found.ok() ? "" : found.status().message();
  if (found.ok()) library_ = *found;
  if (found.ok() && search.rank == 0) {
    Result<std::string> made = library_->make_id();
    if (made.ok()) {
      *id = *made;
    } else {
      why = made.status().message();
    }
  }
  Packer card;
  card.put(why).put<int32_t>(found.ok() ? library_->version() : 0);
  card.put(found.ok() ? library_->description() : std::string()).put(*id);
  card.put(accelerator_->identity());
  std::vector<std::string> cards;
  if (Status s = search.allgather(std::move(card).take(), &cards); !s.ok()) return s;
  int32_t version = 0;
  std::string description;
  std::vector<std::string> devices;
  for (size_t r = 0; r < cards.size(); ++r) {
    Unpacker u(cards[r]);
    const std::string trouble = u.get_string();
    const auto theirs = u.get<int32_t>();
    const std::string name = u.get_string(), rank_id = u.get_string();
    devices.push_back(u.get_string());
    if (!u.finished()) return internal_error("a card of a vendor's library is garbled");
    if (r == 0) version = theirs, description = name, *id = rank_id;
    if (!reason_.empty()) continue;
    if (!trouble.empty()) {
      reason_ = blame(r, trouble);
    } else if (theirs != version) {
      reason_ = "rank 0 has " + description + ", rank " + std::to_string(r) + " has " + name;
    }
  }
  // The library would refuse that too, but needs long to find out.
  if (reason_.empty()) reason_ = shared_device(search.hosts, devices);
  return {};
}

Status Delegation::join(const DelegationSearch& search, const std::string& id) {
  const Status mine = join_alone(search, id);
  Packer card;
  card.put<int32_t>(mine.code()).put(mine.message());
  std::vector<std::string> cards;
  if (Status s = search.allgather(std::move(card).take(), &cards); !s.ok()) {
    abandon();
    return s;
  }
  bool waited = false;  // for a rank that failed, perhaps; what that one says counts more
  for (size_t r = 0; r < cards.size(); ++r) {
    Unpacker u(cards[r]);
    const auto code = u.get<int32_t>();
    const std::string trouble = u.get_string();
    if (!u.finished()) return internal_error("a verdict on a vendor's library is garbled");
    if (code == hetcclSuccess || !(reason_.empty() || (waited && code != hetcclTimeout))) continue;
    reason_ = blame(r, trouble);
    waited = code == hetcclTimeout;
  }
  if (!reason_.empty()) {
    if (group_ != nullptr) group_->abandon();
    group_.reset();
    return {};
  }
  reason_ = library_->description();
  return {};
}

// As far as this rank can tell: the others may see it fail.
Status Delegation::join_alone(const DelegationSearch& search, const std::string& id) {
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                      std::chrono::duration<double>(search.limit_s));
  auto joined = VendorGroup::join(library_, accelerator_, id, ranks_, search.rank);
  if (!joined.ok()) return joined.status();
  group_ = std::move(*joined);
  for (;;) {
    const Result<bool> ready = group_->ready();
    if (!ready.ok()) return ready.status();
    if (*ready) return try_out(search, end);
    if (Status s = search.failure(); !s.ok()) return s;
    if (Clock::now() > end)
      return timeout_error(library_->description() + ": joining takes too long");
    sched_yield();
  }
}

// The first call makes the library set up what later ones find; and what does not work is better
// known now.
Status Delegation::try_out(const DelegationSearch& search, Clock::time_point end) {
  // Not on the stack: a copy that gets stuck must not outlive it.
  auto* const sum = reinterpret_cast<int32_t*>(host_.reserve(sizeof(int32_t)));
  if (sum == nullptr) return system_error("out of memory");
  *sum = search.rank + 1;
  Call call;
  call.collective = coll::Collective::kAllReduce;
  call.send = call.recv = sum;
  call.count = 1;
  call.type = hetcclInt32;
  Status s = begin(call, Where(), {sizeof *sum, sizeof *sum, 1});
  if (!s.ok()) return s;
  for (;;) {
    const Result<bool> ended = step();
    if (!ended.ok()) return ended.status();
    if (*ended) break;
    if (Status failed = search.failure(); !failed.ok()) return failed;
    if (Clock::now() > end)
      return timeout_error(library_->description() + ": a sum takes too long");
    sched_yield();
  }
  if (*sum == ranks_ * (ranks_ + 1) / 2) return {};
  return internal_error(library_->description() + ": a sum of integers came out wrong");
}

bool Delegation::takes(const Call& call) const {
  if (group_ == nullptr || call.has_lists() || call.count == 0) return false;
  if (!vendor_collective(call.collective)) return false;
  if (!call.reduces()) return true;
  const device::VendorNumbers numbers = device::vendor_numbers(call.type, call.op);
  return numbers == device::VendorNumbers::kSame ||
         (numbers == device::VendorNumbers::kOther && all_numbers_);
}

// ---- a call

// Memory that has become too small is kept: freeing it may wait for streams that wait for this
// call.
Status Delegation::make_copy(Copy* copy, device::Accelerator* owner, const void* buffer,
                             size_t bytes) {
  if (bytes > copy->size) {
    const size_t size = std::max(bytes, 2 * copy->size);
    Result<void*> memory = accelerator_->allocate(size);
    if (!memory.ok()) {
      return {memory.status().code(),
              memory.status().message() + "; HETCCL_DELEGATE=off needs no copy of a whole buffer"};
    }
    if (copy->memory != nullptr) outgrown_.push_back(copy->memory);
    copy->memory = *memory;
    copy->size = size;
  }
  copy->in_use = true;
  copy->owner = owner;
  copy->buffer = static_cast<std::byte*>(const_cast<void*>(buffer));
  copy->bytes = bytes;
  return {};
}

Status Delegation::begin(const Call& call, const Where& where, const Extents& extents) {
  const void* send = extents.send_bytes != 0 ? call.send : nullptr;
  void* recv = extents.recv_bytes != 0 ? call.recv : nullptr;
  send_.in_use = recv_.in_use = false;
  stage_ = Stage::kEntering;
  trouble_ = {};
  const bool shared = call.collective == coll::Collective::kAllToAll && call.send == call.recv;
  if (recv != nullptr && where.recv != accelerator_) {
    if (Status s = make_copy(&recv_, where.recv, recv, extents.recv_bytes); !s.ok()) return s;
    recv = recv_.memory;
  }
  if (send != nullptr && (where.send != accelerator_ || shared)) {
    if (Status s = make_copy(&send_, where.send, send, extents.send_bytes); !s.ok()) return s;
    if (Status s = copy_in(); !s.ok()) return s;
    send = send_.memory;
  }
  // Libraries look at the pointer even where they read nothing from it.
  if (send == nullptr) send = recv;
  call_ = {
      *vendor_collective(call.collective), send, recv, call.count, call.type, call.op, call.root};
  return {};
}

// Between devices of two vendors by way of the host, and waiting: such buffers are rare here.
Status Delegation::copy_in() {
  const std::byte* from = send_.buffer;
  if (send_.owner != nullptr && send_.owner->kind() != accelerator_->kind()) {
    std::byte* const host = host_.reserve(send_.bytes);
    if (host == nullptr) return system_error("out of memory for a copy of sendbuff");
    auto queue = send_.owner->make_queue();
    if (!queue.ok()) return queue.status();
    if (Status s = (*queue)->copy(host, from, send_.bytes); !s.ok()) return s;
    if (Status s = (*queue)->synchronize(); !s.ok()) return s;
    from = host;
  }
  return group_->queue().copy(send_.memory, from, send_.bytes);
}

Status Delegation::copy_out() {
  const bool foreign = recv_.owner != nullptr && recv_.owner->kind() != accelerator_->kind();
  std::byte* const to = foreign ? host_.reserve(recv_.bytes) : recv_.buffer;
  if (to == nullptr) return system_error("out of memory for a copy of recvbuff");
  if (Status s = group_->queue().copy(to, recv_.memory, recv_.bytes); !s.ok()) return s;
  if (!foreign) return {};
  if (Status s = group_->queue().synchronize(); !s.ok()) return s;
  auto queue = recv_.owner->make_queue();
  if (!queue.ok()) return queue.status();
  if (Status s = (*queue)->copy(recv_.buffer, to, recv_.bytes); !s.ok()) return s;
  return (*queue)->synchronize();
}

Result<bool> Delegation::step() {
  const Result<bool> ready = group_->ready();
  if (!ready.ok() || !*ready) return ready;
  const Result<bool> idle = group_->queue().idle();
  if (!idle.ok() || !*idle) return idle;
  switch (stage_) {
    case Stage::kEntering:
      stage_ = Stage::kRunning;
      if (Status s = group_->start(call_); !s.ok()) return s;
      return false;
    case Stage::kRunning:
      if (!recv_.in_use) return true;
      stage_ = Stage::kLeaving;
      if (Status s = copy_out(); !s.ok()) return s;
      return false;
    case Stage::kLeaving:
      return true;
  }
  return true;
}

Result<bool> Delegation::finished() {
  const auto now = Clock::now();
  if (trouble_.ok()) {
    const Result<bool> ended = step();
    if (ended.ok()) return ended;
    trouble_ = ended.status();
    trouble_since_ = now;
  }
  if (std::chrono::duration<double>(now - trouble_since_).count() < kNews_s) return false;
  return trouble_;
}

void Delegation::abandon() {
  if (group_ != nullptr) group_->abandon();
}

}  // namespace hetccl

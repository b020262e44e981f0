#include "lib/group.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <memory>
#include <mutex>
#include <vector>

#include "lib/batch.h"
#include "lib/communicator.h"
#include "lib/context.h"

namespace hetccl {
namespace {

// A call that is to be made.
struct Item {
  Communicator* communicator;
  hetcclStream_t stream;
  device::Accelerator* device;  // of a buffer; null: all are the host's
  Call call{};                  // a collective, if there is no operation
  std::unique_ptr<PointToPoint::Operation> operation{};
  std::array<std::vector<size_t>, 4> lists{};  // what the caller's lists held
  size_t batch = 0;
  bool made = false;
};

thread_local std::vector<Item> grouped;

// The lists are the caller's again once the call has returned.
void keep_lists(Item* item, int ranks) {
  const size_t** const lists[] = {&item->call.counts, &item->call.displacements,
                                  &item->call.send_counts, &item->call.send_displacements};
  for (size_t i = 0; i < item->lists.size(); ++i) {
    if (*lists[i] == nullptr) continue;
    item->lists[i].assign(*lists[i], *lists[i] + ranks);
    *lists[i] = item->lists[i].data();
  }
}

// Makes calls and waits for those that were given no stream.
class Launch {
 public:
  explicit Launch(std::vector<Item> items) : items_(std::move(items)) {}
  Status run();

 private:
  Status find_batches();
  void hold_all();
  void make_all_held();
  bool make_those_possible();
  void make(Item* item);
  void wait();
  void back_off(bool moved);

  std::vector<Item> items_;
  std::vector<hetcclStream_t> streams_;  // of batches
  std::vector<std::unique_ptr<Batch>> batches_;
  std::vector<Communicator*> held_;
  Status first_error_;
  uint32_t idle_rounds_ = 0;
};

Status Launch::run() {
  const bool streams =
      std::any_of(items_.begin(), items_.end(), [](const Item& i) { return i.stream != nullptr; });
  if (streams) hold_all();
  if (Status s = find_batches(); !s.ok() && first_error_.ok()) first_error_ = s;
  if (streams) make_all_held();
  wait();
  return first_error_;
}

// One batch a stream. Items of a stream that is none are dropped; the first error is returned.
Status Launch::find_batches() {
  Status error;
  for (Item& item : items_) {
    const auto found = std::find(streams_.begin(), streams_.end(), item.stream);
    item.batch = static_cast<size_t>(found - streams_.begin());
    if (found != streams_.end()) continue;
    streams_.push_back(item.stream);
    batches_.emplace_back();
    if (item.stream == nullptr) {
      batches_.back() = std::make_unique<Batch>();
    } else if (Context::get().has_stream(item.stream)) {
      batches_.back() = std::make_unique<Batch>(static_cast<Stream*>(item.stream));
    } else {
      auto turn = item.communicator->take_turn(item.device, item.stream);
      if (turn.ok()) {
        batches_.back() = std::make_unique<Batch>(std::move(*turn));
      } else if (error.ok()) {
        error = turn.status();
      }
    }
  }
  for (Item& item : items_) item.made = batches_[item.batch] == nullptr;
  return error;
}

// Places in streams and in communicators' queues are taken in one go, so that no two groups each
// wait for what is behind the other.
void Launch::hold_all() {
  std::vector<Communicator*> wanted;
  for (const Item& item : items_) {
    if (!item.operation) wanted.push_back(item.communicator);
  }
  std::sort(wanted.begin(), wanted.end());
  wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
  while (held_.size() != wanted.size()) {
    Communicator* const next = wanted[held_.size()];
    if (next->try_hold()) {
      held_.push_back(next);
      continue;
    }
    for (Communicator* communicator : held_) communicator->let_go();
    held_.clear();
    back_off(false);
  }
}

void Launch::make_all_held() {
  {
    static std::mutex messages_mutex;  // what holding communicators is for collectives
    std::lock_guard lock(messages_mutex);
    for (Item& item : items_) {
      if (!item.made) make(&item);
    }
    for (std::unique_ptr<Batch>& batch : batches_) {
      if (batch && batch->empty()) batch.reset();
      if (batch) batch->join_stream();
    }
  }
  for (Communicator* communicator : held_) communicator->let_go();
  for (std::unique_ptr<Batch>& batch : batches_) {
    if (!batch || !batch->runs_in_background()) continue;
    Context::get().progress_thread().submit(batch.release());
  }
}

// Those whose communicator is not held by a call of another thread; of each communicator in order.
// True: one was made.
bool Launch::make_those_possible() {
  bool any = false;
  std::vector<Communicator*> passed;
  for (Item& item : items_) {
    if (item.made) continue;
    if (item.operation) {
      make(&item);
      any = true;
      continue;
    }
    if (std::find(passed.begin(), passed.end(), item.communicator) != passed.end()) continue;
    if (!item.communicator->try_hold()) {
      passed.push_back(item.communicator);
      continue;
    }
    make(&item);
    item.communicator->let_go();
    any = true;
  }
  return any;
}

void Launch::make(Item* item) {
  item->made = true;
  Batch& batch = *batches_[item->batch];
  if (item->operation) {
    item->communicator->point_to_point().submit(item->operation.get());
    batch.add(item->communicator, std::move(item->operation));
    return;
  }
  auto call = item->communicator->queue_call(item->call);
  if (call.ok()) {
    batch.add(item->communicator, std::move(*call));
  } else if (first_error_.ok()) {
    first_error_ = call.status();
  }
}

// For the batches that nobody else polls.
void Launch::wait() {
  for (;;) {
    bool moved = make_those_possible();
    bool left =
        std::any_of(items_.begin(), items_.end(), [](const Item& item) { return !item.made; });
    for (std::unique_ptr<Batch>& batch : batches_) {
      if (!batch || batch->empty()) continue;
      const run::Task::Step step = batch->poll();
      moved |= step != run::Task::Step::kIdle;
      left |= step != run::Task::Step::kDone;
      if (first_error_.ok()) first_error_ = batch->status();
    }
    if (!left) return;
    back_off(moved);
  }
}

void Launch::back_off(bool moved) {
  if (moved) {
    idle_rounds_ = 0;
  } else if (++idle_rounds_ >= items_.front().communicator->patience()) {
    sched_yield();
  } else {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
  }
}

Status launch(std::vector<Item> items) {
  if (items.empty()) return {};
  return Launch(std::move(items)).run();
}

}  // namespace

Status Group::end() {
  if (depth_ == 0) return invalid_usage("hetcclGroupEnd without hetcclGroupStart");
  if (--depth_ != 0) return {};
  return launch(std::exchange(grouped, {}));
}

Status Group::add(Communicator* communicator, const Call& call, hetcclStream_t stream) {
  auto owner = communicator->check(call);
  if (!owner.ok()) return owner.status();
  grouped.push_back({communicator, stream, *owner, call});
  keep_lists(&grouped.back(), communicator->ranks());
  return {};
}

Status Group::add(Communicator* communicator, const Message& message, hetcclStream_t stream) {
  auto owner = communicator->check(message);
  if (!owner.ok()) return owner.status();
  Item item{communicator, stream, *owner};
  item.operation = std::make_unique<PointToPoint::Operation>(
      message.sends, message.peer, message.memory, message.count, message.type, *owner);
  if (open()) {
    grouped.push_back(std::move(item));
    return {};
  }
  std::vector<Item> alone;
  alone.push_back(std::move(item));
  return launch(std::move(alone));
}

}  // namespace hetccl

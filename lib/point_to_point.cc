#include "lib/point_to_point.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace hetccl {
namespace {

// What every message of an operation names; both sides must name the same.
constexpr int kTypeShift = 56;
uint64_t label_of(const PointToPoint::Operation& op) {
  return static_cast<uint64_t>(op.count) | (static_cast<uint64_t>(op.type) + 1) << kTypeShift;
}

std::string text_of_label(uint64_t label) {
  const auto type = static_cast<DataType>((label >> kTypeShift) - 1);
  const uint64_t count = label & ((uint64_t{1} << kTypeShift) - 1);
  return std::to_string(count) + " elements of " +
         (is_valid(type) ? std::string(name_of(type)) : "an unknown type");
}

}  // namespace

// Of a send: host memory that chunks pass through. Of a receive the messages themselves are read.
struct PointToPoint::Window {
  run::Port* port = nullptr;
  std::unique_ptr<std::byte[]> memory;
  size_t begun = 0;                   // chunks whose copy was given to the device
  std::deque<run::Port::Mark> marks;  // of copies that have not been found complete
};

PointToPoint::Operation::Operation(bool is_send, int other, const void* memory, size_t elements,
                                   DataType of, device::Accelerator* owner)
    : sends(is_send),
      peer(other),
      data(static_cast<std::byte*>(const_cast<void*>(memory))),
      count(elements),
      type(of),
      bytes(elements * size_of(of)),
      device(elements == 0 ? nullptr : owner) {}

PointToPoint::Operation::~Operation() = default;

PointToPoint::PointToPoint(Options options)
    : o_(std::move(options)),
      sends_(static_cast<size_t>(o_.ranks)),
      receives_(static_cast<size_t>(o_.ranks)) {}

PointToPoint::~PointToPoint() = default;

// ---- from outside

void PointToPoint::submit(Operation* op) {
  std::lock_guard lock(mutex_);
  op->chunks = std::max<size_t>(1, (op->bytes + o_.chunk_bytes - 1) / o_.chunk_bytes);
  ++left_;
  (op->sends ? sends_ : receives_)[op->peer].push_back(op);
  if (std::find(busy_.begin(), busy_.end(), op->peer) == busy_.end()) busy_.push_back(op->peer);
}

void PointToPoint::start(Operation* op) {
  std::lock_guard lock(mutex_);
  op->started = true;
}

PointToPoint::Turn PointToPoint::poll(Operation* op) {
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return Turn::kIdle;  // somebody else moves what can be moved
  const bool moved = !op->ended && move_all();
  if (!op->ended && !moved) idle_round();
  if (!op->ended) return moved ? Turn::kMoved : Turn::kIdle;
  if (busy_.empty() && o_.lane) o_.lane->pause();
  if (--left_ == 0) empty_.notify_all();
  return Turn::kEnded;
}

bool PointToPoint::wait_until_empty(Clock::time_point end) {
  std::unique_lock lock(mutex_);
  return empty_.wait_until(lock, end, [&] { return left_ == 0; });
}

void PointToPoint::wait_until_empty() {
  std::unique_lock lock(mutex_);
  empty_.wait(lock, [&] { return left_ == 0; });
}

bool PointToPoint::settled() {
  std::lock_guard lock(mutex_);
  if (!o_.lane || o_.lane->quiet()) return true;
  return !o_.lane->progress().ok();
}

// ---- moving

bool PointToPoint::move_all() {
  bool moved = false;
  for (size_t i = 0; i < busy_.size() && !failed_;) {
    const int peer = busy_[i];
    if (peer == o_.rank) {
      moved |= move_own();
    } else {
      moved |= move_sends(peer);
      if (!failed_) moved |= move_receives(peer);
    }
    if (failed_) break;
    if (sends_[peer].empty() && receives_[peer].empty()) {
      busy_.erase(busy_.begin() + static_cast<ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
  if (moved) idle_rounds_ = 0;
  return moved;
}

// A send begins as soon as the one before it is all on its way.
bool PointToPoint::move_sends(int peer) {
  Queue& queue = sends_[peer];
  bool moved = false;
  for (size_t i = 0; i < queue.size() && queue[i]->started; ++i) {
    moved |= advance_send(queue[i]);
    if (failed_ || queue[i]->issued < queue[i]->chunks) break;
  }
  while (!failed_ && !queue.empty() && queue.front()->started &&
         queue.front()->done == queue.front()->chunks) {
    end_front(&queue);
    moved = true;
  }
  return moved;
}

bool PointToPoint::move_receives(int peer) {
  Queue& queue = receives_[peer];
  bool moved = false;
  while (!queue.empty() && queue.front()->started) {
    moved |= advance_receive(queue.front());
    if (failed_ || queue.front()->done < queue.front()->chunks) break;
    end_front(&queue);
    moved = true;
  }
  return moved;
}

bool PointToPoint::advance_send(Operation* op) {
  const int peer = op->peer;
  bool moved = false;
  if (op->issued == 0) op->first = o_.lane->sends_accepted(peer);
  while (op->issued < op->chunks && o_.lane->has_credit(peer)) {
    const std::byte* const from = next_chunk(op);
    if (from == nullptr && op->bytes != 0) break;
    const net::Piece piece{from, chunk_size(*op, op->issued)};
    if (!o_.lane->try_send(peer, {&piece, 1}, {label_of(*op)}, true)) break;
    if (op->window) op->window->marks.pop_front();
    ++op->issued;
    moved = true;
  }
  if (failed_) return true;
  if (op->issued > op->done) {
    const uint64_t finished = o_.lane->sends_done(peer);
    const uint64_t ours = finished > op->first ? finished - op->first : 0;
    const size_t done = std::min<uint64_t>(ours, op->issued);
    moved |= done != op->done;
    op->done = done;
  }
  op->moved |= moved;
  return moved;
}

bool PointToPoint::advance_receive(Operation* op) {
  bool moved = false;
  do {
    announce(op);
    moved |= count_arrivals(op, true);
    if (failed_ || op->done == op->chunks || !take_message(op)) break;
    moved = true;
  } while (!failed_);
  if (!failed_) moved |= count_arrivals(op, true);
  op->moved |= moved;
  return moved;
}

void PointToPoint::announce(Operation* op) {
  if (!o_.lane->wants_announcements(op->peer)) return;
  while (op->announced < op->chunks && op->announced < op->done + o_.depth) {
    const size_t bytes = chunk_size(*op, op->announced);
    std::byte* const place =
        op->device != nullptr || bytes == 0 ? nullptr : op->data + op->announced * o_.chunk_bytes;
    if (!o_.lane->try_announce(op->peer, place, bytes, false)) return;
    ++op->announced;
  }
}

// `issued` counts the messages of a receive that were taken, `done` those that are where they
// belong.
bool PointToPoint::take_message(Operation* op) {
  if (op->issued == op->chunks || op->issued - op->done >= o_.depth) return false;
  if (o_.lane->wants_announcements(op->peer) && op->announced <= op->issued) return false;
  net::Received message;
  const auto ahead = static_cast<unsigned>(op->issued - op->done);
  if (!o_.lane->try_receive(op->peer, ahead, &message)) return false;
  if (message.signature != label_of(*op) || message.bytes != chunk_size(*op, op->issued)) {
    mismatched(*op, message.signature, message.bytes);
    return false;
  }
  put_chunk(op, message.data);
  return !failed_;
}

// Between the two ends of one rank.
bool PointToPoint::move_own() {
  Queue &from = sends_[o_.rank], &to = receives_[o_.rank];
  bool moved = false;
  while (!from.empty() && !to.empty() && from.front()->started && to.front()->started) {
    Operation &source = *from.front(), &target = *to.front();
    if (label_of(source) != label_of(target)) {
      mismatched(target, label_of(source), source.bytes);
      return true;
    }
    bool copied = false;
    while (copy_chunk(&source, &target)) copied = true;
    if (failed_) return true;
    source.moved |= copied;
    target.moved |= copied;
    moved |= copied;
    if (target.done < target.chunks) break;
    end_front(&from);
    end_front(&to);
  }
  return moved;
}

bool PointToPoint::copy_chunk(Operation* from, Operation* to) {
  if (to->issued > to->done) {
    if (!count_arrivals(to, false)) return false;
    from->done = to->done;
    return true;
  }
  if (to->done == to->chunks) return false;
  const std::byte* const data = next_chunk(from);
  if (failed_ || (data == nullptr && from->bytes != 0)) return false;
  if (from->window) from->window->marks.pop_front();
  ++from->issued;
  put_chunk(to, data);
  if (!failed_ && count_arrivals(to, false)) from->done = to->done;
  return !failed_;
}

// ---- chunks

size_t PointToPoint::chunk_size(const Operation& op, size_t chunk) const {
  return std::min(o_.chunk_bytes, op.bytes - chunk * o_.chunk_bytes);
}

const std::byte* PointToPoint::next_chunk(Operation* op) {
  if (op->device == nullptr) {
    return op->data == nullptr ? nullptr : op->data + op->issued * o_.chunk_bytes;
  }
  if (!open_window(op)) return nullptr;
  Window& w = *op->window;
  for (; w.begun < op->chunks && w.begun < op->done + o_.depth; ++w.begun) {
    w.marks.push_back(w.port->copy_out(
        w.memory.get() + w.begun % o_.depth * o_.chunk_bytes,
        {{op->data + w.begun * o_.chunk_bytes, chunk_size(*op, w.begun)}}, nullptr));
  }
  const bool there = !w.marks.empty() && w.port->passed(w.marks.front());
  if (!check_port(op) || !there) return nullptr;
  return w.memory.get() + op->issued % o_.depth * o_.chunk_bytes;
}

void PointToPoint::put_chunk(Operation* op, const std::byte* from) {
  std::byte* const to = op->data + op->issued * o_.chunk_bytes;
  const size_t bytes = chunk_size(*op, op->issued);
  if (op->device == nullptr) {
    if (bytes != 0 && from != to) std::memmove(to, from, bytes);
  } else {
    if (!open_window(op)) return;
    op->window->marks.push_back(op->window->port->copy_in(to, from, bytes, nullptr));
    if (!check_port(op)) return;
  }
  ++op->issued;
}

bool PointToPoint::count_arrivals(Operation* op, bool release) {
  bool moved = false;
  while (op->done < op->issued) {
    if (op->window) {
      const bool there = op->window->port->passed(op->window->marks.front());
      if (!check_port(op)) return true;
      if (!there) break;
      op->window->marks.pop_front();
    }
    if (release) o_.lane->release(op->peer);
    ++op->done;
    moved = true;
  }
  return moved;
}

bool PointToPoint::open_window(Operation* op) {
  if (op->window) return true;
  auto window = std::make_unique<Window>();
  std::unique_ptr<run::Port>& port = ports_[op->device];
  if (!port) {
    auto opened = run::Port::open(op->device, o_.chunk_bytes);
    if (!opened.ok()) {
      o_.broken(opened.status());
      end_all(o_.failure());
      return false;
    }
    port = std::move(*opened);
  }
  window->port = port.get();
  if (op->sends) {
    const size_t slots = std::min<size_t>(op->chunks, o_.depth);
    window->memory = std::make_unique_for_overwrite<std::byte[]>(slots * o_.chunk_bytes);
  }
  op->window = std::move(window);
  return true;
}

// False: the device failed, and all operations have ended.
bool PointToPoint::check_port(Operation* op) {
  const Status status = op->window->port->status();
  if (status.ok()) return true;
  o_.broken(status);
  end_all(o_.failure());
  return false;
}

// ---- waiting and ending

void PointToPoint::idle_round() {
  // What has arrived counts, even if its sender is gone by now; so this comes after a fruitless
  // look.
  if (Status why = o_.failure(); !why.ok()) return end_all(why);
  if (o_.lane) {
    if (Result<bool> moved = o_.lane->progress(); !moved.ok()) {
      o_.broken(moved.status());
      return end_all(o_.failure());
    } else if (*moved) {
      return;
    }
  }
  if (++idle_rounds_ % 64 == 0) check_wait();
}

void PointToPoint::check_wait() {
  const auto now = Clock::now();
  for (const int peer : busy_) {
    for (const Queue* queue : {&sends_[peer], &receives_[peer]}) {
      if (queue->empty() || !queue->front()->started) continue;
      Operation& op = *queue->front();
      if (op.moved) op.moved_at = now;
      op.moved = false;
      const double waited = std::chrono::duration<double>(now - op.moved_at).count();
      if (o_.timeout_s <= 0 || waited < o_.timeout_s) continue;
      o_.broken(timeout_error("waited " + std::to_string(std::lround(waited)) + " s in " +
                              text_of(op) + "; see HETCCL_TIMEOUT"));
      return end_all(o_.failure());
    }
  }
}

std::string PointToPoint::text_of(const Operation& op) const {
  return (op.sends ? "send of " : "receive of ") + text_of_label(label_of(op)) +
         (op.sends ? " to rank " : " from rank ") + std::to_string(op.peer);
}

void PointToPoint::mismatched(const Operation& op, uint64_t named, size_t got_bytes) {
  std::string what = "rank " + std::to_string(op.peer) + " sends " + text_of_label(named) +
                     " to rank " + std::to_string(o_.rank) + ", which expects " +
                     text_of_label(label_of(op)) + ": count and type must be the same";
  if (named == label_of(op)) {
    what += "; a message holds " + std::to_string(got_bytes) + " bytes, which are not those due";
  }
  o_.broken(invalid_usage(what));
  end_all(o_.failure());
}

void PointToPoint::end_front(Queue* queue) {
  queue->front()->ended = true;
  queue->pop_front();
}

// Nothing may touch the callers' buffers any more: the devices are waited for, and the lane ends.
void PointToPoint::end_all(const Status& status) {
  failed_ = true;
  for (auto& [accelerator, port] : ports_) {
    if (port) port->synchronize();
  }
  o_.lane.reset();
  for (std::vector<Queue>* queues : {&sends_, &receives_}) {
    for (Queue& queue : *queues) {
      for (Operation* op : queue) {
        op->status = status;
        op->ended = true;
      }
      queue.clear();
    }
  }
  busy_.clear();
}

}  // namespace hetccl

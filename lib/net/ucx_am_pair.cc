#include "lib/net/ucx_am_pair.h"

#include <algorithm>
#include <cstring>

#include "lib/net/mailbox.h"

namespace hetccl::net {
namespace {

// After so many calls of progress() without a release, acknowledgements no longer wait for company.
constexpr unsigned kIdleCalls = 64;

// So many attempts to put a message wait for its announcement before it goes as an active one.
constexpr unsigned kPatience = 256;

// Grows `memory` to hold `bytes`: first for small messages, then for all.
void make_room(std::unique_ptr<std::byte[]>* memory, size_t* room, size_t bytes, size_t most) {
  if (bytes <= *room) return;
  *room = bytes <= kInlineBytes ? std::min(kInlineBytes, most) : most;
  *memory = std::make_unique_for_overwrite<std::byte[]>(*room);
}

}  // namespace

AmPair::AmPair(UcxWorker* worker, size_t depth, size_t chunk_bytes, int self, int peer)
    : worker_(worker),
      depth_(depth),
      chunk_bytes_(chunk_bytes),
      self_(self),
      peer_(peer),
      outgoing_(depth),
      incoming_(depth),
      announced_ring_(depth) {
  for (Incoming& slot : incoming_) slot.pair = this;
}

void AmPair::connect(std::shared_ptr<UcxRemote> remote, uint32_t peer_lane, bool* trouble) {
  remote_ = std::move(remote);
  peer_lane_ = peer_lane;
  trouble_ = trouble;
  for (Outgoing& slot : outgoing_) slot.operation.bind(remote_.get(), &requests_);
  acknowledging_.bind(remote_.get(), &requests_);
}

// --- sending

bool AmPair::try_send(std::span<const Piece> pieces, size_t bytes, Envelope envelope, bool) {
  if (!has_credit()) return false;
  Outgoing* slot = &outgoing_[sent_ % depth_];
  // The acknowledgement may come before UCX has told of its own part.
  if (slot->operation.busy() || remote_->failed()) return false;
  slot->header = AmHeader{peer_lane_, static_cast<uint32_t>(self_), sent_ + 1, envelope.signature,
                          envelope.form};
  slot->copied = pieces.size() != 1 || bytes <= kInlineBytes;
  if (!post(slot, pieces, bytes)) return false;
  ++sent_;
  return true;
}

bool AmPair::post(Outgoing* slot, std::span<const Piece> pieces, size_t bytes) {
  uint64_t sequence = slot->header.sequence;
  const Envelope envelope{slot->header.signature, static_cast<uint32_t>(slot->header.form)};
  if (put_ != nullptr && put_->is_small(bytes)) {
    std::lock_guard lock(worker_->mutex());
    return put_->send_small(&slot->operation, sequence, pieces, bytes, envelope);
  }
  bool has_place = false;
  if (put_ != nullptr) {
    // Under the lock, since it may be the thread that makes progress that writes announcements.
    std::lock_guard lock(worker_->mutex());
    if (!put_->is_announced(sequence) && attempts_++ < kPatience) return false;
    has_place = put_->has_place(sequence, bytes);
  }
  attempts_ = 0;
  const std::byte* data = slot->copied ? copy_of(slot, pieces, bytes) : pieces[0].data;
  std::lock_guard lock(worker_->mutex());
  if (remote_->failed()) return false;
  if (has_place) {
    return put_->send_large(&slot->operation, sequence, data, bytes, envelope);
  }
  return post_message(slot, data, bytes);
}

std::byte* AmPair::copy_of(Outgoing* slot, std::span<const Piece> pieces, size_t bytes) {
  make_room(&slot->copy, &slot->copy_bytes, std::max(bytes, size_t{1}), chunk_bytes_);
  gather(pieces, slot->copy.get());
  return slot->copy.get();
}

bool AmPair::post_message(Outgoing* slot, const void* data, size_t bytes) {
  ucp_request_param_t params = slot->operation.params();
  return slot->operation.started(ucp_am_send_nbx(remote_->endpoint(), kAmMessage, &slot->header,
                                                 sizeof(slot->header), data, bytes, &params));
}

uint64_t AmPair::sends_done() {
  for (; done_ < sent_; ++done_) {
    const Outgoing& slot = outgoing_[done_ % depth_];
    if (!slot.copied && slot.operation.busy()) break;
  }
  return done_;
}

void AmPair::on_acknowledge(uint64_t released) {
  if (released > acknowledged_.load(std::memory_order_relaxed)) {
    acknowledged_.store(released, std::memory_order_release);
  }
}

// --- receiving

bool AmPair::try_announce(std::byte* destination, size_t bytes, bool on_device) {
  uint64_t released = released_.load(std::memory_order_relaxed);
  uint64_t next = std::max(announced_.load(std::memory_order_relaxed), released) + 1;
  if (next > released + depth_) return false;
  announced_ring_[(next - 1) % depth_] = Announced{destination, bytes, on_device};
  announced_.store(next, std::memory_order_release);
  if (put_ != nullptr) put_->announce(next, destination, bytes);
  return true;
}

// Where message `sequence` goes: to its announced destination if it fits there and whoever writes
// it reaches that.
std::byte* AmPair::landing(Incoming* slot, uint64_t sequence, size_t bytes, bool by_network) {
  if (sequence <= announced_.load(std::memory_order_acquire)) {
    const Announced& announced = announced_ring_[(sequence - 1) % depth_];
    if (announced.destination != nullptr && bytes <= announced.bytes &&
        (by_network || !announced.on_device)) {
      return announced.destination;
    }
  }
  make_room(&slot->own, &slot->own_bytes, std::max(bytes, size_t{1}), chunk_bytes_);
  return slot->own.get();
}

ucs_status_t AmPair::on_message(const AmHeader& header, void* data, size_t bytes, bool rendezvous) {
  uint64_t released = released_.load(std::memory_order_acquire);
  if (header.sequence <= released || header.sequence > released + depth_ || bytes > chunk_bytes_) {
    violate("message " + std::to_string(header.sequence) + " of " + std::to_string(bytes) +
            " bytes is out of turn: " + std::to_string(released) + " are released");
    return UCS_OK;
  }
  Incoming* slot = &incoming_[(header.sequence - 1) % depth_];
  slot->signature = header.signature;
  slot->form = static_cast<uint32_t>(header.form);
  slot->bytes = bytes;
  slot->data = landing(slot, header.sequence, bytes, rendezvous);
  if (!rendezvous) {
    if (bytes != 0) std::memcpy(slot->data, data, bytes);
    slot->sequence.store(header.sequence, std::memory_order_release);
    return UCS_OK;
  }
  slot->pending = header.sequence;
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  params.cb.recv_am = on_fetched;
  params.user_data = slot;
  ucs_status_ptr_t request =
      ucp_am_recv_data_nbx(worker_->handle(), data, slot->data, bytes, &params);
  if (UCS_PTR_IS_ERR(request)) {
    violate(std::string("a rendezvous failed: ") + ucs_status_string(UCS_PTR_STATUS(request)));
  } else if (request == nullptr) {
    slot->sequence.store(header.sequence, std::memory_order_release);
  } else {
    ++requests_;
    fetching_.fetch_add(1, std::memory_order_relaxed);
  }
  return UCS_INPROGRESS;
}

void AmPair::on_fetched(void* request, ucs_status_t status, size_t, void* incoming) {
  Incoming* slot = static_cast<Incoming*>(incoming);
  AmPair* pair = slot->pair;
  --pair->requests_;
  pair->fetching_.fetch_sub(1, std::memory_order_relaxed);
  ucp_request_free(request);
  if (status != UCS_OK) {
    pair->violate(std::string("a rendezvous failed: ") + ucs_status_string(status));
    return;
  }
  slot->sequence.store(slot->pending, std::memory_order_release);
}

bool AmPair::try_receive(unsigned ahead, Received* message) {
  if (ahead >= depth_) return false;
  uint64_t wanted = released_.load(std::memory_order_relaxed) + ahead + 1;
  const Incoming& slot = incoming_[(wanted - 1) % depth_];
  if (slot.sequence.load(std::memory_order_acquire) != wanted) {
    return put_ != nullptr &&
           put_->arrived(wanted, announced_ring_[(wanted - 1) % depth_].destination, message);
  }
  *message = Received{slot.data, slot.bytes, slot.signature, slot.form};
  return true;
}

void AmPair::release() {
  uint64_t released = released_.load(std::memory_order_relaxed) + 1;
  if (put_ != nullptr) put_->released(released);
  released_.store(released, std::memory_order_release);
  idle_ = 0;
  if (released - acknowledgement_sent_ >= std::max<uint64_t>(1, depth_ / 2)) acknowledge();
}

// One acknowledgement is under way at a time; progress() and quiet() try again.
void AmPair::acknowledge() {
  if (acknowledging_.busy() || remote_->failed()) return;
  std::lock_guard lock(worker_->mutex());
  if (remote_->failed()) return;
  uint64_t released = released_.load(std::memory_order_relaxed);
  acknowledgement_ = AmAcknowledgement{peer_lane_, static_cast<uint32_t>(self_), released};
  ucp_request_param_t params = acknowledging_.params();
  if (acknowledging_.started(ucp_am_send_nbx(remote_->endpoint(), kAmAcknowledge, &acknowledgement_,
                                             sizeof(acknowledgement_), nullptr, 0, &params))) {
    acknowledgement_sent_ = released;
  }
}

// --- both

bool AmPair::progress() {
  if (remote_->failed() || violated_.load(std::memory_order_acquire)) *trouble_ = true;
  if (acknowledgement_sent_ == released_.load(std::memory_order_relaxed)) return false;
  if (++idle_ >= kIdleCalls) acknowledge();
  return false;
}

bool AmPair::quiet() {
  uint64_t released = released_.load(std::memory_order_relaxed);
  if (acknowledgement_sent_ != released) acknowledge();
  bool sends_over = acknowledged_.load(std::memory_order_acquire) == sent_;
  for (const Outgoing& slot : outgoing_) sends_over &= !slot.operation.busy();
  Received next;
  bool acknowledged = acknowledgement_sent_ == released && !acknowledging_.busy();
  return sends_over && acknowledged && fetching_.load() == 0 && !try_receive(0, &next) &&
         (put_ == nullptr || !put_->busy());
}

// Called under the worker's lock.
void AmPair::violate(const std::string& what) {
  if (violated_.load(std::memory_order_relaxed)) return;
  violation_ = what;
  violated_.store(true, std::memory_order_release);
}

Status AmPair::status() const {
  std::string rank = "rank " + std::to_string(peer_) + ": ";
  if (remote_->failed()) return remote_error(rank + remote_->reason());
  if (violated_.load(std::memory_order_acquire)) return internal_error(rank + violation_);
  return {};
}

std::string AmPair::describe() const {
  return remote_->lanes().transports + (put_ == nullptr ? ", active messages" : ", put");
}

}  // namespace hetccl::net

#include "lib/net/ucx_put.h"

#include <cstring>

#include "lib/base/log.h"

namespace hetccl::net {
namespace {

constexpr size_t kFlagBytes = sizeof(uint64_t);  // slots and announcements begin with their flag

std::byte* aligned(std::byte* memory) {
  return reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(memory) + 63) & ~uintptr_t{63});
}

}  // namespace

UcxPut::UcxPut(const Parts& parts)
    : p_(parts),
      images_memory_(std::make_unique<std::byte[]>(parts.depth * parts.layout.slot_bytes() + 63)),
      images_(aligned(images_memory_.get())),
      destination_keys_(parts.depth),
      announcing_(parts.depth) {
  for (Announcing& slot : announcing_) slot.operation.bind(p_.remote, p_.requests);
  closing_.bind(p_.remote, p_.requests);
}

Result<std::unique_ptr<UcxPut>> UcxPut::create(const Parts& parts) {
  std::unique_ptr<UcxPut> made(new UcxPut(parts));
  ucs_status_t status =
      ucp_ep_rkey_unpack(parts.remote->endpoint(), parts.peer_key.data(), &made->region_key_);
  if (status != UCS_OK) {
    return system_error(std::string("cannot open a rank's memory for puts: ") +
                        ucs_status_string(status) + " (HETCCL_NET_PUT=no does without)");
  }
  return made;
}

UcxPut::~UcxPut() {
  for (ucp_rkey_h key : destination_keys_) {
    if (key != nullptr) ucp_rkey_destroy(key);
  }
  for (Announcing& slot : announcing_) {
    if (slot.memory != nullptr) ucp_mem_unmap(p_.worker->context(), slot.memory);
  }
  if (region_key_ != nullptr) ucp_rkey_destroy(region_key_);
}

bool UcxPut::put(UcxOperation* operation, const void* from, size_t bytes, uint64_t to,
                 ucp_rkey_h key) {
  if (p_.remote->failed()) return false;
  ucp_request_param_t params = operation->params();
  return operation->started(ucp_put_nbx(p_.remote->endpoint(), from, bytes, to, key, &params));
}

// What follows the flag, a fence, the flag.
bool UcxPut::put_flagged(UcxOperation* operation, const std::byte* image, size_t bytes,
                         uint64_t to) {
  if (!put(operation, image + kFlagBytes, bytes - kFlagBytes, to + kFlagBytes, region_key_)) {
    return false;
  }
  ucp_worker_fence(p_.worker->handle());
  return put(operation, image, kFlagBytes, to, region_key_);
}

bool UcxPut::is_announced(uint64_t sequence) const {
  const PutAnnouncement& place = p_.own_announcements[(sequence - 1) % p_.depth];
  return place.sequence.load(std::memory_order_acquire) == sequence;
}

bool UcxPut::has_place(uint64_t sequence, size_t bytes) const {
  return is_announced(sequence) && bytes <= p_.own_announcements[(sequence - 1) % p_.depth].bytes;
}

bool UcxPut::send_small(UcxOperation* operation, uint64_t sequence, std::span<const Piece> pieces,
                        size_t bytes, Envelope envelope) {
  size_t index = (sequence - 1) % p_.depth;
  MailSlot* slot = image(index);
  slot->sequence.store(sequence, std::memory_order_relaxed);
  slot->signature = envelope.signature;
  slot->form = envelope.form;
  slot->bytes = static_cast<uint32_t>(bytes);
  bool is_near = bytes <= kNearBytes;
  slot->payload = is_near ? Payload::kNear : Payload::kInline;
  gather(pieces, is_near ? slot->near : slot->behind());
  return put_flagged(operation, reinterpret_cast<std::byte*>(slot),
                     sizeof(MailSlot) + (is_near ? 0 : bytes),
                     p_.peer_slots + index * p_.layout.slot_bytes());
}

bool UcxPut::send_large(UcxOperation* operation, uint64_t sequence, const std::byte* data,
                        size_t bytes, Envelope envelope) {
  size_t index = (sequence - 1) % p_.depth;
  const PutAnnouncement& place = p_.own_announcements[index];
  ucp_rkey_h* key = &destination_keys_[index];
  if (*key != nullptr) ucp_rkey_destroy(*key);
  *key = nullptr;
  ucs_status_t status = ucp_ep_rkey_unpack(p_.remote->endpoint(), place.key.data(), key);
  if (status != UCS_OK) {
    p_.remote->fail(status);
    return false;
  }
  MailSlot* slot = image(index);
  slot->sequence.store(sequence, std::memory_order_relaxed);
  slot->signature = envelope.signature;
  slot->form = envelope.form;
  slot->bytes = static_cast<uint32_t>(bytes);
  slot->payload = Payload::kLanded;
  return put(operation, data, bytes, place.address, *key) &&
         put_flagged(operation, reinterpret_cast<std::byte*>(slot), sizeof(MailSlot),
                     p_.peer_slots + index * p_.layout.slot_bytes());
}

// Library memory is registered already.
bool UcxPut::register_destination(Announcing* slot, std::byte* destination, size_t bytes) {
  PutAnnouncement& image = slot->image;
  Location location;
  if (p_.arena->locate(destination, bytes, &location)) {
    const SegmentRow& row = p_.arena->table()[location.segment];
    image.key_bytes = row.key_bytes.load(std::memory_order_relaxed);
    std::memcpy(image.key.data(), row.key.data(), image.key_bytes);
    return true;
  }
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
  params.address = destination;
  params.length = bytes;
  if (ucp_mem_map(p_.worker->context(), &params, &slot->memory) != UCS_OK) {
    slot->memory = nullptr;
    return false;
  }
  void* key = nullptr;
  size_t key_bytes = 0;
  if (ucp_rkey_pack(p_.worker->context(), slot->memory, &key, &key_bytes) != UCS_OK) return false;
  image.key_bytes = key_bytes;
  bool fits = key_bytes <= image.key.size();
  if (fits) std::memcpy(image.key.data(), key, key_bytes);
  ucp_rkey_buffer_release(key);
  return fits;
}

// A sender of a large message waits a while for its announcement, so it is told, too, that there is
// no place: the message then comes as an active one.
void UcxPut::announce(uint64_t sequence, std::byte* destination, size_t bytes) {
  if (bytes != 0 && is_small(bytes)) return;
  size_t index = (sequence - 1) % p_.depth;
  Announcing& slot = announcing_[index];
  if (slot.operation.busy()) return;
  std::lock_guard lock(p_.worker->mutex());
  if (p_.remote->failed()) return;
  slot.image.sequence.store(sequence, std::memory_order_relaxed);
  slot.image.address = reinterpret_cast<uint64_t>(destination);
  slot.image.bytes = bytes;
  if (destination == nullptr || !register_destination(&slot, destination, bytes)) {
    slot.image.bytes = slot.image.key_bytes = 0;
  }
  (void)put_flagged(&slot.operation, reinterpret_cast<std::byte*>(&slot.image),
                    offsetof(PutAnnouncement, key) + slot.image.key_bytes,
                    p_.peer_announcements + index * sizeof(PutAnnouncement));
}

bool UcxPut::arrived(uint64_t sequence, const std::byte* destination, Received* message) {
  MailSlot* slot = p_.layout.slot(p_.own_slots, (sequence - 1) % p_.depth);
  if (slot->sequence.load(std::memory_order_acquire) != sequence) return false;
  if (!p_.remote->lanes().native_put) {
    // The put was carried out by the thread that makes progress, by plain stores: meet it.
    std::lock_guard lock(p_.worker->mutex());
  }
  const std::byte* data = slot->payload == Payload::kNear     ? slot->near
                          : slot->payload == Payload::kInline ? slot->behind()
                                                              : destination;
  *message = Received{data, slot->bytes, slot->signature, slot->form};
  return true;
}

void UcxPut::released(uint64_t sequence) {
  Announcing& slot = announcing_[(sequence - 1) % p_.depth];
  if (slot.memory == nullptr) return;
  std::lock_guard lock(p_.worker->mutex());
  ucp_mem_unmap(p_.worker->context(), slot.memory);
  slot.memory = nullptr;
}

void UcxPut::close() {
  ucp_worker_fence(p_.worker->handle());
  (void)put(&closing_, &closed_flag_, sizeof(closed_flag_),
            p_.peer_ledger + offsetof(MailLedger, closed), region_key_);
}

bool UcxPut::busy() const {
  for (const Announcing& slot : announcing_) {
    if (slot.operation.busy()) return true;
  }
  return false;
}

}  // namespace hetccl::net

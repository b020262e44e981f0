// Puts, for a pair of ranks that meet over a network with one-sided access: small messages go
// straight into the receiver's mailbox, large ones straight to the destination that the receiver
// has announced in the sender's region. Data first, then a fence, then the flag.
//
// Messages for which there is no place to put them go as active messages, in the same sequence;
// so nothing waits for an announcement.
//
// User memory is registered for one announcement and deregistered when its message is released:
// a registration never outlives the use that it was made for, so none can be stale. Library
// memory has its segment's.
//
// Thread rule: as the pair; what says so is called under the worker's lock.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lib/net/mailbox.h"
#include "lib/net/net_pair.h"
#include "lib/net/ucx_remote.h"

namespace hetccl::net {

class UcxPut {
 public:
  struct Parts {
    UcxWorker* worker;
    const Arena* arena;
    UcxRemote* remote;
    MailLayout layout;
    size_t depth;
    std::byte* own_slots;
    const PutAnnouncement* own_announcements;  // where the peer announces
    uint64_t peer_slots;                       // addresses in the peer
    uint64_t peer_ledger;
    uint64_t peer_announcements;
    std::string peer_key;  // opens the peer's region
    size_t* requests;      // counts those under way
  };
  // Under the worker's lock, as the destructor.
  static Result<std::unique_ptr<UcxPut>> create(const Parts& parts);
  ~UcxPut();

  // --- sending
  bool is_small(size_t bytes) const { return bytes <= p_.layout.inline_bytes(); }
  // Under the worker's lock.
  bool is_announced(uint64_t sequence) const;
  bool has_place(uint64_t sequence, size_t bytes) const;
  // Under the worker's lock. False: the connection has failed. The pieces are copied.
  bool send_small(UcxOperation* operation, uint64_t sequence, std::span<const Piece> pieces,
                  size_t bytes, Envelope envelope);
  // Requires has_place(). `data` must stay until the operation is over.
  bool send_large(UcxOperation* operation, uint64_t sequence, const std::byte* data, size_t bytes,
                  Envelope envelope);

  // --- receiving
  void announce(uint64_t sequence, std::byte* destination, size_t bytes);
  // `destination`: where message `sequence` was announced to land.
  bool arrived(uint64_t sequence, const std::byte* destination, Received* message);
  void released(uint64_t sequence);

  // The last touch of the peer's region. Under the worker's lock.
  void close();
  bool busy() const;  // announcements are under way

 private:
  struct Announcing {
    UcxOperation operation;
    PutAnnouncement image;
    ucp_mem_h memory = nullptr;
  };

  explicit UcxPut(const Parts& parts);
  MailSlot* image(size_t index) { return p_.layout.slot(images_.get(), index); }
  bool put(UcxOperation* operation, const void* from, size_t bytes, uint64_t to, ucp_rkey_h key);
  bool put_flagged(UcxOperation* operation, const std::byte* image, size_t bytes, uint64_t to);
  bool register_destination(Announcing* slot, std::byte* destination, size_t bytes);

  Parts p_;
  ucp_rkey_h region_key_ = nullptr;
  std::unique_ptr<std::byte[]> images_memory_;
  struct Borrowed {
    void operator()(std::byte*) const {}
  };
  std::unique_ptr<std::byte, Borrowed> images_;  // aligned, of the slots that are put
  std::vector<ucp_rkey_h> destination_keys_;     // of the large messages under way, by slot
  std::vector<Announcing> announcing_;
  UcxOperation closing_;
  uint64_t closed_flag_ = 1;
};

}  // namespace hetccl::net

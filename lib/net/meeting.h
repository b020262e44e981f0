// What a unique id holds, and what ranks say at a meeting. Stateless.
#pragma once

#include <hetccl/hetccl.h>

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "lib/base/status.h"
#include "lib/net/frames.h"
#include "lib/net/interfaces.h"
#include "lib/net/sockets.h"

namespace hetccl::net {

inline constexpr size_t kSecretBytes = 16;
inline constexpr int kMaxMeetingRanks = 1 << 20;
inline constexpr size_t kMaxMeetingRecord = 64 * 1024;

// Fills a hetcclUniqueId from its start; the rest is zero.
struct MeetingId {
  uint64_t magic;
  uint64_t machine;   // hash: ranks of the same machine meet on loopback
  uint64_t checksum;  // of all else: a damaged id is known as such
  uint16_t port;
  uint8_t addresses_used;
  uint8_t secret[kSecretBytes];
  Address addresses[kMaxAddresses];
  uint8_t zero;  // leaves no padding
};
static_assert(std::has_unique_object_representations_v<MeetingId>);
static_assert(sizeof(MeetingId) <= sizeof(hetcclUniqueId));

MeetingId make_meeting_id(const std::vector<Address>& addresses, uint16_t port,
                          const std::string& machine);
hetcclUniqueId encode(const MeetingId& id);
Result<MeetingId> decode(const hetcclUniqueId& bytes);
uint64_t machine_hash(const std::string& machine);

struct MeetingHello {
  uint8_t secret[kSecretBytes];
  int ranks;
  int rank;
  uint64_t record_bytes;
};

Frame make_hello(const MeetingHello& hello);
bool decode(const Frame& frame, MeetingHello* hello);

}  // namespace hetccl::net

// What a rank tells all others when a session is made: one record of fixed size, as plain bytes.
//
// Thread rule: stateless.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lib/base/status.h"
#include "lib/net/interfaces.h"
#include "lib/net/place.h"
#include "lib/net/sockets.h"

namespace hetccl::net {

inline constexpr uint64_t kRecordMagic = 0x3173'6c63'6374'6568;  // also tells the byte order
inline constexpr uint32_t kProtocolVersion = 1;
inline constexpr size_t kKeyBytes = 16;

// Texts end with a zero.
struct SessionRecord {
  uint64_t magic;
  uint32_t version;
  uint32_t record_bytes;
  int32_t ranks;
  int32_t rank;
  int32_t pid;
  uint16_t port;
  uint8_t addresses_used;
  uint8_t failed;  // this rank cannot take part, and `error` says why
  Address addresses[kMaxAddresses];
  uint8_t key[kKeyBytes];  // whoever connects to this rank must know it
  char machine[160];
  char pid_context[160];
  char node[kMaxNodeName + 1];
  char shared_memory[512];
  char host[256];
  char error[256];
};

SessionRecord make_record(int ranks, int rank, const LocalPlace& local);
// Marks the record as that of a rank that cannot take part.
void set_failure(SessionRecord* record, const Status& why);
Place place_of(const SessionRecord& record);
// "rank 2 (host h, pid 123)"
std::string describe_rank(int rank, const SessionRecord& record);

// The records of all ranks: of this protocol, in order, and of one session.
Status check_records(const std::vector<SessionRecord>& records, int ranks);

}  // namespace hetccl::net

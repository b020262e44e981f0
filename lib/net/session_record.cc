#include "lib/net/session_record.h"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace hetccl::net {
namespace {

template <size_t N>
void put(char (&field)[N], std::string_view text) {
  const size_t bytes = std::min(text.size(), N - 1);
  std::memcpy(field, text.data(), bytes);
  field[bytes] = '\0';
}

template <size_t N>
std::string get(const char (&field)[N]) {
  return std::string(field, strnlen(field, N));
}

}  // namespace

SessionRecord make_record(int ranks, int rank, const LocalPlace& local) {
  SessionRecord record;
  // Every byte travels, those between the members too.
  std::memset(static_cast<void*>(&record), 0, sizeof(record));
  record.magic = kRecordMagic;
  record.version = kProtocolVersion;
  record.record_bytes = sizeof(SessionRecord);
  record.ranks = ranks;
  record.rank = rank;
  record.pid = local.place.pid;
  fill_random(record.key, sizeof(record.key));
  put(record.machine, local.machine);
  put(record.pid_context, local.pid_context);
  put(record.node, local.place.node);
  put(record.shared_memory, local.place.shared_memory);
  put(record.host, local.place.host);
  return record;
}

void set_failure(SessionRecord* record, const Status& why) {
  record->failed = 1;
  put(record->error, why.message());
}

Place place_of(const SessionRecord& record) {
  return {get(record.node), get(record.shared_memory), get(record.host), record.pid};
}

std::string describe_rank(int rank, const SessionRecord& record) {
  return "rank " + std::to_string(rank) + " (host " + get(record.host) + ", pid " +
         std::to_string(record.pid) + ")";
}

Status check_records(const std::vector<SessionRecord>& records, int ranks) {
  for (int r = 0; r < ranks; ++r) {
    const SessionRecord& record = records[static_cast<size_t>(r)];
    const std::string who = "rank " + std::to_string(r);
    if (record.magic != kRecordMagic) {
      return invalid_usage(who +
                           " sent no record of this library: its hetccl has another version, "
                           "its host another byte order, or the allgather mixed up the data");
    }
    if (record.version != kProtocolVersion || record.record_bytes != sizeof(SessionRecord)) {
      return invalid_usage(who + " runs another version of hetccl (protocol " +
                           std::to_string(record.version) + ", here " +
                           std::to_string(kProtocolVersion) + "): install one version everywhere");
    }
    if (record.rank != r || record.ranks != ranks) {
      return invalid_usage("the ranks do not agree on who they are: in place of rank " +
                           std::to_string(r) + " of " + std::to_string(ranks) + " came rank " +
                           std::to_string(record.rank) + " of " + std::to_string(record.ranks));
    }
    if (record.addresses_used > kMaxAddresses) return internal_error(who + " sent a bad record");
  }
  for (int r = 0; r < ranks; ++r) {
    const SessionRecord& record = records[static_cast<size_t>(r)];
    if (record.failed != 0) {
      return remote_error(describe_rank(r, record) + " cannot take part: " + get(record.error));
    }
  }
  return {};
}

}  // namespace hetccl::net

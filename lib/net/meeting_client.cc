// A rank's side of a meeting: a blocking exchange in the caller's thread.
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <thread>

#include "lib/net/control.h"
#include "lib/net/control_thread.h"
#include "lib/net/meeting.h"
#include "lib/net/place.h"

namespace hetccl::net {
namespace {

using std::chrono::milliseconds;

constexpr uint64_t kIdMagic = 0x6469'6c63'6374'6568;
constexpr uint64_t kMeetingMagic = 0x7465'656d'6c63'6374;
constexpr milliseconds kRetryPause{100};
// Whoever serves a meeting listens before the id exists, so a refusal is hardly ever temporary.
constexpr milliseconds kRefusedLimit{1000};
// For an answer that names who is missing.
constexpr milliseconds kMissingLimit{1500};
constexpr int kMaxPollMs = 60'000;

// FNV-1a.
uint64_t hash_bytes(const void* data, size_t bytes) {
  uint64_t hash = 0xcbf2'9ce4'8422'2325;
  for (size_t i = 0; i < bytes; ++i) {
    hash = (hash ^ static_cast<const uint8_t*>(data)[i]) * 0x100'0000'01b3;
  }
  return hash;
}

uint64_t checksum_of(MeetingId id) {
  id.checksum = 0;
  return hash_bytes(&id, sizeof(id));
}

class MeetingClient {
 public:
  MeetingClient(const MeetingId& id, double timeout_s) : id_(id), timeout_s_(timeout_s) {
    constexpr double kForever = 1e9;
    if (timeout_s > 0 && timeout_s < kForever) {
      deadline_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                     std::chrono::duration<double>(timeout_s));
    }
  }

  Status exchange(int ranks, int rank, const void* mine, void* all, size_t bytes);

 private:
  Status connect();
  Status try_address(const Address& address, bool* refused);
  bool wait(short events);  // false: the deadline has passed
  Status send(const std::string& bytes);
  Status receive(Frame* frame);
  Status ask_who_is_missing();
  Status lost(const std::string& why) const;

  MeetingId id_;
  double timeout_s_;
  Clock::time_point deadline_ = Clock::time_point::max();
  std::string where_;
  Fd fd_;
  FrameParser parser_{kMaxPayload};
};

bool MeetingClient::wait(short events) {
  for (;;) {
    const auto left = std::chrono::ceil<milliseconds>(deadline_ - Clock::now());
    if (left.count() <= 0) return false;
    pollfd poll{fd_.get(), events, 0};
    if (::poll(&poll, 1, static_cast<int>(std::min<int64_t>(left.count(), kMaxPollMs))) > 0) {
      return true;
    }
  }
}

Status MeetingClient::lost(const std::string& why) const {
  return system_error("the meeting at " + where_ + " broke off: " + why +
                      "; the process that made the unique id must live until all ranks have met");
}

Status MeetingClient::try_address(const Address& address, bool* refused) {
  where_ = to_string(address, id_.port);
  *refused = false;
  fd_ = start_connect(address, id_.port);
  int error = fd_.valid() ? 0 : errno;
  if (fd_.valid()) {
    if (!wait(POLLOUT)) return timeout_error("timed out connecting to the meeting at " + where_);
    error = connection_error(fd_.get());
  }
  if (error == 0) {
    tune_connection(fd_.get(), timeout_s_);
    return {};
  }
  *refused = error == ECONNREFUSED;
  return system_error("cannot connect to the meeting at " + where_ + ": " + error_text(error) +
                      (*refused ? "; the process that made the unique id has ended, or its ranks "
                                  "have met already (an id serves one communicator)"
                                : "; HETCCL_SOCKET_IFNAME chooses the interface"));
}

Status MeetingClient::connect() {
  Result<LocalPlace> local = find_place("");
  if (!local.ok()) return local.status();
  std::vector<Address> addresses(id_.addresses, id_.addresses + id_.addresses_used);
  if (machine_hash(local->machine) == id_.machine) addresses = {loopback_address()};
  const Clock::time_point start = Clock::now();
  for (;;) {
    bool all_refused = true;
    Status status;
    for (const Address& address : addresses) {
      bool refused = false;
      status = try_address(address, &refused);
      if (status.ok() || status.code() == hetcclTimeout) return status;
      all_refused = all_refused && refused;
    }
    if (all_refused && Clock::now() - start > kRefusedLimit) return status;
    if (Clock::now() + kRetryPause > deadline_) return timeout_error(status.message());
    std::this_thread::sleep_for(kRetryPause);
  }
}

Status MeetingClient::send(const std::string& bytes) {
  size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t count = ::send(fd_.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (count >= 0) {
      sent += static_cast<size_t>(count);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!wait(POLLOUT)) return timeout_error("timed out talking to the meeting at " + where_);
    } else if (errno != EINTR) {
      // What the other end said before it hung up tells more than this error.
      return {};
    }
  }
  return {};
}

// hetcclTimeout when the deadline passes.
Status MeetingClient::receive(Frame* frame) {
  char buffer[64 * 1024];
  while (!parser_.next(frame)) {
    if (parser_.broken()) return lost("the answer is malformed");
    if (!wait(POLLIN)) return timeout_error("timed out at the meeting at " + where_);
    const ssize_t got = ::recv(fd_.get(), buffer, sizeof(buffer), 0);
    if (got > 0) {
      parser_.feed(buffer, static_cast<size_t>(got));
    } else if (got == 0) {
      return lost("the connection was closed");
    } else if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
      return lost(error_text(errno));
    }
  }
  return {};
}

Status MeetingClient::ask_who_is_missing() {
  deadline_ = Clock::now() + kMissingLimit;
  Frame frame;
  frame.type = FrameType::kMissing;
  Status status = send(*encode(frame));
  if (status.ok()) status = receive(&frame);
  if (status.ok() && frame.type == FrameType::kRefused) return timeout_error(frame.payload);
  return timeout_error("timed out at the meeting at " + where_ +
                       ", and the process that serves it does not answer");
}

Status MeetingClient::exchange(int ranks, int rank, const void* mine, void* all, size_t bytes) {
  if (ranks < 1 || ranks > kMaxMeetingRanks || rank < 0 || rank >= ranks ||
      bytes > kMaxMeetingRecord) {
    return invalid_argument("a meeting of " + std::to_string(ranks) + " ranks, as rank " +
                            std::to_string(rank) + ", is not possible");
  }
  Status status = connect();
  if (!status.ok()) return status;
  MeetingHello hello{};
  std::memcpy(hello.secret, id_.secret, sizeof(hello.secret));
  hello.ranks = ranks;
  hello.rank = rank;
  hello.record_bytes = bytes;
  Frame join;
  join.type = FrameType::kJoin;
  join.payload.assign(static_cast<const char*>(mine), bytes);
  status = send(*encode(make_hello(hello)) + *encode(join));
  if (!status.ok()) return status;
  const size_t total = bytes * static_cast<size_t>(ranks);
  std::string table;
  while (table.size() < total) {
    Frame frame;
    status = receive(&frame);
    if (status.code() == hetcclTimeout) return ask_who_is_missing();
    if (!status.ok()) return status;
    if (frame.type == FrameType::kRefused) {
      return invalid_usage("the ranks could not meet: " + frame.payload);
    }
    if (frame.type != FrameType::kMet) return lost("the answer is malformed");
    table += frame.payload;
  }
  if (table.size() != total) return lost("the table has the wrong size");
  std::memcpy(all, table.data(), total);
  return {};
}

}  // namespace

uint64_t machine_hash(const std::string& machine) {
  return hash_bytes(machine.data(), machine.size());
}

MeetingId make_meeting_id(const std::vector<Address>& addresses, uint16_t port,
                          const std::string& machine) {
  MeetingId id;
  // The padding is part of the checksum.
  std::memset(static_cast<void*>(&id), 0, sizeof(id));
  id.magic = kIdMagic;
  id.machine = machine_hash(machine);
  id.port = port;
  id.addresses_used = static_cast<uint8_t>(std::min(addresses.size(), kMaxAddresses));
  std::copy_n(addresses.begin(), id.addresses_used, id.addresses);
  fill_random(id.secret, sizeof(id.secret));
  id.checksum = checksum_of(id);
  return id;
}

hetcclUniqueId encode(const MeetingId& id) {
  hetcclUniqueId bytes{};
  std::memcpy(bytes.internal, &id, sizeof(id));
  return bytes;
}

Result<MeetingId> decode(const hetcclUniqueId& bytes) {
  MeetingId id;
  std::memcpy(static_cast<void*>(&id), bytes.internal, sizeof(id));
  if (id.magic != kIdMagic || id.checksum != checksum_of(id) || id.addresses_used > kMaxAddresses) {
    return invalid_argument(
        "this is no unique id: it has to be what hetcclGetUniqueId gave, all 128 bytes unchanged");
  }
  return id;
}

Frame make_hello(const MeetingHello& hello) {
  Frame frame;
  frame.type = FrameType::kHello;
  frame.payload =
      Writer()
          .number(kMeetingMagic)
          .raw(std::string_view(reinterpret_cast<const char*>(hello.secret), kSecretBytes))
          .number<int32_t>(hello.ranks)
          .number<int32_t>(hello.rank)
          .number(hello.record_bytes)
          .take();
  return frame;
}

bool decode(const Frame& frame, MeetingHello* hello) {
  Reader reader(frame.payload);
  if (reader.number<uint64_t>() != kMeetingMagic) return false;
  const std::string_view secret = reader.raw(kSecretBytes);
  hello->ranks = reader.number<int32_t>();
  hello->rank = reader.number<int32_t>();
  hello->record_bytes = reader.number<uint64_t>();
  if (!reader.done()) return false;
  std::memcpy(hello->secret, secret.data(), kSecretBytes);
  return hello->ranks >= 1 && hello->ranks <= kMaxMeetingRanks && hello->rank >= 0 &&
         hello->rank < hello->ranks && hello->record_bytes <= kMaxMeetingRecord;
}

Allgather meeting_allgather(const hetcclUniqueId& id, int ranks, int rank,
                            const SessionOptions& options, Status* why) {
  return [id, ranks, rank, timeout_s = options.timeout_s, why](const void* mine, void* all,
                                                               size_t bytes) {
    Result<MeetingId> decoded = decode(id);
    *why = decoded.ok() ? MeetingClient(*decoded, timeout_s).exchange(ranks, rank, mine, all, bytes)
                        : decoded.status();
    return static_cast<int>(why->code());
  };
}

}  // namespace hetccl::net

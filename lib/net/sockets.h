// Sockets of the control plane. Every descriptor is close-on-exec and known to one registry of the
// process: a forked child closes them all, so that it never keeps a peer from seeing end of file.
//
// Thread rule: any thread; an Fd or a Listener has one owner.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "lib/base/status.h"

namespace hetccl::net {

// Counts the forks between the first process and this one: what was made in an older generation
// belongs to a parent process and must not be touched.
uint64_t fork_generation();

class Fd {
 public:
  Fd() = default;
  // Opens under the registry's lock, so that no fork falls between opening and registering.
  static Fd open(const std::function<int()>& open);  // invalid with errno set on failure
  Fd(Fd&& other) noexcept;
  Fd& operator=(Fd&& other) noexcept;
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() { reset(); }

  bool valid() const { return fd_ >= 0; }
  int get() const { return fd_; }
  void reset();

 private:
  int fd_ = -1;
  uint64_t generation_ = 0;
};

// An IP address without a port, in a form that may travel as bytes.
struct Address {
  uint8_t family = 0;  // 4, 6, or 0: none
  uint8_t bytes[16] = {};
  bool operator==(const Address&) const = default;
};

Address loopback_address();
std::string to_string(const Address& address);
std::string to_string(const Address& address, uint16_t port);

struct Listener {
  Fd fd;
  uint16_t port = 0;
};

// Listens on all addresses of both families where the host has both, at a port of the system's
// choice. Non-blocking.
Result<Listener> open_listener();
Fd accept_connection(int listener);  // invalid: none is waiting, or errno says why
// Non-blocking: writable once decided, connection_error() then tells how.
Fd start_connect(const Address& address, uint16_t port);  // invalid with errno set on failure
int connection_error(int fd);                             // 0: connected
// No delay, and keep-alive such that a lost host shows within `timeout_s` (0: as with 600).
void tune_connection(int fd, double timeout_s);

void fill_random(void* data, size_t bytes);
// Compares without telling by its duration where the difference lies.
bool same_secret(const uint8_t* a, const uint8_t* b, size_t bytes);
std::string error_text(int error);  // strerror, thread-safe

}  // namespace hetccl::net

#include "lib/net/sockets.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

namespace hetccl::net {
namespace {

// Leaked on purpose: descriptors may be closed while the process exits.
struct Registry {
  std::mutex mutex;
  std::vector<int> fds;
  std::atomic<uint64_t> generation{0};
};

Registry& registry();

void before_fork() { registry().mutex.lock(); }
void after_fork_in_parent() { registry().mutex.unlock(); }

// Only closes and forgets: the other threads, and whatever locks they held, do not exist here.
void after_fork_in_child() {
  Registry& r = registry();
  for (int fd : r.fds) ::close(fd);
  r.fds.clear();
  r.generation.fetch_add(1);
  r.mutex.unlock();
}

Registry& registry() {
  static Registry* instance = [] {
    auto* made = new Registry;
    made->fds.reserve(64);
    return made;
  }();
  return *instance;
}

void watch_forks() {
  [[maybe_unused]] static const int once =
      pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

union SocketAddress {
  sockaddr any;
  sockaddr_in v4;
  sockaddr_in6 v6;
};

socklen_t to_socket_address(const Address& address, uint16_t port, SocketAddress* out) {
  std::memset(out, 0, sizeof(*out));
  if (address.family == 4) {
    out->v4.sin_family = AF_INET;
    out->v4.sin_port = htons(port);
    std::memcpy(&out->v4.sin_addr, address.bytes, 4);
    return sizeof(out->v4);
  }
  out->v6.sin6_family = AF_INET6;
  out->v6.sin6_port = htons(port);
  std::memcpy(&out->v6.sin6_addr, address.bytes, 16);
  return sizeof(out->v6);
}

void set_option(int fd, int level, int name, int value) {
  // A system that lacks an option still works, with that system's own default.
  (void)setsockopt(fd, level, name, &value, sizeof(value));
}

Fd open_socket(int family) {
  return Fd::open(
      [family] { return ::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
}

Fd bound_socket(int family) {
  Fd fd = open_socket(family);
  if (!fd.valid()) return fd;
  if (family == AF_INET6) set_option(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  Address any;
  any.family = family == AF_INET6 ? 6 : 4;
  SocketAddress name;
  const socklen_t size = to_socket_address(any, 0, &name);
  if (::bind(fd.get(), &name.any, size) != 0 || ::listen(fd.get(), 1024) != 0) {
    const int error = errno;
    fd.reset();
    errno = error;
  }
  return fd;
}

}  // namespace

uint64_t fork_generation() { return registry().generation.load(); }

Fd Fd::open(const std::function<int()>& open) {
  watch_forks();
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  Fd result;
  result.fd_ = open();
  result.generation_ = r.generation.load();
  if (result.fd_ >= 0) r.fds.push_back(result.fd_);
  return result;
}

Fd::Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)), generation_(other.generation_) {}

Fd& Fd::operator=(Fd&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = std::exchange(other.fd_, -1);
    generation_ = other.generation_;
  }
  return *this;
}

void Fd::reset() {
  if (fd_ < 0) return;
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  if (generation_ == r.generation.load()) {
    auto found = std::find(r.fds.begin(), r.fds.end(), fd_);
    if (found != r.fds.end()) {
      *found = r.fds.back();
      r.fds.pop_back();
    }
    ::close(fd_);
  }
  fd_ = -1;
}

Address loopback_address() {
  Address address;
  address.family = 4;
  address.bytes[0] = 127;
  address.bytes[3] = 1;
  return address;
}

std::string to_string(const Address& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.family == 0) return "no address";
  const int family = address.family == 6 ? AF_INET6 : AF_INET;
  if (inet_ntop(family, address.bytes, text, sizeof(text)) == nullptr) return "unknown address";
  return text;
}

std::string to_string(const Address& address, uint16_t port) {
  const std::string host = to_string(address);
  return (address.family == 6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

Result<Listener> open_listener() {
  Listener listener;
  listener.fd = bound_socket(AF_INET6);
  if (!listener.fd.valid()) listener.fd = bound_socket(AF_INET);
  if (!listener.fd.valid()) {
    return system_error("cannot open a listening TCP socket: " + error_text(errno) +
                        " (limit of open files: ulimit -n)");
  }
  SocketAddress name;
  socklen_t size = sizeof(name);
  if (::getsockname(listener.fd.get(), &name.any, &size) != 0) {
    return system_error("cannot read the port of a listening socket: " + error_text(errno));
  }
  listener.port = ntohs(name.any.sa_family == AF_INET6 ? name.v6.sin6_port : name.v4.sin_port);
  return listener;
}

Fd accept_connection(int listener) {
  return Fd::open(
      [listener] { return ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK); });
}

Fd start_connect(const Address& address, uint16_t port) {
  SocketAddress name;
  const socklen_t size = to_socket_address(address, port, &name);
  Fd fd = open_socket(address.family == 6 ? AF_INET6 : AF_INET);
  if (!fd.valid()) return fd;
  if (::connect(fd.get(), &name.any, size) != 0 && errno != EINPROGRESS) {
    const int error = errno;
    fd.reset();
    errno = error;
  }
  return fd;
}

int connection_error(int fd) {
  int error = 0;
  socklen_t size = sizeof(error);
  if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) return errno;
  return error;
}

// Half of the time-out passes before a silent link is asked, the rest is for the answers.
void tune_connection(int fd, double timeout_s) {
  const double limit = std::clamp(timeout_s > 0 ? timeout_s : 600.0, 4.0, 7200.0);
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, std::max(1, static_cast<int>(limit / 4)));
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, std::max(1, static_cast<int>(limit / 12)));
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 5);
  set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(limit * 750));
}

void fill_random(void* data, size_t bytes) {
  auto* out = static_cast<uint8_t*>(data);
  while (bytes > 0) {
    const ssize_t got = ::getrandom(out, bytes, 0);
    if (got > 0) {
      out += got;
      bytes -= static_cast<size_t>(got);
    } else if (errno != EINTR) {
      break;
    }
  }
}

bool same_secret(const uint8_t* a, const uint8_t* b, size_t bytes) {
  unsigned difference = 0;
  for (size_t i = 0; i < bytes; ++i) difference |= static_cast<unsigned>(a[i] ^ b[i]);
  return difference == 0;
}

std::string error_text(int error) {
  char buffer[128];
  return strerror_r(error, buffer, sizeof(buffer));
}

}  // namespace hetccl::net

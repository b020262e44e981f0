#include "lib/net/place.h"

#include <limits.h>
#include <unistd.h>

#include <fstream>

#include "lib/net/sockets.h"

namespace hetccl::net {
namespace {

std::string random_text() {
  static constexpr char kDigits[] = "0123456789abcdef";
  uint8_t bytes[16] = {};
  fill_random(bytes, sizeof(bytes));
  std::string text;
  for (uint8_t b : bytes) text += {kDigits[b >> 4], kDigits[b & 15]};
  return text;
}

// A machine that cannot be told from others shares nothing with anybody: drawn once a process.
const std::string& unknown_machine() {
  static const std::string* text = new std::string("unknown-" + random_text());
  return *text;
}

std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  if (!std::getline(file, id) || id.empty()) return unknown_machine();
  return id;
}

// "net:[4026531840]"
std::string namespace_of(const char* kind) {
  char target[128];
  const std::string path = std::string("/proc/self/ns/") + kind;
  const ssize_t length = ::readlink(path.c_str(), target, sizeof(target));
  if (length <= 0) return std::string(kind) + ":[" + unknown_machine() + "]";
  return std::string(target, static_cast<size_t>(length));
}

}  // namespace

Result<LocalPlace> find_place(const std::string& node_override) {
  if (node_override.size() > kMaxNodeName) {
    return invalid_argument("HETCCL_NODE (or hetcclConfig_t::node) has " +
                            std::to_string(node_override.size()) + " bytes; allowed are " +
                            std::to_string(kMaxNodeName));
  }
  const std::string boot = boot_id();
  LocalPlace local;
  local.machine = boot + " " + namespace_of("net");
  local.pid_context = boot + " " + namespace_of("pid");
  local.place.node = node_override.empty() ? local.machine : node_override;
  // The boot id stays in: two hosts that were given one name still share no memory.
  local.place.shared_memory = local.place.node + " " + boot + " " + namespace_of("ipc");
  char host[HOST_NAME_MAX + 1] = "";
  if (::gethostname(host, sizeof(host) - 1) != 0 || host[0] == '\0') {
    local.place.host = "unknown";
  } else {
    local.place.host = host;
  }
  local.place.pid = static_cast<int>(::getpid());
  return local;
}

}  // namespace hetccl::net

// Which of the host's addresses a rank publishes: chosen by HETCCL_SOCKET_IFNAME, or the first one
// that other hosts may reach. Stateless.
#pragma once

#include <string>
#include <vector>

#include "lib/base/status.h"
#include "lib/net/sockets.h"

namespace hetccl::net {

struct InterfaceAddress {
  std::string name;
  Address address;
  bool loopback = false;
};

// Addresses of the interfaces that are up, without link-local ones, in the system's order.
std::vector<InterfaceAddress> list_interfaces();

inline constexpr size_t kMaxAddresses = 4;

// At least one address, at most kMaxAddresses, the best first. `spec` is a list of names or
// prefixes ("ib0,eth"), all of which must exist; a leading '^' makes it a list to leave out; empty:
// one address of the library's choice.
Result<std::vector<Address>> select_addresses(const std::string& spec,
                                              const std::vector<InterfaceAddress>& found);

}  // namespace hetccl::net

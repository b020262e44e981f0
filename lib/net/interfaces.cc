#include "lib/net/interfaces.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <string_view>

namespace hetccl::net {
namespace {

std::vector<std::string> split_names(std::string_view list) {
  std::vector<std::string> names;
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    std::string_view name = list.substr(0, comma);
    while (!name.empty() && name.front() == ' ') name.remove_prefix(1);
    while (!name.empty() && name.back() == ' ') name.remove_suffix(1);
    if (!name.empty()) names.emplace_back(name);
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return names;
}

bool has_name(const std::vector<InterfaceAddress>& found, const std::string& name) {
  return std::any_of(found.begin(), found.end(), [&](const auto& i) { return i.name == name; });
}

// A name that exists stands for itself alone: eth1 does not mean eth10.
bool matches(const std::string& interface, const std::string& name, bool exact) {
  return exact ? interface == name : interface.starts_with(name);
}

std::string describe(const std::vector<InterfaceAddress>& found) {
  std::string text;
  for (const InterfaceAddress& i : found) {
    text += (text.empty() ? "" : ", ") + i.name + " (" + to_string(i.address) + ")";
  }
  return text.empty() ? "none" : text;
}

Status refuse(const std::string& spec, const std::string& why,
              const std::vector<InterfaceAddress>& found) {
  return invalid_argument("HETCCL_SOCKET_IFNAME=" + spec + ": " + why +
                          "; interfaces that are up and have an address: " + describe(found));
}

// Addresses that other hosts may reach first, and IPv4 before IPv6.
int preference(const InterfaceAddress& i) {
  return (i.loopback ? 2 : 0) + (i.address.family == 6 ? 1 : 0);
}

std::vector<Address> best(std::vector<InterfaceAddress> chosen, size_t most) {
  std::stable_sort(chosen.begin(), chosen.end(),
                   [](const auto& a, const auto& b) { return preference(a) < preference(b); });
  std::vector<Address> addresses;
  for (size_t i = 0; i < chosen.size() && i < most; ++i) addresses.push_back(chosen[i].address);
  return addresses;
}

}  // namespace

std::vector<InterfaceAddress> list_interfaces() {
  std::vector<InterfaceAddress> found;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return found;
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || (i->ifa_flags & IFF_UP) == 0) continue;
    InterfaceAddress entry;
    entry.name = i->ifa_name;
    entry.loopback = (i->ifa_flags & IFF_LOOPBACK) != 0;
    if (i->ifa_addr->sa_family == AF_INET) {
      sockaddr_in v4;
      std::memcpy(&v4, i->ifa_addr, sizeof(v4));
      entry.address.family = 4;
      std::memcpy(entry.address.bytes, &v4.sin_addr, 4);
    } else if (i->ifa_addr->sa_family == AF_INET6) {
      sockaddr_in6 v6;
      std::memcpy(&v6, i->ifa_addr, sizeof(v6));
      if (IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr)) continue;
      entry.address.family = 6;
      std::memcpy(entry.address.bytes, &v6.sin6_addr, 16);
    } else {
      continue;
    }
    found.push_back(entry);
  }
  freeifaddrs(list);
  return found;
}

Result<std::vector<Address>> select_addresses(const std::string& spec,
                                              const std::vector<InterfaceAddress>& found) {
  const bool exclude = spec.starts_with("^");
  const std::vector<std::string> names = split_names(std::string_view(spec).substr(exclude));
  if (names.empty()) {
    if (!spec.empty()) return refuse(spec, "the list holds no name", found);
    // A host without any interface can still run ranks of its own.
    if (found.empty()) return std::vector<Address>{loopback_address()};
    return best(found, 1);
  }
  std::vector<InterfaceAddress> chosen;
  for (const InterfaceAddress& i : found) {
    const bool listed = std::any_of(names.begin(), names.end(), [&](const std::string& name) {
      return matches(i.name, name, has_name(found, name));
    });
    if (listed != exclude) chosen.push_back(i);
  }
  if (!exclude) {
    for (const std::string& name : names) {
      if (std::none_of(found.begin(), found.end(),
                       [&](const auto& i) { return i.name.starts_with(name); })) {
        return refuse(spec, "no interface is called \"" + name + "\" or begins with it", found);
      }
    }
  }
  if (chosen.empty()) return refuse(spec, "the list leaves no interface", found);
  return best(std::move(chosen), exclude ? 1 : kMaxAddresses);
}

}  // namespace hetccl::net

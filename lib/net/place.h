// Where this process is: node, namespaces, host, process id. Stateless; any thread.
#pragma once

#include <cstdint>
#include <string>

#include "lib/base/status.h"
#include "lib/net/control.h"

namespace hetccl::net {

struct LocalPlace {
  Place place;
  std::string machine;  // boot id and network namespace: processes of equal value meet on loopback
  std::string pid_context;  // processes of equal value see each other under the same process ids
};

// What is compared has to fit the record that ranks exchange.
inline constexpr size_t kMaxNodeName = 200;

Result<LocalPlace> find_place(const std::string& node_override);

}  // namespace hetccl::net

// The page doc/collectives.md, made from the registry and the plans themselves.
#pragma once

#include <string>

namespace hetccl::bench {

// "" and *error where a plan cannot be proved.
std::string collectives_page(std::string* error);

}  // namespace hetccl::bench

#include "bench/memory_kind.h"

#include <algorithm>
#include <array>

namespace hetccl::bench {
namespace {

constexpr std::array<MemoryKind, 6> kKinds = {{
    {"host", hetcclMemoryHost, false},
    {"host-lib", hetcclMemoryHost, true},
    {"cuda", hetcclMemoryCuda, false},
    {"hip", hetcclMemoryHip, false},
    {"sim:cuda", hetcclMemorySimCuda, false},
    {"sim:hip", hetcclMemorySimHip, false},
}};

}  // namespace

std::string memory_names() {
  std::string names;
  for (const MemoryKind& k : kKinds) names += (names.empty() ? "" : ", ") + std::string(k.name);
  return names;
}

std::string deal_memory(const std::vector<std::string>& names, int ranks,
                        std::vector<MemoryKind>* by_rank) {
  by_rank->clear();
  for (const std::string& name : names) {
    auto found = std::find_if(kKinds.begin(), kKinds.end(),
                              [&](const MemoryKind& k) { return name == k.name; });
    if (found == kKinds.end()) {
      return "--memory: '" + name + "' is unknown; allowed: " + memory_names();
    }
    by_rank->push_back(*found);
  }
  const auto wanted = static_cast<size_t>(ranks);
  if (by_rank->size() == 1) by_rank->resize(wanted, by_rank->front());
  if (by_rank->size() == wanted) return "";
  return "--memory: " + std::to_string(by_rank->size()) + " kinds for " + std::to_string(ranks) +
         " ranks; give one for all, or one for each rank";
}

std::string memory_label(const std::vector<MemoryKind>& by_rank) {
  const std::string first = by_rank.front().name;
  const bool alike = std::all_of(by_rank.begin(), by_rank.end(),
                                 [&](const MemoryKind& k) { return k.name == first; });
  if (alike) return first;
  std::string label;
  for (const MemoryKind& k : by_rank) label += (label.empty() ? "" : "+") + std::string(k.name);
  return label;
}

}  // namespace hetccl::bench

#include "bench/paths.h"

#include <algorithm>
#include <cstdio>

#include "bench/library.h"
#include "bench/world.h"

namespace hetccl::bench {
namespace {

using nlohmann::json;

// Columns as wide as their longest text; the last is left as it is.
std::string aligned(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t c = 0; c < row.size(); ++c) {
      line += row[c] + std::string(widths[c] - row[c].size() + 2, ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string ends(const std::string& from, const std::string& to) { return from + " -> " + to; }

}  // namespace

std::string paths_to_text(const json& rank_table) {
  std::vector<std::vector<std::string>> ranks = {{"rank", "host", "node", "kind", "device"}};
  std::vector<std::string> nodes;  // a number is enough to tell them apart
  std::vector<std::vector<std::string>> pairs = {{"ranks", "kinds", "path", "over", "reason"}};
  for (const json& rank : rank_table) {
    const std::string device = rank.value("device", ""), node = rank.value("node", "?");
    const auto known = std::find(nodes.begin(), nodes.end(), node);
    const auto number = std::to_string(known - nodes.begin());
    if (known == nodes.end()) nodes.push_back(node);
    ranks.push_back({rank["rank"].dump(), rank.value("host", "?"), number, rank.value("kind", "?"),
                     device.empty() ? "-" : device});
    for (size_t peer = 0; peer < rank_table.size(); ++peer) {
      const auto found = rank["paths"].find(std::to_string(peer));
      if (found == rank["paths"].end()) continue;
      pairs.push_back({ends(rank["rank"].dump(), std::to_string(peer)),
                       ends(rank.value("kind", "?"), rank_table[peer].value("kind", "?")),
                       found->value("path", "?"), found->value("lane", "?"),
                       found->value("reason", "")});
    }
  }
  if (pairs.size() == 1) return aligned(ranks) + "one rank: nothing travels\n";
  return aligned(ranks) + "\n" + aligned(pairs);
}

int print_paths(int* argc, char*** argv, const std::vector<std::string>& memory, bool as_json) {
  World world(argc, argv, "hetccl_info");
  std::vector<MemoryKind> kinds;
  std::string wrong = memory.empty() ? "" : deal_memory(memory, world.ranks(), &kinds);
  if (!world.agree(wrong.empty(), wrong)) return 2;
  Library::Setup setup;
  if (!kinds.empty()) setup.memory = &kinds[static_cast<size_t>(world.rank())];
  Library library;
  if (!library.start(world, setup)) return 2;
  const json table = library.rank_table(world);
  if (world.rank() != 0) return 0;
  std::string text = as_json ? table.dump(2) + "\n" : paths_to_text(table);
  return std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0 ? 0 : 1;
}

}  // namespace hetccl::bench

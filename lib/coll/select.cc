#include "lib/coll/select.h"

#include <algorithm>
#include <cmath>

namespace hetccl::coll {
namespace {

// Bytes of all blocks up to which algorithms that stage other ranks' blocks are chosen.
constexpr size_t kMostStaged = size_t{4} << 20;

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    const std::string_view part = trimmed(text.substr(begin, end - begin));
    if (!part.empty()) parts.push_back(part);
    begin = end + 1;
  }
  return parts;
}

std::string known_collectives() {
  std::string names;
  for (int c = 0; c < kCollectives; ++c) {
    names += std::string(name_of(static_cast<Collective>(c))) + ", ";
  }
  return names + "or * for all";
}

// Names of the algorithms of a collective, or of all.
std::string known_algorithms(std::optional<Collective> collective) {
  std::vector<std::string_view> names;
  for (const Algorithm& a : algorithms()) {
    if (collective && a.collective != *collective) continue;
    if (std::find(names.begin(), names.end(), a.name) == names.end()) names.push_back(a.name);
  }
  std::string text;
  for (std::string_view name : names) text += (text.empty() ? "" : ", ") + std::string(name);
  return text;
}

bool can_serve(const Algorithm& algorithm, const Query& query) {
  return algorithm.collective == query.collective &&
         (algorithm.rank_order || !query.needs_rank_order) &&
         (algorithm.own_counts || !query.own_counts);
}

std::string why_not(const Algorithm& algorithm, const Query& query) {
  if (can_serve(algorithm, query)) return " is excluded there too";
  if (query.own_counts && !algorithm.own_counts) return " needs counts that are equal on all ranks";
  return " does not combine in rank order, as this call needs";
}

std::string microseconds(double seconds) {
  const long long tenths = std::llround(std::min(seconds, 1e9) * 1e7);
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " us";
}

double estimate(const Algorithm& algorithm, const Query& query, const CostModel& model) {
  return estimate(algorithm, query.ranks, query.root, query.bytes, query.accumulator_bytes,
                  query.element_bytes, model);
}

// The cheapest of those that can serve and are not excluded; nullptr: none.
Choice cheapest(const Query& query, const Forced* forced, const CostModel& model) {
  std::vector<const Algorithm*> candidates;
  for (const Algorithm& a : algorithms()) {
    if (!can_serve(a, query)) continue;
    if (forced != nullptr && forced->excluded(query.collective, a.name)) continue;
    if (a.stages && query.bytes > kMostStaged) continue;
    candidates.push_back(&a);
  }
  if (candidates.empty()) return {nullptr, ""};
  if (candidates.size() == 1) return {candidates[0], "the only one that can serve this call"};
  if (query.ranks == 1) return {candidates[0], "one rank: a copy"};
  const Algorithm* best = nullptr;
  const Algorithm* second = nullptr;
  double best_time = 0, second_time = 0;
  for (const Algorithm* a : candidates) {
    const double time = estimate(*a, query, model);
    if (best == nullptr || time < best_time) {
      second = best;
      second_time = best_time;
      best = a;
      best_time = time;
    } else if (second == nullptr || time < second_time) {
      second = a;
      second_time = time;
    }
  }
  return {best, "least estimated time: " + microseconds(best_time) + " (next: " + second->name +
                    " " + microseconds(second_time) + ")"};
}

}  // namespace

Result<Forced> Forced::parse(std::string_view text) {
  Forced forced;
  for (const std::string_view clause : split(text, ';')) {
    const size_t colon = clause.find(':');
    const std::string_view who = trimmed(clause.substr(0, std::min(colon, clause.size())));
    const bool all = who == "*";
    const std::optional<Collective> collective = all ? std::nullopt : parse_collective(who);
    if (!all && !collective) {
      return invalid_argument("HETCCL_ALGO: unknown collective '" + std::string(who) +
                              "'; write collective:algorithm,..., where the collective is " +
                              known_collectives());
    }
    const auto names = colon == std::string_view::npos ? std::vector<std::string_view>{}
                                                       : split(clause.substr(colon + 1), ',');
    if (names.empty()) {
      return invalid_argument("HETCCL_ALGO: no algorithm given for '" + std::string(who) +
                              "'; known are " + known_algorithms(collective));
    }
    for (std::string_view name : names) {
      const bool excluded = name.front() == '^';
      if (excluded) name = trimmed(name.substr(1));
      bool known = false;
      for (int c = 0; c < kCollectives; ++c) {
        if (collective && *collective != static_cast<Collective>(c)) continue;
        if (find(static_cast<Collective>(c), name) == nullptr) continue;
        known = true;
        (excluded ? forced.excluded_ : forced.wanted_)[c].emplace_back(name);
      }
      if (!known) {
        return invalid_argument("HETCCL_ALGO: unknown algorithm '" + std::string(name) + "' for '" +
                                std::string(who) + "'; known are " + known_algorithms(collective));
      }
    }
  }
  return forced;
}

std::span<const std::string> Forced::wanted(Collective collective) const {
  return wanted_[static_cast<size_t>(collective)];
}

bool Forced::excluded(Collective collective, std::string_view name) const {
  const std::vector<std::string>& names = excluded_[static_cast<size_t>(collective)];
  return std::find(names.begin(), names.end(), name) != names.end();
}

Choice choose(const Query& query, const Forced& forced, const CostModel& model) {
  std::string ignored;
  for (const std::string& name : forced.wanted(query.collective)) {
    const Algorithm* wanted = find(query.collective, name);
    if (can_serve(*wanted, query) && !forced.excluded(query.collective, name)) {
      return {wanted, "forced by HETCCL_ALGO" + ignored, !ignored.empty()};
    }
    ignored += (ignored.empty() ? "; HETCCL_ALGO's " : ", ") + name + why_not(*wanted, query);
  }
  Choice choice = cheapest(query, &forced, model);
  if (choice.algorithm == nullptr) {
    choice = cheapest(query, nullptr, model);
    ignored += "; HETCCL_ALGO excludes all that can serve this call";
  }
  choice.reason += ignored;
  choice.forced_ignored = !ignored.empty();
  return choice;
}

}  // namespace hetccl::coll

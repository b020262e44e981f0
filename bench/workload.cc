#include "bench/workload.h"

#include <charconv>
#include <sstream>

namespace hetccl::bench {
namespace {

template <typename T>
bool parse_number(const std::string& text, T* number) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && end == text.data() + text.size();
}

// What is wrong with the line, or "".
std::string parse_line(const std::vector<std::string>& words, WorkloadCall* call) {
  if (!parse_kind(words[0], &call->kind)) {
    return "'" + words[0] + "' is no collective; allowed: " + collective_names();
  }
  if (call->kind == Kind::kBarrier && words.size() == 1) return "";
  if (words.size() < 3 || words.size() > 5) {
    return "expected 'collective count type op [root]', got " + std::to_string(words.size()) +
           " words";
  }
  // A product of count, element size and ranks must stay countable.
  constexpr size_t kMost = size_t{1} << 46;
  if (!parse_number(words[1], &call->count) || call->count > kMost) {
    return "'" + words[1] + "' is no count; allowed: 0 to " + std::to_string(kMost);
  }
  if (!parse_type(words[2], &call->type)) {
    return "'" + words[2] + "' is no data type; allowed: " + type_names();
  }
  bool has_op = words.size() > 3 && words[3] != "none" && words[3] != "-";
  if (reduces(call->kind) && !has_op) return "the operator is missing; allowed: " + op_names();
  if (has_op && !parse_op(words[3], &call->op)) {
    return "'" + words[3] + "' is no operator; allowed: " + op_names();
  }
  if (!allows(call->kind, call->type, call->op)) {
    return words[3] + " is not defined for " + words[2] + " in " + words[0];
  }
  if (words.size() == 5 && (!parse_number(words[4], &call->root) || call->root < -1)) {
    return "'" + words[4] + "' is no root; allowed: a rank";
  }
  if (call->root < 0) call->root = 0;
  return "";
}

}  // namespace

bool parse_workload(std::string_view text, const std::string& name,
                    std::vector<WorkloadCall>* calls, std::string* error) {
  calls->clear();
  std::istringstream lines{std::string(text)};
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    std::istringstream stream(line.substr(0, line.find('#')));
    std::vector<std::string> words;
    for (std::string word; stream >> word;) words.push_back(word);
    if (words.empty()) continue;
    WorkloadCall call;
    std::string wrong = parse_line(words, &call);
    if (!wrong.empty()) {
      *error = name + ":" + std::to_string(number) + ": " + wrong;
      return false;
    }
    calls->push_back(call);
  }
  if (!calls->empty()) return true;
  *error = name + ":1: no call in this file; expected lines 'collective count type op [root]'";
  return false;
}

}  // namespace hetccl::bench

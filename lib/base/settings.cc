#include "lib/base/settings.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <mutex>
#include <set>
#include <variant>

namespace hetccl {
namespace {

using Type = SettingRow::Type;
using Field = std::variant<std::string Settings::*, bool Settings::*, uint64_t Settings::*,
                           double Settings::*>;

const SettingRow kRows[] = {
    {"ALGO", Type::kText, "", "COLLECTIVE:NAME[,NAME...][;...], * for all, ^NAME excludes", 0, 0,
     true, "forces or excludes algorithms"},
    {"NODE", Type::kText, "", "any name", 0, 0, false,
     "the node that this rank believes to be on; ranks of different nodes share no memory"},
    {"SOCKET_IFNAME", Type::kText, "", "NAME[,NAME...] or ^NAME[,NAME...]", 0, 0, false,
     "network interfaces to use, or to leave alone"},
    {"DEBUG", Type::kChoice, "warn", "none|warn|info|trace", 0, 0, false, "how much is logged"},
    {"DEBUG_FILE", Type::kText, "", "a path; %h is the host, %p the process", 0, 0, false,
     "where the log goes instead of standard error"},
    {"TIMEOUT", Type::kSeconds, "600", "seconds, 0 or more", 0, 1e9, true,
     "how long a silent rank is waited for; 0: for ever"},
    {"CHUNK_SIZE", Type::kSize, "0", "0, or 4K to 16M", 0, 16 << 20, true,
     "bytes of a chunk, the unit in which large blocks travel; 0: chosen by the library"},
    {"DEPTH", Type::kCount, "16", "2 to 64", 2, 64, true, "messages in flight between two ranks"},
    {"SPIN", Type::kCount, "1000", "0 to 1000000", 0, 1e6, false,
     "polls before a waiting call yields its core, where each rank has one of its own"},
    {"ISA", Type::kChoice, "auto", "auto|avx512|avx2|portable", 0, 0, false,
     "instructions for reductions on the host; results do not depend on it"},
    {"CHECK", Type::kFlag, "1", "0 or 1", 0, 1, true,
     "compares the arguments of each call between ranks"},
    {"REPRODUCIBLE", Type::kFlag, "0", "0 or 1", 0, 1, true, "sums in rank order everywhere"},
    {"PLAN_CACHE", Type::kCount, "256", "1 to 1000000", 1, 1e6, false,
     "plans kept per communicator, least recently used out first"},
    {"TCP_SEGMENT", Type::kSize, "256K", "0, or 4K to 4M", 0, 4 << 20, false,
     "UCX's segment size for TCP; 0: left to UCX"},
    {"NET_PUT", Type::kChoice, "auto", "auto|yes|no", 0, 0, true,
     "whether large blocks are put into the receiver's buffer; auto: where the network can"},
    {"UCX_SIGNALS", Type::kFlag, "0", "0 or 1", 0, 1, false,
     "leaves UCX's signal handlers in place, for debugging"},
    {"PATH", Type::kChoice, "auto", "auto|staged|direct", 0, 0, true,
     "how data in device memory travel: through pinned host memory, or between devices and by the "
     "network's own access to them; auto: whichever is found to work and be faster"},
    {"STAGING_SIZE", Type::kSize, "64M", "32M to 64G", 32 << 20, 64e9, false,
     "pinned host memory of the process through which data of devices pass"},
    {"HOST_BELOW", Type::kSize, "64K", "0 to 1G", 0, 1 << 30, false,
     "calls on so much device memory or less are copied to the host as a whole and run there"},
    {"MAX_CTAS", Type::kCount, "16", "1 to 1024", 1, 1024, false,
     "blocks of a reduction's kernel at most, so that the program's own kernels keep the rest of "
     "the device"},
    {"DELEGATE", Type::kChoice, "auto", "auto|off|require", 0, 0, true,
     "whether calls go to the library of the GPUs' vendor where all ranks have such GPUs; auto: "
     "those whose results are the same bit for bit; require: all that it has"},
    {"DELEGATE_LIBRARY", Type::kText, "", "a path", 0, 0, false,
     "that library, instead of the vendor's by its usual name"},
    {"RECORD", Type::kText, "", "a path", 0, 0, false,
     "rank 0 writes its collective calls there, for hetccl_perf replay"},
    {"SIM", Type::kText, "", "OPTION=VALUE[,OPTION=VALUE...] as in devices=2,h2d=1G,direct=off", 0,
     0, false, "the simulated devices: their number, memory, speed, abilities and failures"},
    {"MPI", Type::kChoice, "auto", "off|auto|all", 0, 0, true,
     "which collectives of an MPI program under hetccl-run are run here; auto: those that are "
     "faster "
     "here, and all where a rank sees a device"},
    {"MPI_REPORT", Type::kFlag, "0", "0 or 1", 0, 1, false,
     "an MPI program under hetccl-run ends with a summary of its collectives"},
};

const Field kFields[] = {
    &Settings::algo,          &Settings::node,
    &Settings::socket_ifname, &Settings::debug,
    &Settings::debug_file,    &Settings::timeout_s,
    &Settings::chunk_bytes,   &Settings::depth,
    &Settings::spin,          &Settings::isa,
    &Settings::check,         &Settings::reproducible,
    &Settings::plan_cache,    &Settings::tcp_segment,
    &Settings::net_put,       &Settings::ucx_signals,
    &Settings::path,          &Settings::staging_size,
    &Settings::host_below,    &Settings::max_ctas,
    &Settings::delegate,      &Settings::delegate_library,
    &Settings::record,        &Settings::sim,
    &Settings::mpi,           &Settings::mpi_report,
};
static_assert(std::size(kRows) == std::size(kFields));

bool parse_number(std::string_view text, double* value) {
  if (text.empty() || text.front() < '0' || text.front() > '9') return false;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), *value, std::chars_format::fixed);
  return error == std::errc() && end == text.data() + text.size() && std::isfinite(*value);
}

// "64K", "1.5M", "8": binary multiples.
bool parse_size(std::string_view text, double* value) {
  double factor = 1;
  if (!text.empty()) {
    switch (text.back()) {
      case 'k':
      case 'K':
        factor = 1024.0;
        break;
      case 'm':
      case 'M':
        factor = 1024.0 * 1024;
        break;
      case 'g':
      case 'G':
        factor = 1024.0 * 1024 * 1024;
        break;
      default:
        break;
    }
    if (factor != 1) text.remove_suffix(1);
  }
  if (!parse_number(text, value)) return false;
  *value *= factor;
  return *value == std::floor(*value);
}

bool is_choice(std::string_view choices, std::string_view text) {
  while (!choices.empty()) {
    const size_t bar = std::min(choices.find('|'), choices.size());
    if (choices.substr(0, bar) == text) return true;
    choices.remove_prefix(std::min(bar + 1, choices.size()));
  }
  return false;
}

Status bad_value(const SettingRow& row, std::string_view text) {
  return invalid_argument("HETCCL_" + std::string(row.name) + "=\"" + std::string(text) +
                          "\" is not allowed; allowed: " + row.allowed);
}

Status store(size_t k, std::string_view text, Settings* s) {
  const SettingRow& row = kRows[k];
  double number = 0;
  switch (row.type) {
    case Type::kText:
      s->*std::get<std::string Settings::*>(kFields[k]) = text;
      return {};
    case Type::kChoice:
      if (!is_choice(row.allowed, text)) return bad_value(row, text);
      s->*std::get<std::string Settings::*>(kFields[k]) = text;
      return {};
    case Type::kFlag:
      if (text != "0" && text != "1") return bad_value(row, text);
      s->*std::get<bool Settings::*>(kFields[k]) = text == "1";
      return {};
    case Type::kSeconds:
      if (!parse_number(text, &number) || number < row.low || number > row.high) break;
      s->*std::get<double Settings::*>(kFields[k]) = number;
      return {};
    case Type::kCount:
      if (!parse_number(text, &number) || number != std::floor(number)) break;
      if (number < row.low || number > row.high) break;
      s->*std::get<uint64_t Settings::*>(kFields[k]) = static_cast<uint64_t>(number);
      return {};
    case Type::kSize:
      if (!parse_size(text, &number) || number > row.high) break;
      if (number != 0 && number < 4096) break;  // all our sizes: 0 has a meaning of its own
      s->*std::get<uint64_t Settings::*>(kFields[k]) = static_cast<uint64_t>(number);
      return {};
  }
  return bad_value(row, text);
}

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

log::Level Settings::log_level() const {
  if (debug == "none") return log::Level::kNone;
  if (debug == "info") return log::Level::kInfo;
  return debug == "trace" ? log::Level::kTrace : log::Level::kWarn;
}

std::span<const SettingRow> setting_rows() { return kRows; }

const char* name_of(SettingRow::Type type) {
  switch (type) {
    case Type::kText:
      return "text";
    case Type::kFlag:
      return "flag";
    case Type::kCount:
      return "count";
    case Type::kSize:
      return "size";
    case Type::kSeconds:
      return "seconds";
    case Type::kChoice:
      return "choice";
  }
  return "";
}

Result<Settings> parse_settings(std::span<const std::string> environment,
                                std::vector<std::string>* unknown) {
  Settings settings;
  for (size_t k = 0; k < std::size(kRows); ++k) {
    if (Status s = store(k, kRows[k].default_text, &settings); !s.ok()) return s;
  }
  constexpr std::string_view kPrefix = "HETCCL_";
  for (const std::string& entry : environment) {
    const std::string_view text = entry;
    const size_t equals = text.find('=');
    if (text.substr(0, kPrefix.size()) != kPrefix || equals == text.npos) continue;
    const std::string_view name = text.substr(kPrefix.size(), equals - kPrefix.size());
    const auto row = std::find_if(std::begin(kRows), std::end(kRows),
                                  [&](const SettingRow& r) { return name == r.name; });
    if (row == std::end(kRows)) {
      unknown->push_back(std::string(text.substr(0, equals)));
      continue;
    }
    Status s = store(static_cast<size_t>(row - kRows), text.substr(equals + 1), &settings);
    if (!s.ok()) return s;
  }
  return settings;
}

Result<Settings> load_settings() {
  std::vector<std::string> environment, unknown;
  for (char** e = environ; e != nullptr && *e != nullptr; ++e) environment.emplace_back(*e);
  Result<Settings> settings = parse_settings(environment, &unknown);
  if (settings.ok()) log::configure(settings->log_level(), settings->debug_file);
  static std::mutex mutex;
  static auto* const warned = new std::set<std::string>;
  std::lock_guard lock(mutex);
  for (const std::string& name : unknown) {
    if (!warned->insert(name).second) continue;
    log::warn("unknown setting " + name + "; the nearest known name is " + nearest_setting(name));
  }
  return settings;
}

bool is_set_in_environment(const char* name) { return std::getenv(name) != nullptr; }

std::string nearest_setting(std::string_view name) {
  const SettingRow* best = kRows;
  size_t least = SIZE_MAX;
  for (const SettingRow& row : kRows) {
    const size_t d = edit_distance(name, "HETCCL_" + std::string(row.name));
    if (d < least) least = d, best = &row;
  }
  return "HETCCL_" + std::string(best->name);
}

std::string value_text(const Settings& s, const SettingRow& row) {
  const Field& field = kFields[&row - kRows];
  if (auto* f = std::get_if<std::string Settings::*>(&field)) return s.**f;
  if (auto* f = std::get_if<bool Settings::*>(&field)) return s.**f ? "1" : "0";
  if (auto* f = std::get_if<uint64_t Settings::*>(&field)) return std::to_string(s.**f);
  char text[32];
  const double seconds = s.*std::get<double Settings::*>(field);
  const auto end = std::to_chars(text, text + sizeof text, seconds, std::chars_format::fixed).ptr;
  return std::string(text, end);
}

std::vector<std::string> agreed_values(const Settings& settings) {
  std::vector<std::string> values;
  for (const SettingRow& row : kRows) {
    if (row.agreed) values.push_back(value_text(settings, row));
  }
  return values;
}

Status adopt_agreed_values(std::span<const std::string> values, Settings* settings) {
  size_t next = 0;
  for (size_t k = 0; k < std::size(kRows); ++k) {
    if (!kRows[k].agreed) continue;
    if (next == values.size()) break;
    if (Status s = store(k, values[next++], settings); !s.ok()) return s;
  }
  if (next != values.size() || next != agreed_values(*settings).size()) {
    return invalid_usage("ranks run different versions of hetccl: their settings do not match");
  }
  return {};
}

std::string agreed_name(size_t k) {
  for (const SettingRow& row : kRows) {
    if (row.agreed && k-- == 0) return "HETCCL_" + std::string(row.name);
  }
  return "HETCCL_?";
}

}  // namespace hetccl

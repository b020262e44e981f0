// The settings: environment variables HETCCL_*, one row each. The parser, hetccl_info --settings
// and the agreement between ranks all work from the rows. Settings are read when a communicator is
// created; nothing is read later.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/log.h"
#include "lib/base/status.h"

namespace hetccl {

struct Settings {
  std::string algo;
  std::string node;
  std::string socket_ifname;
  std::string debug = "warn";
  std::string debug_file;
  double timeout_s = 0;
  uint64_t chunk_bytes = 0;  // 0: chosen by the library
  uint64_t depth = 0;
  uint64_t spin = 0;
  std::string isa;
  bool check = true;
  bool reproducible = false;
  uint64_t plan_cache = 0;
  uint64_t tcp_segment = 0;
  std::string net_put;
  bool ucx_signals = false;
  std::string path;
  uint64_t staging_size = 0;
  uint64_t host_below = 0;
  uint64_t max_ctas = 0;
  std::string delegate;
  std::string delegate_library;
  std::string record;
  std::string sim;
  std::string mpi;
  bool mpi_report = false;

  // Of hetcclConfig_t; there are no variables for them. -1: found by the library.
  int device_kind = -1;
  int device = -1;

  log::Level log_level() const;
};

struct SettingRow {
  enum class Type { kText, kFlag, kCount, kSize, kSeconds, kChoice };
  const char* name;  // without HETCCL_
  Type type;
  const char* default_text;
  const char* allowed;  // for people; for kChoice the choices, separated by |
  double low, high;     // kCount, kSize, kSeconds
  bool agreed;          // ranks must act alike: rank 0's value holds, a difference is reported
  const char* help;
};
std::span<const SettingRow> setting_rows();
const char* name_of(SettingRow::Type type);

// From "NAME=value" strings (an environment). A bad value is an error that names the variable, the
// value and what is allowed. Unknown HETCCL_ names go to `unknown`.
Result<Settings> parse_settings(std::span<const std::string> environment,
                                std::vector<std::string>* unknown);
// From this process's environment; warns once a process about each unknown name.
Result<Settings> load_settings();

// Whether another library's variable is set by the user, whose choice then wins over ours.
bool is_set_in_environment(const char* name);

// The known setting nearest to a misspelt name, "HETCCL_TIMEOUT".
std::string nearest_setting(std::string_view name);

// Values of the agreed settings, in row order, for the exchange between ranks; and back.
std::vector<std::string> agreed_values(const Settings& settings);
Status adopt_agreed_values(std::span<const std::string> values, Settings* settings);
// "HETCCL_ALGO", for messages about a difference in the k-th agreed value.
std::string agreed_name(size_t k);

// Text of the value in force of a row.
std::string value_text(const Settings& settings, const SettingRow& row);

}  // namespace hetccl

#include "lib/device/sim/options.h"

#include <atomic>
#include <charconv>
#include <cmath>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "lib/base/settings.h"

namespace hetccl::device {
namespace sim {
namespace {

using Ability = SimOptions::Ability;

struct Suffix {
  std::string_view text;
  double factor;
};
constexpr double kKilo = 1024;
constexpr Suffix kSizes[] = {{"K", kKilo}, {"M", kKilo* kKilo}, {"G", kKilo* kKilo* kKilo}};
constexpr Suffix kTimes[] = {{"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};

// A number of `low` to `high` with one of the suffixes, or with none where it means itself.
template <size_t n>
bool parse_number(std::string_view text, const Suffix (&suffixes)[n], double low, double high,
                  double* value) {
  double factor = 1;
  for (const Suffix& s : suffixes) {
    if (text.size() <= s.text.size() || !text.ends_with(s.text)) continue;
    factor = s.factor;
    text.remove_suffix(s.text.size());
    break;
  }
  if (text.empty() || text.front() < '0' || text.front() > '9') return false;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, *value, std::chars_format::fixed);
  if (error != std::errc() || stop != end) return false;
  *value *= factor;
  return *value >= low && *value <= high;
}

bool parse_ability(std::string_view text, Ability* ability) {
  if (text == "on") return *ability = Ability::kOn, true;
  if (text == "off") return *ability = Ability::kOff, true;
  if (text == "broken") return *ability = Ability::kBroken, true;
  return false;
}

struct Option {
  std::string_view name;
  const char* allowed;
  bool (*store)(std::string_view value, SimOptions* o);
};

template <SimOptions::Stage stage>
bool store_rate(std::string_view value, SimOptions* o) {
  return parse_number(value, kSizes, 0, 1e15, &o->rates[stage]);
}

template <auto member>
bool store_count(std::string_view value, SimOptions* o) {
  double number = 0;
  if (!parse_number(value, kSizes, 0, 1e15, &number) || number != std::floor(number)) return false;
  o->*member = static_cast<uint64_t>(number);
  return true;
}

constexpr char kRate[] = "bytes a second as in 800M or 1.5G, 0: as fast as it goes";
constexpr Option kOptions[] = {
    {"devices", "1 to 8",
     [](std::string_view value, SimOptions* o) {
       double n = 0;
       if (!parse_number(value, kSizes, 1, kMostDevices, &n) || n != std::floor(n)) return false;
       o->devices = static_cast<int>(n);
       return true;
     }},
    {"memory", "bytes of a device, 1M to 256G",
     [](std::string_view value, SimOptions* o) {
       double n = 0;
       if (!parse_number(value, kSizes, 1 << 20, kMostMemory, &n)) return false;
       o->memory = static_cast<size_t>(n);
       return true;
     }},
    {"h2d", kRate, store_rate<SimOptions::kHostToDevice>},
    {"d2h", kRate, store_rate<SimOptions::kDeviceToHost>},
    {"d2d", kRate, store_rate<SimOptions::kDeviceToDevice>},
    {"compute", kRate, store_rate<SimOptions::kCompute>},
    {"latency", "0 to 10s, as in 10us or 2ms",
     [](std::string_view value, SimOptions* o) {
       double ns = 0;
       const bool known = value == "0" || value.ends_with("s");
       if (!known || !parse_number(value, kTimes, 0, 10e9, &ns)) return false;
       o->latency = std::chrono::nanoseconds(static_cast<int64_t>(ns));
       return true;
     }},
    {"ipc", "on, off or broken",
     [](std::string_view value, SimOptions* o) { return parse_ability(value, &o->ipc); }},
    {"direct", "on, off or broken",
     [](std::string_view value, SimOptions* o) { return parse_ability(value, &o->direct); }},
    {"gate", "on or off",
     [](std::string_view value, SimOptions* o) {
       o->gate = value == "on";
       return value == "on" || value == "off";
     }},
    {"fail_copy", "the number of a copy, 0: none", store_count<&SimOptions::fail_copy>},
    {"fail_combine", "the number of a kernel, 0: none", store_count<&SimOptions::fail_combine>},
};

std::string known_options() {
  std::string all;
  for (const Option& o : kOptions) {
    all += (all.empty() ? "" : "; ") + std::string(o.name) + "=" + o.allowed;
  }
  return all;
}

struct Current {
  std::mutex mutex;
  std::atomic<const SimOptions*> options = nullptr;
  // All that were ever in force: engines may still be reading them.
  std::vector<std::unique_ptr<const SimOptions>> kept;
  std::atomic<uint64_t> copies = 0, combines = 0;
  int devices_in_use = 0;  // 0: no back end has been made
  size_t memory_in_use = 0;
};

// Never destroyed: threads may outlive static objects.
Current& current() {
  static Current& c = *new Current;
  return c;
}

void put_in_force(Current* c, const SimOptions& options) {
  c->kept.push_back(std::make_unique<const SimOptions>(options));
  c->options.store(c->kept.back().get(), std::memory_order_release);
}

}  // namespace

const SimOptions& options() { return *current().options.load(std::memory_order_acquire); }

bool fails_now(bool is_copy) {
  Current& c = current();
  const SimOptions& o = options();
  const uint64_t limit = is_copy ? o.fail_copy : o.fail_combine;
  if (limit == 0) return false;
  return (is_copy ? c.copies : c.combines).fetch_add(1, std::memory_order_relaxed) + 1 == limit;
}

Result<SimOptions> options_in_use() {
  Current& c = current();
  const std::lock_guard lock(c.mutex);
  if (c.options == nullptr) {
    const Result<Settings> settings = load_settings();
    if (!settings.ok()) return settings.status();
    Result<SimOptions> parsed = parse_sim_options(settings->sim);
    if (!parsed.ok()) return parsed.status();
    put_in_force(&c, *parsed);
  }
  c.devices_in_use = options().devices;
  c.memory_in_use = options().memory;
  return options();
}

}  // namespace sim

Result<SimOptions> parse_sim_options(std::string_view text) {
  SimOptions parsed;
  const std::string whole(text);
  while (!text.empty()) {
    const std::string_view entry = text.substr(0, text.find(','));
    text.remove_prefix(std::min(entry.size() + 1, text.size()));
    const size_t equals = entry.find('=');
    const std::string_view name = entry.substr(0, equals);
    const sim::Option* known = nullptr;
    for (const sim::Option& o : sim::kOptions) {
      if (o.name == name) known = &o;
    }
    const std::string start = "HETCCL_SIM=\"" + whole + "\": ";
    if (known == nullptr || equals == std::string_view::npos) {
      return invalid_argument(
          start + "\"" + std::string(entry) +
          "\" is not an option; allowed, separated by commas: " + sim::known_options());
    }
    if (!known->store(entry.substr(equals + 1), &parsed)) {
      return invalid_argument(start + "\"" + std::string(entry) + "\" is not allowed; allowed: " +
                              std::string(name) + "=" + known->allowed);
    }
  }
  return parsed;
}

Status configure_sim(const SimOptions& wanted) {
  sim::Current& c = sim::current();
  const std::lock_guard lock(c.mutex);
  if (c.devices_in_use != 0 &&
      (wanted.devices != c.devices_in_use || wanted.memory != c.memory_in_use)) {
    return invalid_usage(
        "the number of simulated devices and their memory cannot change once they are in use; set "
        "them before the first use");
  }
  c.copies = c.combines = 0;
  sim::put_in_force(&c, wanted);
  return {};
}

}  // namespace hetccl::device

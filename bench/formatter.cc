#include "bench/formatter.h"

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <map>

namespace hetccl::bench {
namespace {

std::string print(const char* format, ...) __attribute__((format(printf, 1, 2)));
std::string print(const char* format, ...) {
  char line[512];
  va_list args;
  va_start(args, format);
  std::vsnprintf(line, sizeof line, format, args);
  va_end(args);
  return line;
}

// Columns keep their width: few digits after the point where there are many before it.
std::string microseconds(double us) {
  return us < 100 ? print("%.2f", us) : us < 10000 ? print("%.1f", us) : print("%.0f", us);
}

std::string op_column(const Measurement& m) {
  return reduces(m.kind) ? std::string(name_of(m.op)) : "none";
}

bool same_line(const Measurement& a, const Measurement& b) {
  return a.kind == b.kind && a.bytes == b.bytes && a.count == b.count && a.type == b.type &&
         a.op == b.op && !a.in_place && b.in_place;
}

std::string half_line(const Measurement* m, bool compared) {
  if (m == nullptr) {
    return print("  %8s %7s %7s %6s", "-", "-", "-", "-") +
           (compared ? print(" %9s %6s", "-", "-") : "");
  }
  std::string wrong = m->checked ? std::to_string(m->wrong) : "N/A";
  std::string line = print("  %8s %7.2f %7.2f %6s", microseconds(m->time.median).c_str(),
                           algorithm_bandwidth(*m), bus_bandwidth(*m), wrong.c_str());
  if (!compared) return line;
  return line + (m->compared
                     ? print(" %9s %6.2f", microseconds(m->mpi_time.median).c_str(), speedup(*m))
                     : print(" %9s %6s", "-", "-"));
}

std::string full_line(const Measurement* out, const Measurement* in, bool compared) {
  const Measurement& m = out != nullptr ? *out : *in;
  std::string algorithm = m.algorithm;
  if (out != nullptr && in != nullptr && in->algorithm != algorithm)
    algorithm += "/" + in->algorithm;
  return print("%12llu %13zu %10s %7s %6d", static_cast<unsigned long long>(m.bytes), m.count,
               std::string(name_of(m.type)).c_str(), op_column(m).c_str(), m.root) +
         half_line(out, compared) + half_line(in, compared) + "  " +
         (algorithm.empty() ? "-" : algorithm) + "\n";
}

std::string heading(bool compared) {
  const char* compare_names = compared ? "       mpi  ratio" : "";
  const char* compare_units = compared ? "      (us)       " : "";
  std::string half = std::string("      time   algbw   busbw #wrong") + compare_names;
  std::string units = std::string("      (us)  (GB/s)  (GB/s)       ") + compare_units;
  int width = static_cast<int>(half.size());
  return print("#%52s%*s%*s\n", "", width, "out-of-place", width, "in-place") +
         "#       size         count       type   redop   root" + half + half + "  algorithm\n" +
         "#        (B)    (elements)                          " + units + units + "\n";
}

std::string text(const nlohmann::json& meta, const char* key) {
  auto found = meta.find(key);
  if (found == meta.end()) return "?";
  return found->is_string() ? found->get<std::string>() : found->dump();
}

// "ipc to 1 2, staged to 3"
std::string short_paths(const nlohmann::json& rank) {
  std::map<std::string, std::string> peers_of;
  auto paths = rank.find("paths");
  if (paths == rank.end() || !paths->is_object()) return "";
  std::vector<std::pair<int, std::string>> by_peer;
  for (const auto& [peer, found] : paths->items()) {
    by_peer.emplace_back(std::stoi(peer), found.value("path", "?"));
  }
  std::sort(by_peer.begin(), by_peer.end());
  for (const auto& [peer, path] : by_peer) peers_of[path] += " " + std::to_string(peer);
  std::string line;
  for (const auto& [path, peers] : peers_of) {
    line += (line.empty() ? "" : ", ") + path + " to" + peers;
  }
  return line;
}

std::string preamble(const nlohmann::json& meta) {
  std::string lines = "# hetccl " + text(meta, "version") + " (" + text(meta, "commit") + "), " +
                      text(meta, "mpi") + "\n";
  auto ranks = meta.find("ranks");
  if (ranks == meta.end() || !ranks->is_array()) return lines;
  constexpr size_t kShown = 16;
  for (size_t r = 0; r < std::min(ranks->size(), kShown); ++r) {
    const nlohmann::json& rank = (*ranks)[r];
    lines += "#  rank " + text(rank, "rank") + " on " + text(rank, "host") + " pid " +
             text(rank, "pid") + " memory " + text(rank, "memory");
    std::string device = rank.value("device", ""), paths = short_paths(rank);
    if (!device.empty()) lines += " on " + device + (paths.empty() ? "" : ": " + paths);
    lines += "\n";
  }
  if (ranks->size() > kShown) {
    lines += "#  and " + std::to_string(ranks->size() - kShown) + " more ranks\n";
  }
  return lines;
}

std::string footer(std::span<const Measurement> all) {
  Totals totals = total(all);
  bool checked = std::all_of(all.begin(), all.end(), [](const auto& m) { return m.checked; });
  std::string lines =
      print("# Out of bounds values : %llu %s\n", static_cast<unsigned long long>(totals.wrong),
            totals.wrong != 0 ? "FAILED"
            : checked         ? "OK"
                              : "(not checked)");
  lines += print("# Avg bus bandwidth    : %g\n", totals.average_bus_bandwidth);
  if (totals.mean_speedup > 0) {
    lines += print("# Ratio MPI / hetccl   : %.2f (geometric mean; above 1: hetccl is faster)\n",
                   totals.mean_speedup);
  }
  return lines;
}

}  // namespace

Times summarize(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  size_t n = samples.size();
  auto nearest_rank = [&](double p) {
    size_t rank = static_cast<size_t>(std::ceil(p * static_cast<double>(n)));
    return samples[std::clamp<size_t>(rank, 1, n) - 1];
  };
  double median = n % 2 == 1 ? samples[n / 2] : (samples[n / 2 - 1] + samples[n / 2]) / 2;
  return {samples.front(), median, nearest_rank(0.99), samples.back()};
}

double algorithm_bandwidth(const Measurement& m) {
  if (m.time.median <= 0) return 0;
  return static_cast<double>(m.bytes) / m.time.median / 1e3;
}

double bus_bandwidth(const Measurement& m) {
  return algorithm_bandwidth(m) * bus_factor(m.kind, m.ranks);
}

double speedup(const Measurement& m) {
  return m.compared && m.time.median > 0 ? m.mpi_time.median / m.time.median : 0;
}

Totals total(std::span<const Measurement> all) {
  Totals totals;
  double logarithms = 0;
  size_t compared = 0;
  for (const Measurement& m : all) {
    totals.wrong += m.wrong;
    totals.average_bus_bandwidth += bus_bandwidth(m) / static_cast<double>(all.size());
    double ratio = speedup(m);
    if (ratio <= 0) continue;
    logarithms += std::log(ratio);
    ++compared;
  }
  if (compared > 0) totals.mean_speedup = std::exp(logarithms / static_cast<double>(compared));
  return totals;
}

std::string to_text(std::span<const Measurement> all, const nlohmann::json& meta) {
  bool compared = std::any_of(all.begin(), all.end(), [](const auto& m) { return m.compared; });
  std::string result = preamble(meta) + heading(compared);
  for (size_t i = 0; i < all.size(); ++i) {
    const Measurement* first = &all[i];
    if (i + 1 < all.size() && same_line(all[i], all[i + 1])) {
      result += full_line(first, &all[++i], compared);
    } else {
      result += first->in_place ? full_line(nullptr, first, compared)
                                : full_line(first, nullptr, compared);
    }
  }
  return result + footer(all);
}

std::string to_csv(std::span<const Measurement> all) {
  bool compared = std::any_of(all.begin(), all.end(), [](const auto& m) { return m.compared; });
  std::string result =
      "collective,bytes,count,dtype,op,root,in_place,algorithm,memory,ranks,time_min_us,"
      "time_median_us,time_p99_us,time_max_us,algbw_gbps,busbw_gbps,wrong";
  if (compared) result += ",mpi_min_us,mpi_median_us,mpi_p99_us,mpi_max_us,speedup";
  result += "\n";
  for (const Measurement& m : all) {
    result += print("%s,%llu,%zu,%s,%s,%d,%d,", std::string(name_of(m.kind)).c_str(),
                    static_cast<unsigned long long>(m.bytes), m.count,
                    std::string(name_of(m.type)).c_str(), op_column(m).c_str(), m.root,
                    m.in_place ? 1 : 0) +
              m.algorithm + "," + m.memory +
              print(",%d,%.4f,%.4f,%.4f,%.4f,%.6g,%.6g,%llu", m.ranks, m.time.min, m.time.median,
                    m.time.p99, m.time.max, algorithm_bandwidth(m), bus_bandwidth(m),
                    static_cast<unsigned long long>(m.wrong));
    if (compared && m.compared) {
      result += print(",%.4f,%.4f,%.4f,%.4f,%.4f", m.mpi_time.min, m.mpi_time.median,
                      m.mpi_time.p99, m.mpi_time.max, speedup(m));
    } else if (compared) {
      result += ",,,,,";
    }
    result += "\n";
  }
  return result;
}

nlohmann::json to_json(const Times& t) {
  return {{"min", t.min}, {"median", t.median}, {"p99", t.p99}, {"max", t.max}};
}

nlohmann::json to_json(const Measurement& m) {
  nlohmann::json j = {{"collective", std::string(name_of(m.kind))},
                      {"bytes", m.bytes},
                      {"count", m.count},
                      {"dtype", std::string(name_of(m.type))},
                      {"op", op_column(m)},
                      {"root", m.root},
                      {"in_place", m.in_place},
                      {"algorithm", m.algorithm},
                      {"memory", m.memory},
                      {"ranks", m.ranks},
                      {"time_us", to_json(m.time)},
                      {"algbw_gbps", algorithm_bandwidth(m)},
                      {"busbw_gbps", bus_bandwidth(m)},
                      {"wrong", m.checked ? nlohmann::json(m.wrong) : nlohmann::json()}};
  if (has_counts(m.kind)) j["skew"] = std::string(name_of(m.skew));
  if (m.compared) {
    j["mpi_time_us"] = to_json(m.mpi_time);
    j["speedup"] = speedup(m);
  }
  return j;
}

std::string step_to_text(std::span<const Measurement> calls, const Step& step,
                         const nlohmann::json& meta) {
  std::string result = preamble(meta) + "#  call     collective         count       type   redop" +
                       "      time #wrong" + (step.compared ? "       mpi  ratio" : "") +
                       "  algorithm\n";
  for (size_t i = 0; i < calls.size(); ++i) {
    const Measurement& m = calls[i];
    std::string wrong = m.checked ? std::to_string(m.wrong) : "N/A";
    result +=
        print("%7zu %14s %13zu %10s %7s  %8s %6s", i + 1, std::string(name_of(m.kind)).c_str(),
              m.count, std::string(name_of(m.type)).c_str(), op_column(m).c_str(),
              microseconds(m.time.median).c_str(), wrong.c_str());
    if (m.compared) {
      result += print(" %9s %6.2f", microseconds(m.mpi_time.median).c_str(), speedup(m));
    }
    result += "  " + (m.algorithm.empty() ? "-" : m.algorithm) + "\n";
  }
  result +=
      print("# Step of %zu calls    : %s us", calls.size(), microseconds(step.time.median).c_str());
  if (step.compared) {
    result += print(", MPI %s us, ratio %.2f", microseconds(step.mpi_time.median).c_str(),
                    step.time.median > 0 ? step.mpi_time.median / step.time.median : 0);
  }
  return result + "\n" + footer(calls);
}

std::string step_to_csv(std::span<const Measurement> calls, const Step& step) {
  std::string result = to_csv(calls);
  result += print("step,,,,,,,,,,%.4f,%.4f,%.4f,%.4f,,,", step.time.min, step.time.median,
                  step.time.p99, step.time.max);
  if (step.compared) {
    result += print(",%.4f,%.4f,%.4f,%.4f,%.4f", step.mpi_time.min, step.mpi_time.median,
                    step.mpi_time.p99, step.mpi_time.max,
                    step.time.median > 0 ? step.mpi_time.median / step.time.median : 0);
  }
  return result + "\n";
}

nlohmann::json to_json(const Step& step) {
  nlohmann::json j = {{"time_us", to_json(step.time)}};
  if (step.compared) {
    j["mpi_time_us"] = to_json(step.mpi_time);
    j["speedup"] = step.time.median > 0 ? step.mpi_time.median / step.time.median : 0;
  }
  return j;
}

}  // namespace hetccl::bench

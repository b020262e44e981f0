#include "lib/base/log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <mutex>

namespace hetccl::log {
namespace {

// Never destroyed: threads may log while the process exits.
struct State {
  std::mutex mutex;
  std::shared_ptr<spdlog::logger> logger;
  std::string file;
  std::atomic<Level> level{Level::kNone};
};
State& state() {
  static State* const s = new State;
  return *s;
}

std::string expand(const std::string& pattern) {
  std::string out;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '%' && i + 1 < pattern.size()) {
      const char c = pattern[++i];
      if (c == 'p') {
        out += std::to_string(getpid());
      } else if (c == 'h') {
        char host[256] = "";
        gethostname(host, sizeof host - 1);
        out += host;
      } else {
        out += c;
      }
    } else {
      out += pattern[i];
    }
  }
  return out;
}

std::shared_ptr<spdlog::logger> make_logger(const std::string& file, std::string* trouble) {
  spdlog::sink_ptr sink;
  if (!file.empty()) {
    try {
      sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(expand(file));
    } catch (const spdlog::spdlog_ex& e) {
      *trouble = e.what();
    }
  }
  if (!sink) sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  auto logger = std::make_shared<spdlog::logger>("hetccl", std::move(sink));
  logger->set_pattern("hetccl: [%H:%M:%S.%e %P] %l: %v");
  logger->set_level(spdlog::level::trace);
  logger->flush_on(spdlog::level::trace);
  return logger;
}

}  // namespace

void configure(Level level, const std::string& file) {
  State& s = state();
  std::string trouble;
  {
    std::lock_guard lock(s.mutex);
    if (!s.logger || file != s.file) {
      s.logger = make_logger(file, &trouble);
      s.file = file;
    }
    s.level = level;
  }
  if (!trouble.empty()) warn("cannot write to the log file, using standard error: " + trouble);
}

bool enabled(Level level) { return level <= state().level.load(std::memory_order_relaxed); }

void write(Level level, std::string_view message) {
  if (level == Level::kNone || !enabled(level)) return;
  State& s = state();
  std::lock_guard lock(s.mutex);
  if (!s.logger) return;
  constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::off, spdlog::level::warn,
                                                   spdlog::level::info, spdlog::level::trace};
  s.logger->log(kLevels[static_cast<int>(level)], "{}", message);
}

}  // namespace hetccl::log

// The library's log. Silent below the level of HETCCL_DEBUG (warn, info, trace); written to
// standard error or to HETCCL_DEBUG_FILE. Messages are lower case, give the exact cause, and never
// read a user's buffer. Any thread.
#pragma once

#include <string>
#include <string_view>

namespace hetccl::log {

enum class Level { kNone = 0, kWarn = 1, kInfo = 2, kTrace = 3 };

// `file` may hold %h (host name) and %p (process id); empty: standard error.
void configure(Level level, const std::string& file);
bool enabled(Level level);
void write(Level level, std::string_view message);

inline void warn(std::string_view m) { write(Level::kWarn, m); }
inline void info(std::string_view m) { write(Level::kInfo, m); }
inline void trace(std::string_view m) { write(Level::kTrace, m); }

}  // namespace hetccl::log

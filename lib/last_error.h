// How functions of the API end: nothing leaves them as an exception, and the cause of an error is
// kept for hetcclGetLastError(NULL). Any thread; the text is the calling thread's own.
#pragma once

#include <exception>
#include <new>
#include <string>

#include "lib/base/status.h"

namespace hetccl {

inline std::string& last_error() {
  thread_local std::string text;
  return text;
}

inline hetcclResult_t report(const Status& status) {
  if (status.ok()) return hetcclSuccess;
  last_error() = status.message();
  return status.code();
}

// Runs `body`, which returns a Status.
template <typename Body>
hetcclResult_t guarded(Body body) {
  try {
    const Status status = body();
    return status.ok() ? hetcclSuccess : report(status);
  } catch (const std::bad_alloc&) {
    return report(system_error("out of memory"));
  } catch (const std::exception& e) {
    return report(internal_error(e.what()));
  } catch (...) {
    return report(internal_error("unknown exception"));
  }
}

inline std::string& kept_text() {
  thread_local std::string text;
  return text;
}

// Text that stays valid until the thread has another one kept. An error gives "".
template <typename Make>
const char* keep_text(Make make) {
  std::string& text = kept_text();
  try {
    text = make();
  } catch (...) {
    text.clear();
  }
  return text.c_str();
}

}  // namespace hetccl

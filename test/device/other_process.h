// Another process with devices of its own: this test program once more, which obeys its standard
// input line by line. Handles of memory travel as hexadecimal digits.
//
//   devices                         their number, or "error: ..."
//   current                         the current device
//   export BYTES VALUE              a handle of new memory full of VALUE
//   free                            frees that memory
//   import HANDLE                   "ok"; the handle stays open for:
//   read BYTES                      "same V" if all bytes are V, "differ", or "error: ..."
//   write BYTES VALUE               "ok" or "error: ..."
//   close                           "ok" or "error: ..."
//
// Thread rule: one thread.
#pragma once

#include <sys/types.h>

#include <string>

#include "lib/device/accelerator.h"

namespace hetccl::device {

class OtherProcess {
 public:
  // `options`: its HETCCL_SIM; empty: none.
  explicit OtherProcess(Kind kind, const std::string& options = "");
  ~OtherProcess();
  OtherProcess(const OtherProcess&) = delete;
  OtherProcess& operator=(const OtherProcess&) = delete;
  // Its answer; "gone" if it has ended.
  std::string ask(const std::string& command);
  // Ends it at once.
  void kill();

 private:
  pid_t process_ = -1;
  int to_ = -1, from_ = -1;
};

std::string to_hex(const std::string& bytes);
std::string from_hex(const std::string& digits);

// For main(): true where this is such a process, which has done its work.
bool was_other_process(int argc, char** argv);

}  // namespace hetccl::device

#include "test/device/other_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iostream>
#include <sstream>
#include <vector>

namespace hetccl::device {
namespace {

constexpr char kFlag[] = "--other-process";

// What the other process does.
class Servant {
 public:
  explicit Servant(Kind kind) : backend_(backend(kind)) {
    if (!backend_.ok()) return;
    device_ = *(*backend_)->device(0);
  }

  std::string obey(const std::string& line) {
    if (!backend_.ok()) return "error: " + backend_.status().message();
    std::istringstream words(line);
    std::string verb;
    words >> verb;
    if (verb == "devices") return std::to_string((*backend_)->devices());
    if (verb == "current") return std::to_string((*backend_)->current_device());
    if (queue_ == nullptr) queue_ = std::move(*device_->make_queue());
    if (verb == "export") return export_memory(&words);
    if (verb == "free") return text(device_->free(exported_));
    if (verb == "import") return import_memory(&words);
    if (verb == "read") return read(&words);
    if (verb == "write") return write(&words);
    if (verb == "close") return text(device_->close_memory(imported_));
    return "error: unknown command";
  }

 private:
  static std::string text(const Status& s) { return s.ok() ? "ok" : "error: " + s.message(); }

  std::string export_memory(std::istringstream* words) {
    size_t bytes = 0;
    int value = 0;
    *words >> bytes >> value;
    const Result<void*> memory = device_->allocate(bytes);
    if (!memory.ok()) return text(memory.status());
    exported_ = *memory;
    if (Status s = fill(exported_, bytes, value); !s.ok()) return text(s);
    const Result<std::string> handle = device_->export_memory(exported_);
    return handle.ok() ? to_hex(*handle) : text(handle.status());
  }

  std::string import_memory(std::istringstream* words) {
    std::string digits;
    *words >> digits;
    const Result<void*> memory = device_->import_memory(from_hex(digits));
    if (!memory.ok()) return text(memory.status());
    imported_ = *memory;
    return "ok";
  }

  std::string read(std::istringstream* words) {
    size_t bytes = 0;
    *words >> bytes;
    std::vector<uint8_t> seen(bytes, 0xee);
    Status s = queue_->copy(seen.data(), imported_, bytes);
    if (s.ok()) s = queue_->synchronize();
    if (!s.ok()) return text(s);
    const bool same = std::all_of(seen.begin(), seen.end(), [&](int b) { return b == seen[0]; });
    return same ? "same " + std::to_string(seen[0]) : "differ";
  }

  std::string write(std::istringstream* words) {
    size_t bytes = 0;
    int value = 0;
    *words >> bytes >> value;
    return text(fill(imported_, bytes, value));
  }

  Status fill(void* memory, size_t bytes, int value) {
    const std::vector<uint8_t> data(bytes, static_cast<uint8_t>(value));
    Status s = queue_->copy(memory, data.data(), bytes);
    return s.ok() ? queue_->synchronize() : s;
  }

  const Result<Backend*> backend_;
  Accelerator* device_ = nullptr;
  std::unique_ptr<Queue> queue_;
  void* exported_ = nullptr;
  void* imported_ = nullptr;
};

}  // namespace

bool was_other_process(int argc, char** argv) {
  if (argc != 3 || std::strcmp(argv[1], kFlag) != 0) return false;
  Servant servant(static_cast<Kind>(std::stoi(argv[2])));
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << servant.obey(line) << std::endl;
  }
  return true;
}

OtherProcess::OtherProcess(Kind kind, const std::string& options) {
  int down[2], up[2];
  if (pipe2(down, O_CLOEXEC) != 0 || pipe2(up, O_CLOEXEC) != 0) return;
  to_ = down[1];
  from_ = up[0];
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, down[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&files, up[1], STDOUT_FILENO);
  std::vector<std::string> environment;
  for (char** e = environ; *e != nullptr; ++e) {
    if (std::strncmp(*e, "HETCCL_SIM=", 11) != 0) environment.emplace_back(*e);
  }
  if (!options.empty()) environment.push_back("HETCCL_SIM=" + options);
  std::vector<char*> variables;
  for (std::string& e : environment) variables.push_back(e.data());
  variables.push_back(nullptr);
  std::string program = "/proc/self/exe", flag = kFlag, number = std::to_string(kind);
  char* arguments[] = {program.data(), flag.data(), number.data(), nullptr};
  EXPECT_EQ(posix_spawn(&process_, program.c_str(), &files, nullptr, arguments, variables.data()),
            0);
  posix_spawn_file_actions_destroy(&files);
  close(down[0]);
  close(up[1]);
}

OtherProcess::~OtherProcess() {
  close(to_);
  close(from_);
  if (process_ > 0) waitpid(process_, nullptr, 0);
}

void OtherProcess::kill() {
  if (process_ <= 0) return;
  ::kill(process_, SIGKILL);
  waitpid(process_, nullptr, 0);
  process_ = -1;
}

std::string OtherProcess::ask(const std::string& command) {
  const std::string line = command + "\n";
  size_t sent = 0;
  while (sent < line.size()) {
    const ssize_t n = write(to_, line.data() + sent, line.size() - sent);
    if (n <= 0) return "gone";
    sent += static_cast<size_t>(n);
  }
  std::string answer;
  for (char c = 0;;) {
    if (read(from_, &c, 1) != 1) return "gone";
    if (c == '\n') return answer;
    answer += c;
  }
}

std::string to_hex(const std::string& bytes) {
  std::string digits;
  for (const unsigned char b : bytes) {
    digits += "0123456789abcdef"[b >> 4];
    digits += "0123456789abcdef"[b & 15];
  }
  return digits;
}

std::string from_hex(const std::string& digits) {
  std::string bytes;
  for (size_t i = 0; i + 1 < digits.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

}  // namespace hetccl::device

// The vendors' back ends as every machine can test them: that they load, or say why not, that they
// show one name and hide the rest, and that the library needs neither of them.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>
#include <cstdio>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "lib/device/accelerator.h"
#include "lib/device/gpu/module.h"

namespace hetccl::device {
namespace {

constexpr Kind kVendors[] = {hetcclMemoryCuda, hetcclMemoryHip};

std::vector<std::string> output_of(const std::string& command) {
  std::vector<std::string> lines;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return lines;
  std::array<char, 4096> line;
  while (fgets(line.data(), line.size(), pipe) != nullptr) lines.emplace_back(line.data());
  pclose(pipe);
  return lines;
}

// The shared objects that this build made.
std::vector<std::string> modules() {
  std::vector<std::string> paths;
  std::istringstream all(HETCCL_TEST_MODULES);
  for (std::string path; std::getline(all, path, ':');) {
    if (!path.empty()) paths.push_back(path);
  }
  return paths;
}

bool is_built(Kind kind) {
  const std::string file = std::string("libhetccl_") + name_of(kind) + ".so";
  for (const std::string& path : modules()) {
    if (path.find(file) != path.npos) return true;
  }
  return false;
}

std::vector<std::string> needed_by(const std::string& path) {
  std::vector<std::string> names;
  for (const std::string& line : output_of("readelf -d '" + path + "'")) {
    const size_t open = line.find('['), close = line.find(']');
    if (line.find("(NEEDED)") == line.npos || close == line.npos) continue;
    names.push_back(line.substr(open + 1, close - open - 1));
  }
  return names;
}

// First, before any other test here loads one.
TEST(Backends, NothingIsLoadedUnasked) {
  ASSERT_FALSE(any_loaded());
  find_backends();
  EXPECT_FALSE(any_loaded()) << "this process has neither CUDA nor HIP";
  EXPECT_TRUE(loaded_backends().empty());
  Memory memory;
  const int local = 0;
  const auto owner = owner_of(&local, &memory);
  ASSERT_TRUE(owner.ok());
  EXPECT_EQ(*owner, nullptr);
  EXPECT_EQ(memory.place, Memory::Place::kUnknown);
}

TEST(Backends, Names) {
  EXPECT_STREQ(name_of(hetcclMemoryHost), "host");
  EXPECT_STREQ(name_of(hetcclMemoryCuda), "cuda");
  EXPECT_STREQ(name_of(hetcclMemoryHip), "hip");
  EXPECT_STREQ(name_of(hetcclMemorySimCuda), "sim:cuda");
  EXPECT_STREQ(name_of(hetcclMemorySimHip), "sim:hip");
}

TEST(Backends, HostMemoryHasNone) {
  EXPECT_EQ(backend(hetcclMemoryHost).status().code(), hetcclInvalidArgument);
  EXPECT_EQ(backend(static_cast<Kind>(99)).status().code(), hetcclInvalidArgument);
}

// On a machine without the vendor's GPU this is about the words; on one with it, about the device.
TEST(Backends, PresentOrAbsentWithAReason) {
  for (const Kind kind : kVendors) {
    SCOPED_TRACE(name_of(kind));
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const Result<Backend*> found = backend(kind);
    const std::string printed =
        testing::internal::GetCapturedStdout() + testing::internal::GetCapturedStderr();
    EXPECT_EQ(printed, "");
    if (found.ok()) {
      EXPECT_EQ((*found)->kind(), kind);
      EXPECT_GT((*found)->devices(), 0);
      EXPECT_EQ((*found)->description().rfind(std::string(name_of(kind)) + ": runtime ", 0), 0u);
      EXPECT_EQ((*found)->device((*found)->devices()).status().code(), hetcclInvalidArgument);
      continue;
    }
    const std::string& why = found.status().message();
    EXPECT_EQ(found.status().code(), hetcclInvalidUsage);
    EXPECT_EQ(why.rfind(kind == hetcclMemoryCuda ? "no CUDA back end: " : "no HIP back end: ", 0),
              0u)
        << why;
    EXPECT_NE(why.find(';'), why.npos) << "no remedy: " << why;
    if (is_built(kind)) {
      EXPECT_TRUE(why.find("driver") != why.npos || why.find("GPU") != why.npos) << why;
    } else {
      EXPECT_NE(why.find("=enabled"), why.npos) << why;
    }
    RecordProperty(std::string("why_no_") + name_of(kind), why);
  }
}

TEST(Backends, AnswersOnceForAllThreads) {
  for (const Kind kind : kVendors) {
    std::array<std::string, 8> answers;
    std::vector<std::thread> threads;
    for (std::string& answer : answers) {
      threads.emplace_back([&answer, kind] {
        const Result<Backend*> found = backend(kind);
        answer = found.ok() ? (*found)->description() : found.status().message();
      });
    }
    for (std::thread& t : threads) t.join();
    for (const std::string& answer : answers) EXPECT_EQ(answer, answers[0]);
    EXPECT_NE(answers[0], "");
  }
}

TEST(Backends, HostMemoryIsNobodys) {
  for (const Kind kind : kVendors) (void)backend(kind).ok();
  const auto heap = std::make_unique<int>();
  static int fixed;
  int local = 0;
  for (const void* pointer :
       {static_cast<const void*>(heap.get()), static_cast<const void*>(&fixed),
        static_cast<const void*>(&local), static_cast<const void*>(nullptr)}) {
    Memory memory;
    const auto owner = owner_of(pointer, &memory);
    ASSERT_TRUE(owner.ok()) << owner.status().message();
    EXPECT_EQ(*owner, nullptr);
    EXPECT_EQ(memory.place, Memory::Place::kUnknown);
    EXPECT_EQ(memory.ordinal, -1);
  }
}

// Both in one process at once, as where ranks of both vendors share it.
TEST(Modules, LoadTogetherAndRefuseAnotherBuild) {
  if (modules().empty()) GTEST_SKIP() << "this build has no back end: neither nvcc nor hipcc found";
  std::vector<Entry> entries;
  for (const std::string& path : modules()) {
    void* object = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(object, nullptr) << dlerror();
    const auto entry = reinterpret_cast<Entry>(dlsym(object, kEntryName));
    ASSERT_NE(entry, nullptr) << path;
    entries.push_back(entry);
  }
  for (const Entry entry : entries) {
    std::string why;
    EXPECT_EQ(entry("hetccl 0.0.1", &why), nullptr);
    EXPECT_NE(why.find("hetccl 0.0.1"), why.npos) << why;
    EXPECT_NE(why.find(kBuild), why.npos) << why;
  }
}

TEST(Modules, ExportOneName) {
  if (modules().empty()) GTEST_SKIP() << "this build has no back end: neither nvcc nor hipcc found";
  for (const std::string& path : modules()) {
    std::string exported;
    for (const std::string& line : output_of("nm -D --defined-only '" + path + "'"))
      exported += line;
    EXPECT_NE(exported.find(std::string(" T ") + kEntryName + "\n"), exported.npos) << exported;
    EXPECT_EQ(exported.find('\n'), exported.size() - 1) << path << " exports\n" << exported;
  }
}

// The driver is looked for at run time, and CUDA's runtime is inside.
TEST(Modules, NeedWhatTheyMay) {
  if (modules().empty()) GTEST_SKIP() << "this build has no back end: neither nvcc nor hipcc found";
  for (const std::string& path : modules()) {
    const std::vector<std::string> needed = needed_by(path);
    EXPECT_FALSE(needed.empty()) << path;
    for (const std::string& name : needed) {
      EXPECT_NE(name.rfind("libcuda", 0), 0u) << path << " needs " << name;
      EXPECT_NE(name.rfind("libhetccl", 0), 0u) << path << " needs " << name;
    }
    struct stat file;
    ASSERT_EQ(stat(path.c_str(), &file), 0) << path;
    RecordProperty(path.substr(path.rfind('/') + 1) + "_bytes", std::to_string(file.st_size));
    EXPECT_LT(file.st_size, 200 << 20) << path;
    std::printf("%s: %.1f MB\n", path.substr(path.rfind('/') + 1).c_str(),
                static_cast<double>(file.st_size) / 1e6);
  }
}

TEST(Library, NeedsNoVendor) {
  const std::vector<std::string> needed = needed_by(HETCCL_TEST_LIBRARY);
  ASSERT_FALSE(needed.empty());
  for (const std::string& name : needed) {
    for (const char* vendor :
         {"libcuda", "libamdhip", "libhsa", "libnccl", "librccl", "libhetccl_"}) {
      EXPECT_NE(name.rfind(vendor, 0), 0u) << "the library needs " << name;
    }
  }
}

}  // namespace
}  // namespace hetccl::device

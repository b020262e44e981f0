// hetccl_info: what this build of hetccl is, has and can be told.
#include <hetccl/hetccl.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/collectives_page.h"
#include "bench/memory_kind.h"
#include "bench/paths.h"
#include "bench/version.h"
#include "lib/base/types.h"
#include "lib/coll/registry.h"
#include "lib/coll/verify.h"
#include "lib/introspect.h"

namespace hetccl::bench {
namespace {

using nlohmann::json;

std::string text_of(const json& object, const char* key) {
  auto found = object.find(key);
  if (found == object.end()) return "";
  return found->is_string() ? found->get<std::string>() : found->dump();
}

// Back ends that are absent say why.
int print_devices(bool as_json) {
  json kinds = json::parse(hetcclInternalDevices(), nullptr, false);
  if (!kinds.is_array()) {
    std::fprintf(stderr, "hetccl_info: the library does not list its devices\n");
    return 1;
  }
  if (as_json) {
    std::printf("%s\n", kinds.dump(2).c_str());
    return 0;
  }
  for (const json& kind : kinds) {
    const std::string absent = text_of(kind, "absent");
    std::printf("%s: %s\n", text_of(kind, "kind").c_str(),
                absent.empty() ? text_of(kind, "back_end").c_str() : ("absent: " + absent).c_str());
    if (!kind.contains("devices")) continue;
    for (const json& device : kind["devices"]) {
      std::printf("    %s\n", device.get<std::string>().c_str());
    }
  }
  return 0;
}

int print_library() {
  int version = 0;
  hetcclResult_t result = hetcclGetVersion(&version);
  if (result != hetcclSuccess) {
    std::fprintf(stderr, "hetccl_info: %s\n", hetcclGetErrorString(result));
    return 1;
  }
  std::printf("version: %d.%d.%d\ncommit: %s\n", version / 10000, version / 100 % 100,
              version % 100, HETCCL_PERF_COMMIT);
  json library = json::parse(hetcclInternalDescribe(nullptr), nullptr, false);
  if (!library.is_object()) {
    std::fprintf(stderr, "hetccl_info: the library does not describe itself\n");
    return 1;
  }
  for (const auto& [key, value] : library.items()) {
    if (key == "version") continue;
    std::printf("%s: %s\n", key.c_str(), text_of(library, key.c_str()).c_str());
  }
  return print_devices(false);
}

int print_settings(bool as_json) {
  json settings = json::parse(hetcclInternalSettings(), nullptr, false);
  if (!settings.is_array()) {
    std::fprintf(stderr, "hetccl_info: the library's table of settings cannot be read\n");
    return 1;
  }
  if (as_json) {
    std::printf("%s\n", settings.dump(2).c_str());
    return 0;
  }
  for (const json& row : settings) {
    std::string standard = text_of(row, "default");
    std::printf("%s\n    type:    %s\n    default: %s\n    allowed: %s\n    %s\n",
                text_of(row, "name").c_str(), text_of(row, "type").c_str(),
                standard.empty() ? "(empty)" : standard.c_str(), text_of(row, "range").c_str(),
                text_of(row, "help").c_str());
  }
  return 0;
}

int print_algorithms() {
  for (const coll::Algorithm& a : coll::algorithms()) {
    std::printf("%-14s %-20s %s\n", std::string(coll::name_of(a.collective)).c_str(), a.name,
                a.help);
  }
  return 0;
}

int print_collectives() {
  std::string error;
  const std::string page = collectives_page(&error);
  if (page.empty()) {
    std::fprintf(stderr, "hetccl_info: %s\n", error.c_str());
    return 1;
  }
  std::fputs(page.c_str(), stdout);
  return 0;
}

int print_types() {
  for (int t = 0; t < hetcclNumTypes; ++t) {
    auto type = static_cast<DataType>(t);
    std::printf("%-12s %2zu bytes:", std::string(name_of(type)).c_str(), size_of(type));
    for (int o = 0; o < hetcclNumOps; ++o) {
      auto op = static_cast<RedOp>(o);
      if (supports(type, op)) std::printf(" %s", std::string(name_of(op)).c_str());
    }
    std::printf("\n");
  }
  return 0;
}

int verify_plans(int up_to) {
  int verified = 0;
  Status status = coll::verify_registry(up_to, [&](const coll::VerifySummary& s) {
    ++verified;
    std::printf("%-14s %-20s ok\n", std::string(coll::name_of(s.algorithm->collective)).c_str(),
                s.algorithm->name);
    std::fflush(stdout);
  });
  if (!status.ok()) {
    std::printf("FAILED: %s\n", status.message().c_str());
    return 1;
  }
  std::printf("%d algorithms verified for 1 to %d ranks\n", verified, up_to);
  return verified > 0 ? 0 : 1;
}

int main_of_tool(int argc, char** argv) {
  bool settings = false, algorithms = false, collectives = false, types = false, as_json = false;
  bool devices = false, paths = false;
  std::vector<std::string> memory;
  int up_to = 0;
  CLI::App app("Shows what this build of hetccl is, has and can be told.", "hetccl_info");
  app.add_flag("--settings", settings, "every HETCCL_ variable: type, default, range, meaning");
  app.add_flag("--devices", devices, "back ends of GPUs and their devices, or why there are none");
  auto* with_paths = app.add_flag(
      "--paths", paths, "under mpirun: how data travel between each pair of ranks, and why");
  app.add_option("--memory", memory,
                 "with --paths: " + memory_names() +
                     "; one for all ranks, or a list with one for each [found by the library]")
      ->delimiter(',')
      ->needs(with_paths);
  app.add_flag("--json", as_json, "with --settings, --devices, --paths: as JSON");
  app.add_flag("--algorithms", algorithms, "every algorithm, one a line");
  app.add_flag("--collectives", collectives,
               "what each collective does, and what its algorithms cost, as Markdown");
  app.add_flag("--types", types, "data types, and the operators of each");
  app.add_option("--verify-plans", up_to, "prove every algorithm's plans for 1 to N ranks")
      ->check(CLI::Range(1, 4096));
  CLI11_PARSE(app, argc, argv);
  if (paths) return print_paths(&argc, &argv, memory, as_json);
  if (devices) return print_devices(as_json);
  if (settings) return print_settings(as_json);
  if (algorithms) return print_algorithms();
  if (collectives) return print_collectives();
  if (types) return print_types();
  if (up_to > 0) return verify_plans(up_to);
  return print_library();
}

}  // namespace
}  // namespace hetccl::bench

int main(int argc, char** argv) { return hetccl::bench::main_of_tool(argc, argv); }

// How fast a device reduces, as a fraction of what its memory gives: bytes a second of a combine of
// two sources, which moves three arrays, over those of a copy within the device, which moves two.
// Both are verified, the sums against the host's, bit for bit.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "bench/collective.h"
#include "bench/memory_kind.h"
#include "bench/size.h"
#include "lib/device/accelerator.h"

namespace hetccl::bench {
namespace {

using device::Accelerator;
using device::Combine;
using device::Queue;
using device::Reduction;
using device::Source;
using Clock = std::chrono::steady_clock;

struct Options {
  std::string memory = "cuda";
  int ordinal = 0;
  std::vector<std::string> sizes = {"64M", "256M"};
  std::vector<std::string> types = {"float32", "float16", "bfloat16", "float64", "int8"};
  double aim = 0;
};

// Arrays a, b and result of `bytes` on the device, freed with it.
class Arrays {
 public:
  explicit Arrays(Accelerator* device) : device_(device) {}
  Arrays(const Arrays&) = delete;
  Arrays& operator=(const Arrays&) = delete;
  ~Arrays() {
    for (void* memory : all_) {
      if (memory != nullptr) (void)device_->free(memory).ok();
    }
  }
  Status allocate(size_t bytes) {
    for (void*& memory : all_) {
      auto made = device_->allocate(bytes);
      if (!made.ok()) return made.status();
      memory = *made;
    }
    return {};
  }
  void* a() const { return all_[0]; }
  void* b() const { return all_[1]; }
  void* result() const { return all_[2]; }

 private:
  Accelerator* device_;
  void* all_[3] = {};
};

// Bits without a pattern; small enough numbers in every type are among them.
std::vector<std::byte> noise(size_t bytes, uint64_t seed) {
  std::vector<std::byte> data(bytes);
  uint64_t state = seed;
  for (size_t at = 0; at < bytes; at += sizeof state) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const uint64_t word = state ^ (state >> 29);
    std::memcpy(&data[at], &word, std::min(sizeof word, bytes - at));
  }
  return data;
}

// Seconds of one `act`: the best of several batches that are long beside the clock and the launch.
Result<double> time_of(Queue* queue, const std::function<Status()>& act) {
  constexpr double kBatch_s = 0.02;
  constexpr int kBatches = 7, kMostActs = 512;
  double best = 1e9;
  int acts = 1;
  for (int batch = 0; batch < kBatches;) {
    const auto begin = Clock::now();
    for (int i = 0; i < acts; ++i) {
      if (Status s = act(); !s.ok()) return s;
    }
    if (Status s = queue->synchronize(); !s.ok()) return s;
    const double took = std::chrono::duration<double>(Clock::now() - begin).count();
    if (took < kBatch_s / 2 && acts < kMostActs) {
      acts *= 2;
      continue;
    }
    best = std::min(best, took / acts);
    ++batch;
  }
  return best;
}

struct Line {
  double copy_gbps = 0, combine_gbps = 0;
  size_t wrong = 0;  // bytes
  double fraction() const { return combine_gbps / copy_gbps; }
};

Status measure(Accelerator* device, DataType type, size_t bytes, Line* line) {
  auto made = device->make_queue();
  if (!made.ok()) return made.status();
  Queue* queue = made->get();
  Arrays arrays(device);
  if (Status s = arrays.allocate(bytes); !s.ok()) return s;
  const auto a = noise(bytes, 1), b = noise(bytes, 2);
  std::vector<std::byte> got(bytes), expected(bytes);
  if (Status s = queue->copy(arrays.a(), a.data(), bytes); !s.ok()) return s;
  if (Status s = queue->copy(arrays.b(), b.data(), bytes); !s.ok()) return s;

  auto compare = [&]() -> Status {
    if (Status s = queue->copy(got.data(), arrays.result(), bytes); !s.ok()) return s;
    if (Status s = queue->synchronize(); !s.ok()) return s;
    for (size_t i = 0; i < bytes; ++i) line->wrong += got[i] != expected[i];
    return {};
  };
  const auto copied =
      time_of(queue, [&] { return queue->copy(arrays.result(), arrays.a(), bytes); });
  if (!copied.ok()) return copied.status();
  expected = a;
  if (Status s = compare(); !s.ok()) return s;

  const Reduction sum{type, hetcclSum, 2};
  const size_t count = bytes / size_of(type);
  const Source on_device[] = {{arrays.a(), false}, {arrays.b(), false}};
  const Combine what{arrays.result(), false, true, on_device, count};
  const auto combined = time_of(queue, [&] { return queue->combine(sum, what); });
  if (!combined.ok()) return combined.status();
  const Source on_host[] = {{a.data(), false}, {b.data(), false}};
  auto host = device::host_device("auto");
  if (!host.ok()) return host.status();
  (*host)->combine(sum, {expected.data(), false, true, on_host, count});
  if (Status s = compare(); !s.ok()) return s;
  line->copy_gbps = 2e-9 * static_cast<double>(bytes) / *copied;
  line->combine_gbps = 3e-9 * static_cast<double>(bytes) / *combined;
  return {};
}

int run(const Options& o) {
  constexpr int kWrong = 1, kRefused = 2, kBelowAim = 3;
  auto refuse = [](const std::string& why) {
    std::fprintf(stderr, "bench_device: %s\n", why.c_str());
    return kRefused;
  };
  std::vector<MemoryKind> kind;
  if (std::string wrong = deal_memory({o.memory}, 1, &kind); !wrong.empty()) return refuse(wrong);
  if (!kind[0].on_device()) return refuse("--memory: host is no device");
  auto backend = device::backend(kind[0].kind);
  if (!backend.ok()) return refuse(backend.status().message());
  auto device = (*backend)->device(o.ordinal);
  if (!device.ok()) return refuse(device.status().message());
  std::printf("# %s, %s\n", (*backend)->description().c_str(), (*device)->description().c_str());
  std::printf("# bytes a second that memory moves: 2 arrays a copy, 3 a sum of two\n");
  std::printf("#%12s %10s %12s %12s %9s %7s\n", "bytes", "type", "copy GB/s", "sum GB/s",
              "fraction", "wrong");
  size_t wrong = 0;
  double lowest = 1e9;
  for (const std::string& size : o.sizes) {
    uint64_t bytes = 0;
    std::string why;
    if (!parse_size(size, &bytes, &why)) return refuse("--sizes: " + why);
    for (const std::string& name : o.types) {
      DataType type;
      if (!parse_type(name, &type) || !supports(type, hetcclSum)) {
        return refuse("--types: '" + name + "' is no type that is summed");
      }
      bytes -= bytes % size_of(type);
      Line line;
      if (Status s = measure(*device, type, bytes, &line); !s.ok()) return refuse(s.message());
      std::printf("%13llu %10s %12.1f %12.1f %9.3f %7zu\n", static_cast<unsigned long long>(bytes),
                  name.c_str(), line.copy_gbps, line.combine_gbps, line.fraction(), line.wrong);
      std::fflush(stdout);
      wrong += line.wrong;
      lowest = std::min(lowest, line.fraction());
    }
  }
  std::printf("# lowest fraction: %.3f, wrong bytes: %zu\n", lowest, wrong);
  if (wrong != 0) return kWrong;
  return lowest < o.aim ? kBelowAim : 0;
}

int main_of_tool(int argc, char** argv) {
  Options o;
  CLI::App app(
      "Times and verifies the sum of two arrays on a device, beside a copy within it. Exit status: "
      "1 wrong bytes, 2 not run, 3 below the aim.",
      "bench_device");
  app.add_option("--memory", o.memory, "cuda, hip, sim:cuda or sim:hip [cuda]");
  app.add_option("--device", o.ordinal, "which one [0]")->check(CLI::Range(0, 1023));
  app.add_option("--sizes", o.sizes, "bytes of an array [64M,256M]")->delimiter(',');
  app.add_option("--types", o.types, "[float32,float16,bfloat16,float64,int8]")->delimiter(',');
  app.add_option("--aim", o.aim, "the lowest fraction that is good enough [0]")
      ->check(CLI::Range(0.0, 1.0));
  CLI11_PARSE(app, argc, argv);
  return run(o);
}

}  // namespace
}  // namespace hetccl::bench

int main(int argc, char** argv) { return hetccl::bench::main_of_tool(argc, argv); }

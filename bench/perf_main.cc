// hetccl_perf: times and verifies collectives, beside MPI's own where asked.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>

#include "bench/buffers.h"
#include "bench/launch.h"
#include "bench/mpi_peer.h"
#include "bench/options.h"
#include "bench/runner.h"
#include "bench/size.h"
#include "bench/workload.h"

namespace hetccl::bench {
namespace {

constexpr int kWrongData = 1, kRefused = 2;

const MemoryKind& memory_of(const Options& options, int rank) {
  return options.memory[static_cast<size_t>(rank)];
}

Library::Setup setup_of(const Options& options, int rank) {
  return {options.algorithm, &memory_of(options, rank), options.stream};
}

// Where the result goes: opened before anything is measured.
class Output {
 public:
  bool open(const World& world, const std::string& file) {
    if (world.rank() == 0 && !file.empty()) stream_.open(file);
    bool ok = world.rank() != 0 || file.empty() || stream_.good();
    to_file_ = !file.empty();
    return world.agree(ok, "--output: cannot write '" + file + "'");
  }
  // REQUIRES: rank 0.
  bool write(const std::string& text) {
    if (!to_file_) return std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0;
    stream_ << text << std::flush;
    return stream_.good();
  }

 private:
  std::ofstream stream_;
  bool to_file_ = false;
};

std::string render(const Options& options, const std::vector<Measurement>& results,
                   const Step* step, const nlohmann::json& meta) {
  if (options.format == Format::kCsv) {
    return step != nullptr ? step_to_csv(results, *step) : to_csv(results);
  }
  if (options.format == Format::kNccl) {
    return step != nullptr ? step_to_text(results, *step, meta) : to_text(results, meta);
  }
  nlohmann::json document = {{"meta", meta}, {"results", nlohmann::json::array()}};
  for (const Measurement& m : results) document["results"].push_back(to_json(m));
  if (step != nullptr) document["step"] = to_json(*step);
  return document.dump(2) + "\n";
}

int finish(const World& world, const Options& options, const std::vector<Measurement>& results,
           const Step* step, const nlohmann::json& meta, Output* output) {
  bool written = world.rank() != 0 || output->write(render(options, results, step, meta));
  if (!world.agree(written, "the result could not be written")) return kRefused;
  return total(results).wrong == 0 ? 0 : kWrongData;
}

std::vector<bool> places(const Options& options, Kind kind) {
  if (kind == Kind::kBarrier) return {false};
  std::vector<bool> in_place;
  if (options.out_of_place) in_place.push_back(false);
  if (options.in_place) in_place.push_back(true);
  return in_place;
}

int run_sizes(const World& world, const Options& options) {
  int ranks = world.ranks();
  std::vector<Shape> shapes;
  for (uint64_t size : size_steps(options.begin, options.end, options.factor, options.increment)) {
    Shape shape = shape_of_size(options.kind, options.type, ranks, size, options.skew);
    // Rounding down to whole blocks makes neighbours alike.
    if (shapes.empty() || shapes.back().count != shape.count) shapes.push_back(shape);
  }
  const Shape& largest = shapes.back();
  if (options.compare_mpi) {
    std::string lacks = mpi_lacks(options.kind, options.type, options.op, largest);
    if (!world.agree(lacks.empty(), "--compare mpi: " + lacks)) return kRefused;
  }
  Output output;
  if (!output.open(world, options.output)) return kRefused;
  Library library;
  if (!library.start(world, setup_of(options, world.rank()))) return kRefused;
  const MemoryKind& kind = memory_of(options, world.rank());
  uint64_t element = size_of(options.type);
  uint64_t send_bytes = options.out_of_place ? largest.send_elements * element : 0;
  uint64_t recv_bytes = options.in_place ? largest.bytes : largest.recv_elements * element;
  Memory send, recv;
  if (!allocate_all(world, kind, library.device(), send_bytes, recv_bytes, &send, &recv))
    return kRefused;

  nlohmann::json meta = library.describe(world, kind.name);
  Runner runner(world, library, options);
  std::vector<Measurement> results;
  for (const Shape& shape : shapes) {
    for (bool in_place : places(options, options.kind)) {
      Call call(options.kind, options.type, options.op, options.root, shape, in_place,
                world.place(), send.data(), recv.data(), library.mover());
      results.push_back(runner.measure(call, memory_label(options.memory)));
    }
  }
  return finish(world, options, results, nullptr, meta, &output);
}

// Every call has memory of its own, as the tensors of an application have. In place, as gradients
// are reduced, unless the user said otherwise.
int run_replay(const World& world, const Options& options) {
  std::ifstream file(options.replay_file);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  if (!world.agree(file.good(), "replay: cannot read '" + options.replay_file + "'")) {
    return kRefused;
  }
  std::vector<WorkloadCall> list;
  std::string error;
  bool parsed = parse_workload(text.str(), options.replay_file, &list, &error);
  for (const WorkloadCall& w : list) {
    if (!parsed || w.root < world.ranks()) continue;
    parsed = false;
    error = options.replay_file + ": root " + std::to_string(w.root) + " is no rank here";
  }
  if (!world.agree(parsed, error)) return kRefused;
  Output output;
  if (!output.open(world, options.output)) return kRefused;
  Library library;
  if (!library.start(world, setup_of(options, world.rank()))) return kRefused;

  bool in_place = !(options.place_given && options.out_of_place);
  constexpr uint64_t kLine = 64;
  std::vector<uint64_t> send_at, recv_at;
  uint64_t send_bytes = 0, recv_bytes = 0;
  std::vector<Shape> shapes;
  for (const WorkloadCall& w : list) {
    shapes.push_back(shape_of_count(w.kind, w.type, world.ranks(), w.count));
    uint64_t element = size_of(w.type);
    send_at.push_back(send_bytes);
    recv_at.push_back(recv_bytes);
    uint64_t received = in_place ? shapes.back().bytes : shapes.back().recv_elements * element;
    recv_bytes += (received + kLine - 1) / kLine * kLine;
    if (in_place) continue;
    send_bytes += (shapes.back().send_elements * element + kLine - 1) / kLine * kLine;
  }
  const MemoryKind& kind = memory_of(options, world.rank());
  Memory send, recv;
  if (!allocate_all(world, kind, library.device(), send_bytes, recv_bytes, &send, &recv))
    return kRefused;

  std::vector<Call> calls;
  for (size_t i = 0; i < list.size(); ++i) {
    calls.emplace_back(list[i].kind, list[i].type, list[i].op, list[i].root, shapes[i], in_place,
                       world.place(), send.data() + send_at[i], recv.data() + recv_at[i],
                       library.mover());
  }
  nlohmann::json meta = library.describe(world, kind.name);
  meta["workload"] = options.replay_file;
  Step step;
  std::vector<Measurement> results =
      Runner(world, library, options).measure_step(calls, memory_label(options.memory), &step);
  if (options.compare_mpi && !step.compared && world.rank() == 0) {
    std::fprintf(stderr, "hetccl_perf: --compare mpi: left out, MPI lacks a call of this list\n");
  }
  return finish(world, options, results, &step, meta, &output);
}

int main_of_rank(int argc, char** argv) {
  // MPI_Init may set the launcher's variables itself, so they are read before.
  std::map<std::string, std::string> launch;
  for (const char* name :
       {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}) {
    if (const char* value = std::getenv(name)) launch[name] = value;
  }
  World world(&argc, &argv, "hetccl_perf");
  Parsed parsed = parse_options(argc, argv, world.ranks());
  if (!parsed.run) {
    if (world.rank() == 0) {
      std::fputs(parsed.message.c_str(), parsed.exit_code == 0 ? stdout : stderr);
    }
    return parsed.exit_code;
  }
  std::string misled = launch_error(
      [&](const char* name) {
        auto found = launch.find(name);
        return found == launch.end() ? nullptr : found->second.c_str();
      },
      world.ranks());
  if (!world.agree(misled.empty(), misled)) return kRefused;
  return parsed.options.replay ? run_replay(world, parsed.options)
                               : run_sizes(world, parsed.options);
}

}  // namespace
}  // namespace hetccl::bench

int main(int argc, char** argv) { return hetccl::bench::main_of_rank(argc, argv); }

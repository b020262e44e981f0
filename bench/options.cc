#include "bench/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <sstream>

#include "bench/size.h"

namespace hetccl::bench {
namespace {

CLI::Validator size_validator(uint64_t* target) {
  return CLI::Validator(
      [target](std::string& text) {
        std::string why;
        return parse_size(text, target, &why) ? std::string() : why;
      },
      "SIZE");
}

// Texts as CLI11 collects them, before their meaning is known.
struct Raw {
  std::string what, file, begin, end, increment, type, op, skew, format = "nccl", compare,
                                                                 stream = "none";
  std::vector<std::string> memory;
  bool in_place = false, out_of_place = false, no_check = false;
};

void declare(CLI::App* app, Raw* raw, Options* o) {
  app->add_option("collective", raw->what,
                  collective_names() + ", or replay to run a recorded list of calls")
      ->required();
  app->add_option("file", raw->file,
                  "with replay: the list, one 'collective count type op' a line");
  app->add_option("-b,--begin", raw->begin, "smallest size in bytes [8]")
      ->transform(size_validator(&o->begin));
  app->add_option("-e,--end", raw->end, "largest size in bytes [128M]")
      ->transform(size_validator(&o->end));
  auto* factor = app->add_option("-f,--factor", o->factor, "from one size to the next [4]")
                     ->check(CLI::Range(uint64_t{2}, uint64_t{1} << 40));
  app->add_option("-i,--increment", raw->increment,
                  "bytes from one size to the next, instead of -f")
      ->transform(size_validator(&o->increment))
      ->excludes(factor);
  app->add_option("-d,--datatype", raw->type,
                  "data type: float, half, bfloat16, int8, ... [float]");
  app->add_option("-o,--op", raw->op, "operator: sum, prod, min, max, avg, ... [sum]");
  app->add_option("-n,--iters", o->iterations,
                  "timed samples a size; short calls are timed in batches [20]")
      ->check(CLI::Range(1, 1000000));
  app->add_option("-w,--warmup", o->warmup, "calls before the first sample [5]")
      ->check(CLI::Range(0, 1000000));
  app->add_option("--root", o->root, "root of collectives that have one [0]");
  app->add_option("--skew", raw->skew,
                  "blocks of v-forms: even, skewed (as 1, 2, ..., n), zero (all but every fourth "
                  "empty) [even]");
  auto* in = app->add_flag("--in-place", raw->in_place, "measure in place only");
  app->add_flag("--out-of-place", raw->out_of_place, "measure out of place only")->excludes(in);
  app->add_option("--memory", raw->memory,
                  memory_names() + "; one for all ranks, or a list with one for each [host]")
      ->delimiter(',');
  app->add_option("--stream", raw->stream,
                  "none (calls are complete on return), hetccl, or native: the device's own [none]")
      ->check(CLI::IsMember({"none", "hetccl", "native"}));
  app->add_option("--algo", o->algorithm, "force this algorithm, as HETCCL_ALGO takes it");
  app->add_option("--compare", raw->compare, "mpi: also time MPI's own collective, interleaved")
      ->check(CLI::IsMember({"mpi"}));
  app->add_option("--format", raw->format, "nccl, csv or json [nccl]")
      ->check(CLI::IsMember({"nccl", "csv", "json"}));
  app->add_option("--output", o->output, "write the result to this file");
  app->add_flag("--no-check", raw->no_check, "do not verify the data");
}

// The first thing wrong with the combination, or "".
std::string interpret(const Raw& raw, int ranks, Options* o) {
  if (raw.what == "replay") {
    o->replay = true;
    o->replay_file = raw.file;
    if (raw.file.empty()) return "replay: FILE is missing, a list of calls to run";
  } else if (!parse_kind(raw.what, &o->kind)) {
    return "collective: '" + raw.what + "' is unknown; allowed: " + collective_names() + ", replay";
  } else if (!raw.file.empty()) {
    return "'" + raw.file + "': only replay takes a file";
  }
  if (o->begin > o->end) {
    return "-b " + std::to_string(o->begin) + " is more than -e " + std::to_string(o->end) +
           "; give both, with -b not above -e";
  }
  if (!raw.increment.empty() && o->increment == 0) return "-i: 0 never reaches the end";
  if (!raw.type.empty() && !parse_type(raw.type, &o->type)) {
    return "-d: '" + raw.type + "' is unknown; allowed: " + type_names();
  }
  if (!raw.op.empty() && !parse_op(raw.op, &o->op)) {
    return "-o: '" + raw.op + "' is unknown; allowed: " + op_names();
  }
  if (!o->replay && !allows(o->kind, o->type, o->op)) {
    return "-o: " + std::string(name_of(o->op)) + " is not defined for " +
           std::string(name_of(o->type)) + " in " + std::string(name_of(o->kind));
  }
  if (!raw.skew.empty() && !parse_skew(raw.skew, &o->skew)) {
    return "--skew: '" + raw.skew + "' is unknown; allowed: even, skewed, zero";
  }
  if (!raw.skew.empty() && (o->replay || !has_counts(o->kind))) {
    return "--skew: " + raw.what + " has no counts that differ; allowed with allgatherv and others";
  }
  if (o->root < 0 || o->root >= ranks) {
    return "--root: " + std::to_string(o->root) + " is no rank; allowed: 0 to " +
           std::to_string(ranks - 1);
  }
  if (!o->algorithm.empty() && o->algorithm.find(':') == std::string::npos) {
    o->algorithm = (o->replay ? "*" : std::string(plain_name_of(o->kind))) + ":" + o->algorithm;
  }
  const std::vector<std::string> host = {"host"};
  std::string wrong = deal_memory(raw.memory.empty() ? host : raw.memory, ranks, &o->memory);
  if (!wrong.empty()) return wrong;
  const bool devices = std::any_of(o->memory.begin(), o->memory.end(),
                                   [](const MemoryKind& k) { return k.on_device(); });
  if (devices && !raw.compare.empty()) {
    return "--compare mpi: only with host memory on all ranks; --memory has " +
           memory_label(o->memory);
  }
  o->stream = raw.stream == "native"   ? StreamKind::kNative
              : raw.stream == "hetccl" ? StreamKind::kLibrary
                                       : StreamKind::kNone;
  o->place_given = raw.in_place || raw.out_of_place;
  if (raw.in_place) o->out_of_place = false;
  if (raw.out_of_place) o->in_place = false;
  o->compare_mpi = !raw.compare.empty();
  o->format = raw.format == "csv"    ? Format::kCsv
              : raw.format == "json" ? Format::kJson
                                     : Format::kNccl;
  o->check = !raw.no_check;
  return "";
}

}  // namespace

Parsed parse_options(int argc, const char* const* argv, int ranks) {
  Parsed parsed;
  Raw raw;
  CLI::App app("Times and verifies the collectives of hetccl. Start it with mpirun.",
               "hetccl_perf");
  declare(&app, &raw, &parsed.options);
  try {
    app.parse(argc, const_cast<char**>(argv));
  } catch (const CLI::ParseError& error) {
    std::ostringstream out, err;
    parsed.exit_code = app.exit(error, out, err);
    parsed.message = parsed.exit_code == 0 ? out.str() : "hetccl_perf: " + err.str();
    return parsed;
  }
  std::string wrong = interpret(raw, ranks, &parsed.options);
  if (!wrong.empty()) {
    parsed.exit_code = 2;
    parsed.message = "hetccl_perf: " + wrong + "\n";
    return parsed;
  }
  parsed.run = true;
  return parsed;
}

}  // namespace hetccl::bench

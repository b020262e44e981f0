// What the user asked of hetccl_perf. Parsed alike on every rank; only plain data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/collective.h"
#include "bench/memory_kind.h"

namespace hetccl::bench {

enum class Format { kNccl, kCsv, kJson };

// What calls are given as their stream: NULL, one of the library, or one of the rank's device (of
// the library where a rank has none).
enum class StreamKind { kNone, kLibrary, kNative };

struct Options {
  bool replay = false;
  Kind kind = Kind::kAllReduce;
  std::string replay_file;
  uint64_t begin = 8, end = 128ull << 20, factor = 4, increment = 0;
  DataType type = hetcclFloat32;
  RedOp op = hetcclSum;
  int iterations = 20;
  int warmup = 5;
  int root = 0;
  Skew skew = Skew::kEven;                    // of v-forms
  bool in_place = true, out_of_place = true;  // which of the two are measured
  bool place_given = false;                   // the user chose one
  std::vector<MemoryKind> memory;             // of each rank
  StreamKind stream = StreamKind::kNone;
  std::string algorithm;  // value for HETCCL_ALGO, or empty
  bool compare_mpi = false;
  Format format = Format::kNccl;
  std::string output;  // file, or empty: standard output
  bool check = true;
};

struct Parsed {
  bool run = false;     // measure; otherwise print `message` and leave with `exit_code`
  int exit_code = 0;    // of the process, where not `run`
  std::string message;  // help text, or what is wrong and what is allowed
  Options options;
};

Parsed parse_options(int argc, const char* const* argv, int ranks);

}  // namespace hetccl::bench

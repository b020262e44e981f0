#include "lib/interop/mpi/report.h"

#include <unistd.h>

#include <array>
#include <atomic>

#include "lib/base/settings.h"

namespace hetccl::mpi {
namespace {

constexpr auto kIds = static_cast<size_t>(Id::kCount);
constexpr auto kPasses = static_cast<size_t>(Pass::kCount);

constexpr const char* kNames[] = {
#define COLLECTIVE(Name, Iname, parameters, arguments) #Name,
#include "lib/interop/mpi/functions.inc"
#undef COLLECTIVE
};
constexpr const char* kReasons[] = {
    "",
    "communicator left to MPI (inter-communicator, one rank, or switched off)",
    "arguments for MPI to refuse",
    "no data",
    "operator or type not known here",
    "MPI is faster",
    "non-blocking before a blocking one was taken on the communicator",
    "made inside MPI",
};
static_assert(std::size(kReasons) == kPasses);

struct Counts {
  std::array<std::atomic<size_t>, kPasses> calls{};
  std::atomic<size_t> bytes{0};  // of calls taken
};
std::array<Counts, kIds> counts;

}  // namespace

void count_call(Id id, Pass pass, size_t bytes) {
  Counts& c = counts[static_cast<size_t>(id)];
  c.calls[static_cast<size_t>(pass)].fetch_add(1, std::memory_order_relaxed);
  if (pass == Pass::kTaken) c.bytes.fetch_add(bytes, std::memory_order_relaxed);
}

std::string report_text() {
  std::string text;
  for (size_t id = 0; id < kIds; ++id) {
    size_t all = 0;
    std::string passed;
    for (size_t p = 0; p < kPasses; ++p) {
      const size_t calls = counts[id].calls[p].load();
      all += calls;
      if (p > 0 && calls > 0) passed += "; to MPI " + std::to_string(calls) + ": " + kReasons[p];
    }
    if (all == 0) continue;
    text += std::string("  ") + kNames[id] + ": " + std::to_string(all) + " calls, " +
            std::to_string(counts[id].calls[0].load()) + " by hetccl of " +
            std::to_string(counts[id].bytes.load()) + " bytes" + passed + "\n";
  }
  return text;
}

void write_report() {
  const Result<Settings> settings = load_settings();
  if (!settings.ok() || !settings->mpi_report) return;
  int rank = -1;
  if (PMPI_Comm_rank(MPI_COMM_WORLD, &rank) != MPI_SUCCESS || rank != 0) return;
  const std::string text = "hetccl: collectives of rank 0:\n" + report_text();
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t some = write(STDERR_FILENO, text.data() + done, text.size() - done);
    if (some <= 0) return;
    done += static_cast<size_t>(some);
  }
}

}  // namespace hetccl::mpi

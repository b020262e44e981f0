#include "bench/library.h"

#include <hetccl/mpi.h>
#include <unistd.h>

#include <cstdlib>

#include "bench/version.h"
#include "lib/introspect.h"

namespace hetccl::bench {
namespace {

std::string error_text(hetcclResult_t result, hetcclComm_t comm) {
  std::string cause = hetcclGetLastError(comm);
  if (cause.empty()) cause = hetcclGetLastError(nullptr);
  return std::string(hetcclGetErrorString(result)) + (cause.empty() ? "" : ": " + cause);
}

std::string host_name() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

// The first line, which names the library; the rest is how it was built.
std::string mpi_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(text, &length);
  std::string all(text, static_cast<size_t>(length));
  all = all.substr(0, all.find_first_of("\n"));
  size_t comma = all.find(", package");
  return all.substr(0, comma);
}

nlohmann::json parsed(const char* text) {
  nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  return json.is_discarded() ? nlohmann::json(text) : json;
}

}  // namespace

bool Library::start(const World& world, const std::string& algorithm) {
  if (!algorithm.empty()) setenv("HETCCL_ALGO", algorithm.c_str(), 1);
  hetcclResult_t result = hetcclCommInitMPI(&comm_, MPI_COMM_WORLD, nullptr);
  return world.agree(
      result == hetcclSuccess,
      "no communicator: " + (result == hetcclSuccess ? "" : error_text(result, nullptr)));
}

Library::~Library() { (void)hetcclCommDestroy(comm_); }

std::string Library::run(const Call& c) const {
  const void* send = c.send();
  void* recv = c.recv();
  size_t count = c.shape().count;
  hetcclResult_t result = hetcclInternalError;
  switch (c.kind()) {
    case Kind::kAllReduce:
      result = hetcclAllReduce(send, recv, count, c.type(), c.op(), comm_, nullptr);
      break;
    case Kind::kReduce:
      result = hetcclReduce(send, recv, count, c.type(), c.op(), c.root(), comm_, nullptr);
      break;
    case Kind::kReduceScatter:
      result = hetcclReduceScatter(send, recv, count, c.type(), c.op(), comm_, nullptr);
      break;
    case Kind::kBroadcast:
      result = hetcclBroadcast(send, recv, count, c.type(), c.root(), comm_, nullptr);
      break;
    case Kind::kAllGather:
      result = hetcclAllGather(send, recv, count, c.type(), comm_, nullptr);
      break;
    case Kind::kAllToAll:
      result = hetcclAllToAll(send, recv, count, c.type(), comm_, nullptr);
      break;
    case Kind::kBarrier:
      result = hetcclBarrier(comm_, nullptr);
      break;
  }
  if (result == hetcclSuccess) return "";
  return std::string(name_of(c.kind())) + " of " + std::to_string(count) + " " +
         std::string(name_of(c.type())) + ": " + error_text(result, comm_);
}

std::string Library::last_algorithm() const { return hetcclInternalLastAlgorithm(comm_); }

nlohmann::json Library::describe(const World& world, const std::string& my_memory) const {
  int version = 0;
  (void)hetcclGetVersion(&version);
  nlohmann::json meta;
  meta["version"] = std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) +
                    "." + std::to_string(version % 100);
  meta["tool_version"] = HETCCL_PERF_VERSION;
  meta["commit"] = HETCCL_PERF_COMMIT;
  meta["mpi"] = mpi_version();
  nlohmann::json mine = {{"rank", world.rank()},
                         {"host", host_name()},
                         {"pid", static_cast<int>(getpid())},
                         {"memory", my_memory}};
  meta["ranks"] = nlohmann::json::array();
  meta["hosts"] = nlohmann::json::array();
  for (const std::string& text : world.gather(mine.dump())) {
    nlohmann::json rank = parsed(text.c_str());
    bool known = false;
    for (const auto& host : meta["hosts"]) known = known || host == rank["host"];
    if (!known) meta["hosts"].push_back(rank["host"]);
    meta["ranks"].push_back(rank);
  }
  meta["library"] = parsed(hetcclInternalDescribe(nullptr));
  nlohmann::json communicator = parsed(hetcclInternalDescribe(comm_));
  meta["rank_table"] = communicator.value("ranks", nlohmann::json());
  meta["links"] = communicator.value("links", nlohmann::json());
  meta["settings"] = communicator.value("settings", nlohmann::json());
  return meta;
}

}  // namespace hetccl::bench

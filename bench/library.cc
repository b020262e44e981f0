#include "bench/library.h"

#include <hetccl/mpi.h>
#include <unistd.h>

#include <algorithm>
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

std::string Library::choose_device(const World& world, const MemoryKind& memory) {
  kind_ = memory.kind;
  if (!memory.on_device()) return "";
  for (const nlohmann::json& entry : parsed(hetcclInternalDevices())) {
    if (entry.value("kind", "") != memory.name) continue;
    if (entry.contains("absent"))
      return "--memory " + std::string(memory.name) + ": " + entry["absent"].get<std::string>();
    const auto devices = static_cast<int>(entry["devices"].size());
    if (devices == 0) return "--memory " + std::string(memory.name) + ": no device";
    device_ = world.rank_on_node() % devices;
    mover_ = [&world](void* to, const void* from, size_t bytes) {
      hetcclResult_t result = hetcclInternalCopy(to, from, bytes);
      if (result != hetcclSuccess) {
        world.fail("a copy to or from the device: " + error_text(result, nullptr));
      }
    };
    return "";
  }
  return "--memory " + std::string(memory.name) + ": the library does not know it";
}

std::string Library::make_stream(StreamKind wanted) {
  if (wanted == StreamKind::kNone) return "";
  native_ = wanted == StreamKind::kNative && kind_ != hetcclMemoryHost;
  hetcclResult_t result =
      native_ ? hetcclInternalStreamCreate(kind_, device_, &stream_) : hetcclStreamCreate(&stream_);
  return result == hetcclSuccess ? "" : "--stream: " + error_text(result, nullptr);
}

bool Library::start(const World& world, const Setup& setup) {
  if (!setup.algorithm.empty()) setenv("HETCCL_ALGO", setup.algorithm.c_str(), 1);
  std::string wrong = setup.memory != nullptr ? choose_device(world, *setup.memory) : "";
  if (!world.agree(wrong.empty(), wrong)) return false;
  hetcclConfig_t config = HETCCL_CONFIG_INITIALIZER;
  if (setup.memory != nullptr) config.device_kind = kind_;
  config.device = device_;
  hetcclResult_t result = hetcclCommInitMPI(&comm_, MPI_COMM_WORLD, &config);
  wrong = result == hetcclSuccess ? make_stream(setup.stream)
                                  : "no communicator: " + error_text(result, nullptr);
  return world.agree(wrong.empty(), wrong);
}

Library::~Library() {
  if (stream_ != nullptr) {
    (void)wait();
    if (native_) {
      (void)hetcclInternalStreamDestroy(kind_, device_, stream_);
    } else {
      (void)hetcclStreamDestroy(stream_);
    }
  }
  (void)hetcclCommDestroy(comm_);
}

std::string Library::wait() const {
  if (stream_ == nullptr) return "";
  hetcclResult_t result = native_ ? hetcclInternalStreamSynchronize(kind_, device_, stream_)
                                  : hetcclStreamSynchronize(stream_);
  // A native stream knows nothing of errors of calls given to it.
  if (result == hetcclSuccess && native_) (void)hetcclCommGetAsyncError(comm_, &result);
  return result == hetcclSuccess ? "" : "a call in a stream: " + error_text(result, comm_);
}

hetcclResult_t Library::run_with_counts(const Call& c) const {
  const void* send = c.send();
  void* recv = c.recv();
  const size_t *sent = c.sent().counts.data(), *sent_at = c.sent().displacements.data();
  const size_t *got = c.received().counts.data(), *got_at = c.received().displacements.data();
  switch (c.kind()) {
    case Kind::kReduceScatterv:
      return hetcclReduceScatterv(send, recv, sent, c.type(), c.op(), comm_, stream_);
    case Kind::kAllGatherv:
      return hetcclAllGatherv(send, c.sent().total, recv, got, got_at, c.type(), comm_, stream_);
    case Kind::kAllToAllv:
      return hetcclAllToAllv(send, sent, sent_at, recv, got, got_at, c.type(), comm_, stream_);
    case Kind::kGatherv:
      return hetcclGatherv(send, c.sent().total, recv, got, got_at, c.type(), c.root(), comm_,
                           stream_);
    case Kind::kScatterv:
      return hetcclScatterv(send, sent, sent_at, recv, c.received().total, c.type(), c.root(),
                            comm_, stream_);
    default:
      return hetcclInternalError;
  }
}

std::string Library::run(const Call& c) const {
  const void* send = c.send();
  void* recv = c.recv();
  size_t count = c.shape().count;
  hetcclResult_t result = hetcclInternalError;
  switch (c.kind()) {
    case Kind::kAllReduce:
      result = hetcclAllReduce(send, recv, count, c.type(), c.op(), comm_, stream_);
      break;
    case Kind::kReduce:
      result = hetcclReduce(send, recv, count, c.type(), c.op(), c.root(), comm_, stream_);
      break;
    case Kind::kReduceScatter:
      result = hetcclReduceScatter(send, recv, count, c.type(), c.op(), comm_, stream_);
      break;
    case Kind::kBroadcast:
      result = hetcclBroadcast(send, recv, count, c.type(), c.root(), comm_, stream_);
      break;
    case Kind::kAllGather:
      result = hetcclAllGather(send, recv, count, c.type(), comm_, stream_);
      break;
    case Kind::kAllToAll:
      result = hetcclAllToAll(send, recv, count, c.type(), comm_, stream_);
      break;
    case Kind::kBarrier:
      result = hetcclBarrier(comm_, stream_);
      break;
    case Kind::kGather:
      result = hetcclGather(send, recv, count, c.type(), c.root(), comm_, stream_);
      break;
    case Kind::kScatter:
      result = hetcclScatter(send, recv, count, c.type(), c.root(), comm_, stream_);
      break;
    case Kind::kScan:
      result = hetcclScan(send, recv, count, c.type(), c.op(), comm_, stream_);
      break;
    case Kind::kExscan:
      result = hetcclExscan(send, recv, count, c.type(), c.op(), comm_, stream_);
      break;
    default:
      result = run_with_counts(c);
      break;
  }
  if (result == hetcclSuccess) return "";
  return std::string(name_of(c.kind())) + " of " + std::to_string(count) + " " +
         std::string(name_of(c.type())) + ": " + error_text(result, comm_);
}

std::string Library::last_algorithm() const { return hetcclInternalLastAlgorithm(comm_); }

nlohmann::json Library::rank_table(const World& world) const {
  nlohmann::json communicator = parsed(hetcclInternalDescribe(comm_));
  nlohmann::json paths = nlohmann::json::object();
  for (const nlohmann::json& link : communicator.value("links", nlohmann::json::array())) {
    paths[link["peer"].dump()] = {
        {"path", link["path"]}, {"lane", link["lane"]}, {"reason", link["reason"]}};
  }
  nlohmann::json table = communicator.value("ranks", nlohmann::json::array());
  std::vector<std::string> of_all = world.gather(paths.dump());
  for (size_t r = 0; r < std::min(table.size(), of_all.size()); ++r) {
    table[r]["paths"] = parsed(of_all[r].c_str());
  }
  return table;
}

nlohmann::json Library::describe(const World& world, const std::string& my_memory) const {
  int version = 0;
  (void)hetcclGetVersion(&version);
  nlohmann::json meta;
  meta["version"] = std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) +
                    "." + std::to_string(version % 100);
  meta["tool_version"] = HETCCL_PERF_VERSION;
  meta["commit"] = HETCCL_PERF_COMMIT;
  meta["mpi"] = mpi_version();
  meta["rank_table"] = rank_table(world);
  std::vector<std::string> memories = world.gather(my_memory);
  meta["ranks"] = nlohmann::json::array();
  meta["hosts"] = nlohmann::json::array();
  std::vector<std::string> hosts = world.gather(host_name());
  std::vector<std::string> pids = world.gather(std::to_string(getpid()));
  for (size_t r = 0; r < memories.size(); ++r) {
    auto known = std::find(hosts.begin(), hosts.begin() + static_cast<ptrdiff_t>(r), hosts[r]);
    if (known == hosts.begin() + static_cast<ptrdiff_t>(r)) meta["hosts"].push_back(hosts[r]);
    nlohmann::json rank = {
        {"rank", r}, {"host", hosts[r]}, {"pid", std::stoi(pids[r])}, {"memory", memories[r]}};
    if (r < meta["rank_table"].size()) {
      meta["rank_table"][r]["memory"] = memories[r];
      for (const char* key : {"device", "paths"}) rank[key] = meta["rank_table"][r][key];
    }
    meta["ranks"].push_back(rank);
  }
  meta["library"] = parsed(hetcclInternalDescribe(nullptr));
  nlohmann::json communicator = parsed(hetcclInternalDescribe(comm_));
  meta["links"] = communicator.value("links", nlohmann::json());
  meta["settings"] = communicator.value("settings", nlohmann::json());
  return meta;
}

}  // namespace hetccl::bench

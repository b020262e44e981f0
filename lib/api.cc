// The C API: checks handles and settings, and wires the parts together.
#include <hetccl/hetccl.h>

#include <cstring>
#include <new>
#include <vector>

#include "lib/communicator.h"
#include "lib/context.h"
#include "lib/device_tools.h"
#include "lib/group.h"
#include "lib/handle.h"
#include "lib/last_error.h"
#include "lib/stream.h"

using hetccl::Call;
using hetccl::check_handle;
using hetccl::Communicator;
using hetccl::Context;
using hetccl::Group;
using hetccl::guarded;
using hetccl::invalid_argument;
using hetccl::invalid_usage;
using hetccl::last_error;
using hetccl::report;
using hetccl::Settings;
using hetccl::Status;
using hetccl::Stream;
using hetccl::coll::Collective;

namespace {

constexpr double kDestroyWait_s = 30;  // for others to take what this rank sent
constexpr double kAbortWait_s = 4;

thread_local std::string last_error_shown;

hetcclComm_t make_handle(std::unique_ptr<Communicator> communicator) {
  auto* const handle = new hetcclComm;
  handle->communicator = std::move(communicator);
  return handle;
}

// A config's values over the settings'. What is bad goes to all ranks with the first exchange.
Status apply_config(const hetcclConfig_t* config, Settings* settings) {
  if (config == nullptr) return {};
  if (config->size != sizeof(hetcclConfig_t) || config->version != HETCCL_CONFIG_VERSION) {
    return invalid_argument("the config was not filled by HETCCL_CONFIG_INITIALIZER");
  }
  if (config->device_kind > hetcclMemorySimHip || config->device_kind < -1 || config->device < -1) {
    return invalid_argument("config.device_kind " + std::to_string(config->device_kind) +
                            ", config.device " + std::to_string(config->device) +
                            ": the kind is a hetcclMemoryKind_t, the device an ordinal, and -1 "
                            "leaves either to the library");
  }
  settings->device_kind = config->device_kind;
  settings->device = config->device;
  if (config->timeout_s >= 0) settings->timeout_s = config->timeout_s;
  if (config->node != nullptr) settings->node = config->node;
  return {};
}

Status make_root(hetcclComm_t* comm, int nranks, int rank, const hetccl::net::Allgather& allgather,
                 const hetcclConfig_t* config, const Settings& settings, const Status& trouble) {
  auto session = hetccl::net::Session::create(
      nranks, rank, allgather, {settings.node, settings.socket_ifname, settings.timeout_s});
  if (!session.ok()) return trouble.ok() ? session.status() : trouble;
  std::vector<int> members;
  for (int r = 0; r < nranks; ++r) members.push_back(r);
  auto made = Communicator::create(*session, 1, members, rank, settings, trouble, {});
  if (!made.ok()) return made.status();
  if (config != nullptr && config->name != nullptr) (*made)->set_name(config->name);
  *comm = make_handle(std::move(*made));
  return {};
}

// Settings as far as they are sound; `trouble` says what is not.
Settings read_settings(const hetcclConfig_t* config, Status* trouble) {
  auto loaded = hetccl::load_settings();
  Settings settings;
  if (loaded.ok()) {
    settings = *loaded;
  } else {
    *trouble = loaded.status();
    std::vector<std::string> unknown;
    settings = *hetccl::parse_settings({}, &unknown);
  }
  Status bad_config = apply_config(config, &settings);
  if (trouble->ok()) *trouble = bad_config;
  return settings;
}

Status check_ranks(const void* comm, int nranks, int rank) {
  if (comm == nullptr) return invalid_argument("the pointer to the new communicator is NULL");
  if (nranks < 1) return invalid_argument("nranks is " + std::to_string(nranks));
  if (rank < 0 || rank >= nranks) {
    return invalid_argument("rank " + std::to_string(rank) + " is not one of 0 to " +
                            std::to_string(nranks - 1));
  }
  return {};
}

Status run_call(const Call& call, hetcclComm_t comm, hetcclStream_t stream) {
  if (Group::open()) return Group::add(comm->communicator.get(), call, stream);
  if (stream == nullptr) return comm->communicator->call(call);
  if (!Context::get().has_stream(stream)) return comm->communicator->call_native(call, stream);
  return comm->communicator->call(call, static_cast<Stream*>(stream));
}

void keep_error(hetcclComm_t comm, const Status& s) {
  std::lock_guard lock(comm->mutex);
  comm->last_error = s.message();
}

// `refuse` says what is wrong with the arguments beyond what the call itself shows.
template <typename Refuse>
hetcclResult_t collective(const Call& call, hetcclComm_t comm, hetcclStream_t stream,
                          Refuse refuse) {
  return guarded([&]() -> Status {
    if (Status s = check_handle(comm); !s.ok()) return s;
    Status s = refuse();
    if (s.ok()) s = run_call(call, comm, stream);
    if (!s.ok()) keep_error(comm, s);
    return s;
  });
}

hetcclResult_t collective(const Call& call, hetcclComm_t comm, hetcclStream_t stream) {
  if (stream != nullptr || Group::open() || !hetccl::is_live(comm)) [[unlikely]] {
    return collective(call, comm, stream, [] { return Status(); });
  }
  return guarded([&] {
    Status s = comm->communicator->call(call);
    if (!s.ok()) [[unlikely]]
      keep_error(comm, s);
    return s;
  });
}

Status check_list(const char* call, const char* name, const size_t* list) {
  if (list != nullptr) return {};
  return invalid_argument(std::string(call) + ": " + name + " is NULL");
}

// Gatherv and Scatterv: the lists are looked at by the root only.
hetcclResult_t collective_of_root(Call call, const size_t* counts, const size_t* displacements,
                                  const char* counts_name, const char* displacements_name,
                                  hetcclComm_t comm, hetcclStream_t stream) {
  call.own_counts = true;
  if (check_handle(comm).ok() && comm->communicator->rank() == call.root) {
    call.counts = counts;
    call.displacements = displacements;
  }
  return collective(call, comm, stream, [&]() -> Status {
    if (comm->communicator->rank() != call.root) return {};
    const char* const name = call.collective == Collective::kGather ? "gatherv" : "scatterv";
    if (Status s = check_list(name, counts_name, counts); !s.ok()) return s;
    return check_list(name, displacements_name, displacements);
  });
}

}  // namespace

extern "C" {

hetcclResult_t hetcclGetVersion(int* version) {
  if (version == nullptr) return report(invalid_argument("the pointer to the version is NULL"));
  *version = HETCCL_VERSION;
  return hetcclSuccess;
}

const char* hetcclGetErrorString(hetcclResult_t result) {
  switch (result) {
    case hetcclSuccess:
      return "no error";
    case hetcclUnhandledDeviceError:
      return "unhandled device error";
    case hetcclSystemError:
      return "system error";
    case hetcclInternalError:
      return "internal error";
    case hetcclInvalidArgument:
      return "invalid argument";
    case hetcclInvalidUsage:
      return "invalid usage";
    case hetcclRemoteError:
      return "remote process failed or aborted";
    case hetcclInProgress:
      return "in progress";
    case hetcclTimeout:
      return "timeout";
  }
  return "unknown result code";
}

const char* hetcclGetLastError(hetcclComm_t comm) {
  const hetcclResult_t result = guarded([&]() -> Status {
    if (comm == nullptr) {
      last_error_shown = last_error();
      return {};
    }
    if (Status s = check_handle(comm); !s.ok()) return s;
    // What ended the communicator, else what its last refused call was refused for.
    last_error_shown = comm->communicator->failure().message();
    if (!last_error_shown.empty()) return {};
    std::lock_guard lock(comm->mutex);
    last_error_shown = comm->last_error;
    return {};
  });
  if (result != hetcclSuccess) last_error_shown = last_error();
  return last_error_shown.c_str();
}

hetcclResult_t hetcclCommInitOob(hetcclComm_t* comm, int nranks, int rank,
                                 int (*allgather)(const void*, void*, size_t, void*), void* ctx,
                                 const hetcclConfig_t* config) {
  return guarded([&]() -> Status {
    if (Status s = check_ranks(comm, nranks, rank); !s.ok()) return s;
    if (allgather == nullptr) return invalid_argument("allgather is NULL");
    Status trouble;
    const Settings settings = read_settings(config, &trouble);
    return make_root(
        comm, nranks, rank,
        [=](const void* mine, void* all, size_t bytes) { return allgather(mine, all, bytes, ctx); },
        config, settings, trouble);
  });
}

hetcclResult_t hetcclGetUniqueId(hetcclUniqueId* id) {
  return guarded([&]() -> Status {
    if (id == nullptr) return invalid_argument("the pointer to the id is NULL");
    auto settings = hetccl::load_settings();
    if (!settings.ok()) return settings.status();
    auto opened =
        hetccl::net::open_meeting({settings->node, settings->socket_ifname, settings->timeout_s});
    if (!opened.ok()) return opened.status();
    *id = *opened;
    return {};
  });
}

hetcclResult_t hetcclCommInitRankConfig(hetcclComm_t* comm, int nranks, hetcclUniqueId id, int rank,
                                        const hetcclConfig_t* config) {
  return guarded([&]() -> Status {
    if (Status s = check_ranks(comm, nranks, rank); !s.ok()) return s;
    Status trouble, why;
    const Settings settings = read_settings(config, &trouble);
    auto allgather = hetccl::net::meeting_allgather(
        id, nranks, rank, {settings.node, settings.socket_ifname, settings.timeout_s}, &why);
    Status s = make_root(comm, nranks, rank, allgather, config, settings, trouble);
    return s.ok() || why.ok() ? s : why;  // the meeting knows more than that it failed
  });
}

hetcclResult_t hetcclCommInitRank(hetcclComm_t* comm, int nranks, hetcclUniqueId id, int rank) {
  return hetcclCommInitRankConfig(comm, nranks, id, rank, nullptr);
}

hetcclResult_t hetcclCommSplit(hetcclComm_t comm, int64_t color, int64_t key, hetcclComm_t* newcomm,
                               const hetcclConfig_t* config) {
  return guarded([&]() -> Status {
    if (Status s = check_handle(comm); !s.ok()) return s;
    if (newcomm == nullptr) return invalid_argument("the pointer to the new communicator is NULL");
    Settings unused;
    const Status trouble = apply_config(config, &unused);
    Communicator::SplitConfig own;
    if (trouble.ok() && config != nullptr) {
      own = {config->timeout_s, config->device_kind, config->device};
    }
    auto made = comm->communicator->split(color, key, trouble, own);
    if (!made.ok()) return made.status();
    if (*made && config != nullptr && config->name != nullptr) (*made)->set_name(config->name);
    *newcomm = *made ? make_handle(std::move(*made)) : nullptr;
    return {};
  });
}

hetcclResult_t hetcclCommDup(hetcclComm_t comm, hetcclComm_t* newcomm) {
  return hetcclCommSplit(comm, 0, 0, newcomm, nullptr);
}

hetcclResult_t hetcclCommShrink(hetcclComm_t comm, const int* exclude, int nexclude,
                                hetcclComm_t* newcomm, const hetcclConfig_t* config) {
  return guarded([&]() -> Status {
    if (Status s = check_handle(comm); !s.ok()) return s;
    if (newcomm == nullptr) return invalid_argument("the pointer to the new communicator is NULL");
    Settings unused;
    if (Status s = apply_config(config, &unused); !s.ok()) return s;
    Communicator::SplitConfig own;
    if (config != nullptr) own = {config->timeout_s, config->device_kind, config->device};
    auto made = comm->communicator->shrink(exclude, nexclude, own);
    if (!made.ok()) return made.status();
    if (config != nullptr && config->name != nullptr) (*made)->set_name(config->name);
    *newcomm = make_handle(std::move(*made));
    return {};
  });
}

hetcclResult_t hetcclCommFinalize(hetcclComm_t comm) {
  return guarded([&]() -> Status {
    if (Status s = check_handle(comm); !s.ok()) return s;
    return comm->communicator->finalize();
  });
}

hetcclResult_t hetcclCommDestroy(hetcclComm_t comm) {
  return guarded([&]() -> Status {
    if (comm == nullptr) return {};
    if (Status s = check_handle(comm); !s.ok()) return s;
    comm->communicator->settle(kDestroyWait_s);
    comm->mark = 0;
    delete comm;
    return {};
  });
}

hetcclResult_t hetcclCommAbort(hetcclComm_t comm) {
  return guarded([&]() -> Status {
    if (comm == nullptr) return {};
    if (Status s = check_handle(comm); !s.ok()) return s;
    if (!comm->communicator->abort(kAbortWait_s)) {
      // A call is stuck in there: leaving the memory to it is the safe way.
      return hetccl::system_error("a call on the communicator did not end; it was not freed");
    }
    comm->mark = 0;
    delete comm;
    return {};
  });
}

hetcclResult_t hetcclCommCount(hetcclComm_t comm, int* count) {
  return guarded([&]() -> Status {
    if (Status s = check_handle(comm); !s.ok()) return s;
    if (count == nullptr) return invalid_argument("the pointer to the count is NULL");
    *count = comm->communicator->ranks();
    return {};
  });
}

hetcclResult_t hetcclCommUserRank(hetcclComm_t comm, int* rank) {
  return guarded([&]() -> Status {
    if (Status s = check_handle(comm); !s.ok()) return s;
    if (rank == nullptr) return invalid_argument("the pointer to the rank is NULL");
    *rank = comm->communicator->rank();
    return {};
  });
}

hetcclResult_t hetcclCommGetAsyncError(hetcclComm_t comm, hetcclResult_t* async_error) {
  return guarded([&]() -> Status {
    if (Status s = check_handle(comm); !s.ok()) return s;
    if (async_error == nullptr) return invalid_argument("the pointer to the error is NULL");
    *async_error = comm->communicator->failure().code();
    return {};
  });
}

// ---- collectives

hetcclResult_t hetcclAllReduce(const void* send, void* recv, size_t count, hetcclDataType_t type,
                               hetcclRedOp_t op, hetcclComm_t comm, hetcclStream_t stream) {
  return collective({Collective::kAllReduce, send, recv, count, type, op}, comm, stream);
}

hetcclResult_t hetcclReduce(const void* send, void* recv, size_t count, hetcclDataType_t type,
                            hetcclRedOp_t op, int root, hetcclComm_t comm, hetcclStream_t stream) {
  return collective({Collective::kReduce, send, recv, count, type, op, root}, comm, stream);
}

hetcclResult_t hetcclReduceScatter(const void* send, void* recv, size_t recvcount,
                                   hetcclDataType_t type, hetcclRedOp_t op, hetcclComm_t comm,
                                   hetcclStream_t stream) {
  return collective({Collective::kReduceScatter, send, recv, recvcount, type, op}, comm, stream);
}

hetcclResult_t hetcclReduceScatterv(const void* send, void* recv, const size_t* recvcounts,
                                    hetcclDataType_t type, hetcclRedOp_t op, hetcclComm_t comm,
                                    hetcclStream_t stream) {
  const Call call{Collective::kReduceScatter, send, recv, 0, type, op, 0, recvcounts};
  return collective(call, comm, stream, [&]() -> Status {
    return check_list("reducescatterv", "recvcounts", recvcounts);
  });
}

hetcclResult_t hetcclBroadcast(const void* send, void* recv, size_t count, hetcclDataType_t type,
                               int root, hetcclComm_t comm, hetcclStream_t stream) {
  return collective({Collective::kBroadcast, send, recv, count, type, hetcclSum, root}, comm,
                    stream);
}

hetcclResult_t hetcclAllGather(const void* send, void* recv, size_t sendcount,
                               hetcclDataType_t type, hetcclComm_t comm, hetcclStream_t stream) {
  return collective({Collective::kAllGather, send, recv, sendcount, type}, comm, stream);
}

hetcclResult_t hetcclAllGatherv(const void* send, size_t sendcount, void* recv,
                                const size_t* recvcounts, const size_t* recvdispls,
                                hetcclDataType_t type, hetcclComm_t comm, hetcclStream_t stream) {
  const Call call{
      Collective::kAllGather, send, recv, 0, type, hetcclSum, 0, recvcounts, recvdispls};
  return collective(call, comm, stream, [&]() -> Status {
    if (Status s = check_list("allgatherv", "recvcounts", recvcounts); !s.ok()) return s;
    if (Status s = check_list("allgatherv", "recvdispls", recvdispls); !s.ok()) return s;
    const int rank = comm->communicator->rank();
    if (sendcount == recvcounts[rank]) return {};
    return invalid_argument("allgatherv: sendcount is " + std::to_string(sendcount) +
                            ", recvcounts[" + std::to_string(rank) + "] of this rank is " +
                            std::to_string(recvcounts[rank]));
  });
}

hetcclResult_t hetcclAllToAll(const void* send, void* recv, size_t count, hetcclDataType_t type,
                              hetcclComm_t comm, hetcclStream_t stream) {
  return collective({Collective::kAllToAll, send, recv, count, type}, comm, stream);
}

hetcclResult_t hetcclAllToAllv(const void* send, const size_t* sendcounts, const size_t* senddispls,
                               void* recv, const size_t* recvcounts, const size_t* recvdispls,
                               hetcclDataType_t type, hetcclComm_t comm, hetcclStream_t stream) {
  Call call{Collective::kAllToAll, send, recv, 0, type};
  call.counts = recvcounts;
  call.displacements = recvdispls;
  call.send_counts = sendcounts;
  call.send_displacements = senddispls;
  call.own_counts = true;
  return collective(call, comm, stream, [&]() -> Status {
    if (Status s = check_list("alltoallv", "sendcounts", sendcounts); !s.ok()) return s;
    if (Status s = check_list("alltoallv", "senddispls", senddispls); !s.ok()) return s;
    if (Status s = check_list("alltoallv", "recvcounts", recvcounts); !s.ok()) return s;
    return check_list("alltoallv", "recvdispls", recvdispls);
  });
}

hetcclResult_t hetcclGather(const void* send, void* recv, size_t sendcount, hetcclDataType_t type,
                            int root, hetcclComm_t comm, hetcclStream_t stream) {
  return collective({Collective::kGather, send, recv, sendcount, type, hetcclSum, root}, comm,
                    stream);
}

hetcclResult_t hetcclGatherv(const void* send, size_t sendcount, void* recv,
                             const size_t* recvcounts, const size_t* recvdispls,
                             hetcclDataType_t type, int root, hetcclComm_t comm,
                             hetcclStream_t stream) {
  Call call{Collective::kGather, send, recv, sendcount, type, hetcclSum, root};
  return collective_of_root(call, recvcounts, recvdispls, "recvcounts", "recvdispls", comm, stream);
}

hetcclResult_t hetcclScatter(const void* send, void* recv, size_t recvcount, hetcclDataType_t type,
                             int root, hetcclComm_t comm, hetcclStream_t stream) {
  return collective({Collective::kScatter, send, recv, recvcount, type, hetcclSum, root}, comm,
                    stream);
}

hetcclResult_t hetcclScatterv(const void* send, const size_t* sendcounts, const size_t* senddispls,
                              void* recv, size_t recvcount, hetcclDataType_t type, int root,
                              hetcclComm_t comm, hetcclStream_t stream) {
  Call call{Collective::kScatter, send, recv, recvcount, type, hetcclSum, root};
  return collective_of_root(call, sendcounts, senddispls, "sendcounts", "senddispls", comm, stream);
}

hetcclResult_t hetcclScan(const void* send, void* recv, size_t count, hetcclDataType_t type,
                          hetcclRedOp_t op, hetcclComm_t comm, hetcclStream_t stream) {
  return collective({Collective::kScan, send, recv, count, type, op}, comm, stream);
}

hetcclResult_t hetcclExscan(const void* send, void* recv, size_t count, hetcclDataType_t type,
                            hetcclRedOp_t op, hetcclComm_t comm, hetcclStream_t stream) {
  return collective({Collective::kExscan, send, recv, count, type, op}, comm, stream);
}

hetcclResult_t hetcclBarrier(hetcclComm_t comm, hetcclStream_t stream) {
  return collective({Collective::kBarrier}, comm, stream);
}

// ---- streams and memory

hetcclResult_t hetcclStreamCreate(hetcclStream_t* stream) {
  return guarded([&]() -> Status {
    if (stream == nullptr) return invalid_argument("the pointer to the stream is NULL");
    auto* made = new Stream;
    Context::get().add_stream(made);
    *stream = made;
    return {};
  });
}

static Status check_stream(hetcclStream_t stream) {
  if (stream == nullptr || !Context::get().has_stream(stream)) {
    return invalid_argument("the stream was not made by hetcclStreamCreate, or was destroyed");
  }
  return {};
}

hetcclResult_t hetcclStreamSynchronize(hetcclStream_t stream) {
  return guarded([&]() -> Status {
    if (Status s = check_stream(stream); !s.ok()) return s;
    return static_cast<Stream*>(stream)->synchronize();
  });
}

hetcclResult_t hetcclStreamQuery(hetcclStream_t stream) {
  hetcclResult_t result = hetcclSuccess;
  const hetcclResult_t checked = guarded([&]() -> Status {
    if (Status s = check_stream(stream); !s.ok()) return s;
    result = static_cast<Stream*>(stream)->query();
    return {};
  });
  return checked != hetcclSuccess ? checked : result;
}

hetcclResult_t hetcclStreamDestroy(hetcclStream_t stream) {
  return guarded([&]() -> Status {
    if (Status s = check_stream(stream); !s.ok()) return s;
    auto* s = static_cast<Stream*>(stream);
    const Status status = s->synchronize();
    if (!Context::get().remove_stream(s)) {
      return invalid_argument("the stream was destroyed by another thread");
    }
    delete s;
    return status;
  });
}

hetcclResult_t hetcclMemAlloc(void** ptr, size_t bytes, hetcclMemoryKind_t kind) {
  return guarded([&]() -> Status {
    if (ptr == nullptr) return invalid_argument("the pointer to the memory is NULL");
    if (kind != hetcclMemoryHost) return hetccl::allocate_on_device(kind, -1, bytes, ptr);
    auto settings = hetccl::load_settings();
    if (!settings.ok()) return settings.status();
    auto fabric = Context::get().fabric(*settings);
    if (!fabric.ok()) return fabric.status();
    auto memory = (*fabric)->allocate_shared(bytes);
    if (!memory.ok()) return memory.status();
    *ptr = *memory;
    return {};
  });
}

hetcclResult_t hetcclMemFree(void* ptr) {
  return guarded([&]() -> Status {
    if (ptr == nullptr) return {};
    hetccl::device::Memory memory;
    auto owner = hetccl::device::owner_of(ptr, &memory);
    if (!owner.ok()) return owner.status();
    if (memory.place == hetccl::device::Memory::Place::kDevice && memory.base == nullptr &&
        memory.id == 0) {
      return invalid_argument("the memory is none of " + (*owner)->description() +
                              ", or was freed before");
    }
    if (*owner != nullptr) return (*owner)->free(ptr);
    auto settings = hetccl::load_settings();
    if (!settings.ok()) return settings.status();
    auto fabric = Context::get().fabric(*settings);
    if (!fabric.ok()) return fabric.status();
    return (*fabric)->free_shared(ptr);
  });
}

}  // extern "C"

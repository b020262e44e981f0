#include "lib/interop/mpi/channel.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

#include "lib/base/log.h"
#include "lib/base/settings.h"
#include "lib/interop/mpi/errors.h"
#include "lib/interop/mpi/real.h"
#include "lib/interop/mpi/requests.h"

namespace hetccl::mpi {
namespace {

std::mutex channels_mutex;
std::vector<Channel*>& channels() {
  static auto& all =
      *new std::vector<Channel*>;  // MPI may be finalized by a destructor that runs late
  return all;
}

enum class Phase { kBefore, kRunning, kEnded };
std::atomic<Phase> phase{Phase::kBefore};

bool is_running() {
  if (phase.load(std::memory_order_relaxed) == Phase::kRunning) return true;
  if (phase.load() == Phase::kEnded) return false;
  int initialized = 0, finalized = 0;
  PMPI_Initialized(&initialized);
  PMPI_Finalized(&finalized);
  if (!initialized || finalized) return false;
  Phase before = Phase::kBefore;
  phase.compare_exchange_strong(before, Phase::kRunning);
  return phase.load() == Phase::kRunning;
}

// What a rank knows of itself, for all others.
struct Account {
  Channel::Mode mode = Channel::Mode::kOff;
  char info = ' ';  // '+' and '-': the communicator's info says on, off
  char devices = 0;
  char trouble = 0;  // the settings are not sound
};

// Device files, since a program may take to its devices after its first collective.
bool sees_devices(const Settings& settings) {
  return !settings.sim.empty() || access("/dev/nvidiactl", F_OK) == 0 ||
         access("/dev/kfd", F_OK) == 0;
}

char read_info(MPI_Comm comm) {
  MPI_Info info = MPI_INFO_NULL;
  if (PMPI_Comm_get_info(comm, &info) != MPI_SUCCESS || info == MPI_INFO_NULL) return ' ';
  char text[8] = "";
  int found = 0;
  char answer = ' ';
  if (PMPI_Info_get(info, "hetccl", sizeof text - 1, text, &found) == MPI_SUCCESS && found) {
    const std::string value = text;
    if (value == "on") answer = '+';
    if (value == "off") answer = '-';
  }
  PMPI_Info_free(&info);
  return answer;
}

Account account_of(MPI_Comm comm) {
  Account account;
  account.info = read_info(comm);
  const Result<Settings> settings = load_settings();
  // The log is this library's own, beside that of libhetccl.so.
  if (settings.ok()) {
    log::configure(settings->log_level(), settings->debug_file);
  } else {
    log::configure(log::Level::kWarn, "");
    log::warn("the MPI library keeps its collectives: " + settings.status().message());
    account.trouble = 1;
    return account;
  }
  account.devices = sees_devices(*settings);
  if (settings->mpi == "auto") account.mode = Channel::Mode::kAuto;
  if (settings->mpi == "all") account.mode = Channel::Mode::kAll;
  return account;
}

int gather(const void* mine, void* all, size_t bytes_each, void* context) {
  if (bytes_each > INT_MAX) return 1;
  const auto bytes = static_cast<int>(bytes_each);
  return real().Allgather(mine, bytes, MPI_BYTE, all, bytes, MPI_BYTE,
                          *static_cast<MPI_Comm*>(context)) != MPI_SUCCESS;
}

}  // namespace

thread_local int Inside::depth = 0;

Channel* Channel::find(MPI_Comm comm) {
  if (comm == MPI_COMM_NULL || !is_running()) return nullptr;
  void* value = nullptr;
  int found = 0;
  if (keyval() == MPI_KEYVAL_INVALID) return nullptr;
  if (PMPI_Comm_get_attr(comm, keyval(), &value, &found) != MPI_SUCCESS) return nullptr;
  return found ? static_cast<Channel*>(value) : nullptr;
}

Channel* Channel::of(MPI_Comm comm) {
  if (Channel* const known = find(comm)) return known;
  if (comm == MPI_COMM_NULL || !is_running() || keyval() == MPI_KEYVAL_INVALID) return nullptr;
  const Inside inside;
  auto* const channel = new Channel(comm);
  channel->agree();
  PMPI_Comm_set_attr(comm, keyval(), channel);
  const std::lock_guard lock(channels_mutex);
  channels().push_back(channel);
  return channel;
}

int Channel::keyval() {
  static const int made = [] {
    int key = MPI_KEYVAL_INVALID;
    PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, &Channel::on_free, &key, nullptr);
    return key;
  }();
  return made;
}

void Channel::agree() {
  int inter = 0;
  PMPI_Comm_test_inter(mpi_, &inter);
  PMPI_Comm_rank(mpi_, &rank_);
  PMPI_Comm_size(mpi_, &size_);
  if (inter != 0 || size_ == 1) {
    why_not_ = inter != 0 ? "inter-communicator" : "one rank";
    return;
  }
  const Account mine = account_of(mpi_);
  std::vector<Account> all(static_cast<size_t>(size_));
  MPI_Comm comm = mpi_;
  if (gather(&mine, all.data(), sizeof mine, &comm) != 0) {
    why_not_ = "the first exchange failed";
    return;
  }
  bool trouble = false;
  for (const Account& a : all) {
    trouble = trouble || a.trouble != 0;
    devices_ = devices_ || a.devices != 0;
  }
  mode_ = all[0].mode;
  if (all[0].info == '-') mode_ = Mode::kOff;
  if (all[0].info == '+' && mode_ == Mode::kAuto) mode_ = Mode::kAll;
  ours_ = !trouble && mode_ != Mode::kOff;
  if (!ours_) why_not_ = trouble ? "settings are not sound" : "switched off";
}

hetcclComm_t Channel::comm() {
  if (comm_ == nullptr && ours_) make();
  return comm_;
}

void Channel::make() {
  const Inside inside;
  hetcclConfig_t config = HETCCL_CONFIG_INITIALIZER;
  // A rank that is merely late is legal in MPI.
  if (!is_set_in_environment("HETCCL_TIMEOUT")) config.timeout_s = 0;
  config.name = "mpi";
  MPI_Comm comm = mpi_;
  hetcclComm_t made = nullptr;
  const hetcclResult_t result = hetcclCommInitOob(&made, size_, rank_, gather, &comm, &config);
  if (result != hetcclSuccess) {
    log::warn(std::string("the MPI library keeps the collectives of a communicator: ") +
              hetcclGetLastError(nullptr));
  }
  int good = result == hetcclSuccess, all_good = 0;
  if (real().Allreduce(&good, &all_good, 1, MPI_INT, MPI_MIN, mpi_) != MPI_SUCCESS) all_good = 0;
  if (all_good) {
    comm_ = made;
    return;
  }
  if (made != nullptr) hetcclCommAbort(made);
  ours_ = false;
  why_not_ = "no communicator of ours could be made";
}

void Channel::destroy() {
  if (comm_ != nullptr) hetcclCommDestroy(comm_);
  comm_ = nullptr;
  ours_ = false;
  why_not_ = "the communicator was freed";
}

// MPI_Comm_free is collective. Without the barrier a rank that frees early would not wait for ever
// for what the others have yet to take from it.
int Channel::on_free(MPI_Comm comm, int, void* value, void*) {
  const Inside inside;
  auto* const channel = static_cast<Channel*>(value);
  end_all_calls(channel);
  hetcclResult_t state = hetcclSuccess;
  if (channel->comm_ != nullptr) hetcclCommGetAsyncError(channel->comm_, &state);
  if (channel->comm_ != nullptr && state == hetcclSuccess) real().Barrier(comm);
  channel->destroy();
  const std::lock_guard lock(channels_mutex);
  auto& all = channels();
  all.erase(std::remove(all.begin(), all.end(), channel), all.end());
  delete channel;
  return MPI_SUCCESS;
}

void Channel::end_all() {
  if (!is_running()) return;
  const Inside inside;
  end_all_calls(nullptr);
  real().Barrier(MPI_COMM_WORLD);
  phase.store(Phase::kEnded);
  const std::lock_guard lock(channels_mutex);
  for (Channel* const channel : channels()) channel->destroy();
}

int Channel::raise(hetcclResult_t result, const std::string& text) const {
  const Inside inside;
  const int code = error_code(result, text);
  PMPI_Comm_call_errhandler(mpi_, code);
  return code;
}

}  // namespace hetccl::mpi

#include "lib/net/ucx_fabric.h"

#include <dirent.h>

#include <set>

#include "lib/base/log.h"
#include "lib/net/interfaces.h"
#include "lib/net/ucx_lane.h"

namespace hetccl::net {
namespace {

Result<PutChoice> parse_put(const std::string& word) {
  if (word.empty() || word == "auto") return PutChoice::kAuto;
  if (word == "yes") return PutChoice::kYes;
  if (word == "no") return PutChoice::kNo;
  return invalid_argument("HETCCL_NET_PUT=" + word + ": allowed are auto, yes and no");
}

// "mlx5_0:1" for each port of each InfiniBand device: the choice of socket interfaces is none of
// theirs, but UCX has one list for both.
void add_infiniband(std::set<std::string>* devices) {
  const std::string root = "/sys/class/infiniband";
  DIR* directory = opendir(root.c_str());
  if (directory == nullptr) return;
  while (dirent* device = readdir(directory)) {
    if (device->d_name[0] == '.') continue;
    DIR* ports = opendir((root + "/" + device->d_name + "/ports").c_str());
    if (ports == nullptr) continue;
    while (dirent* port = readdir(ports)) {
      if (port->d_name[0] != '.') devices->insert(std::string(device->d_name) + ":" + port->d_name);
    }
    closedir(ports);
  }
  closedir(directory);
}

// UCX's device list for the interfaces that `spec` chooses; names only those that exist.
Result<std::string> devices_for(const std::string& spec) {
  if (spec.empty()) return std::string();
  std::vector<InterfaceAddress> found = list_interfaces();
  Result<std::vector<Address>> selected = select_addresses(spec, found);
  if (!selected.ok()) return selected.status();
  bool exclude = spec[0] == '^';
  std::set<std::string> devices;
  for (const InterfaceAddress& interface : found) {
    bool named = false;
    size_t start = exclude ? 1 : 0;
    while (start <= spec.size()) {
      size_t comma = std::min(spec.find(',', start), spec.size());
      std::string prefix = spec.substr(start, comma - start);
      named |= !prefix.empty() && interface.name.starts_with(prefix);
      start = comma + 1;
    }
    if (named != exclude) devices.insert(interface.name);
  }
  add_infiniband(&devices);
  std::string list;
  for (const std::string& device : devices) list += (list.empty() ? "" : ",") + device;
  return list;
}

}  // namespace

Result<Fabric*> Fabric::create(const FabricOptions& options) {
  // The process has one fabric, whoever asks first.
  static std::mutex mutex;
  static UcxFabric* fabric = nullptr;
  std::lock_guard lock(mutex);
  if (fabric != nullptr) {
    if (!fabric->made_with(options)) {
      log::info("the network was set up with other settings before; those stay in force");
    }
    return fabric;
  }
  Result<PutChoice> put = parse_put(options.put);
  if (!put.ok()) return put.status();
  Result<std::string> devices = devices_for(options.interfaces);
  if (!devices.ok()) return devices.status();
  Result<std::unique_ptr<UcxHub>> hub =
      UcxHub::create(WorkerOptions{*devices, options.segment_bytes, options.keep_ucx_signals});
  if (!hub.ok()) return hub.status();
  fabric = new UcxFabric(std::move(*hub), options, *put);
  return fabric;
}

bool UcxFabric::made_with(const FabricOptions& options) const {
  return options.interfaces == options_.interfaces &&
         options.segment_bytes == options_.segment_bytes && options.put == options_.put;
}

Result<std::unique_ptr<LaneSetup>> UcxFabric::open_lane(int ranks, int rank,
                                                        const LaneOptions& options) {
  return UcxLaneSetup::create(hub_.get(), ranks, rank, options, put_);
}

bool UcxFabric::reaches(hetcclMemoryKind_t kind) const {
  if (kind != hetcclMemoryCuda && kind != hetcclMemoryHip) return true;
  ucp_context_attr_t attributes{};
  attributes.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES;
  if (ucp_context_query(hub_->worker().context(), &attributes) != UCS_OK) return false;
  const ucs_memory_type_t wanted =
      kind == hetcclMemoryCuda ? UCS_MEMORY_TYPE_CUDA : UCS_MEMORY_TYPE_ROCM;
  return (attributes.memory_types & UCS_BIT(wanted)) != 0;
}

Result<void*> UcxFabric::allocate_shared(size_t bytes) {
  Result<std::byte*> memory = hub_->arena().allocate(bytes, true);
  if (!memory.ok()) return memory.status();
  return static_cast<void*>(*memory);
}

Status UcxFabric::free_shared(void* memory) { return hub_->arena().free(memory); }

std::string UcxFabric::describe() const {
  std::string text = std::string("ucx ") + ucp_get_version_string();
  text += ", interfaces " + (options_.interfaces.empty() ? "of ucx's choice" : options_.interfaces);
  text += ", tcp segments " + (options_.segment_bytes == 0
                                   ? "of ucx's choice"
                                   : std::to_string(options_.segment_bytes) + " bytes");
  return text + ", put " + (options_.put.empty() ? "auto" : options_.put);
}

}  // namespace hetccl::net

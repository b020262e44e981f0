#include "lib/introspect.h"

#include <nlohmann/json.hpp>
#include <string>

#include "lib/base/settings.h"
#include "lib/context.h"
#include "lib/handle.h"
#include "lib/last_error.h"

namespace hetccl {

using nlohmann::json;

namespace {

// From this rank to another one.
const char* path_name(bool has_device, const run::DevicePath& path) {
  if (!has_device) return "host";
  if (path.ipc_in || path.ipc_out) return "ipc";
  return path.direct ? "direct" : "staged";
}

}  // namespace

std::string Communicator::describe() const {
  json ranks_table = json::array(), links = json::array(), in_force;
  for (int r = 0; r < ranks(); ++r) {
    const net::Place& place = session_->place(members_[r]);
    ranks_table.push_back({{"rank", r},
                           {"host", place.host},
                           {"node", place.node},
                           {"pid", place.pid},
                           {"kind", device::name_of(static_cast<device::Kind>(devices_[r].kind))},
                           {"device", devices_[r].description}});
    if (r == rank_ || !lane_) continue;
    links.push_back({{"peer", r},
                     {"lane", lane_->describe(r)},
                     {"path", path_name(accelerator_ != nullptr, paths_[r].path)},
                     {"reason", paths_[r].reason}});
  }
  for (const SettingRow& row : setting_rows()) {
    in_force["HETCCL_" + std::string(row.name)] = value_text(settings_, row);
  }
  return json{{"name", name_},
              {"ranks", ranks_table},
              {"links", links},
              {"delegation",
               {{"to", delegation_->name() != nullptr ? delegation_->name() : ""},
                {"reason", delegation_->reason()}}},
              {"settings", in_force},
              {"device", device_->description()},
              {"chunk_bytes", chunk_bytes_},
              {"more_ranks_than_cores", crowded_}}
      .dump();
}

namespace {

std::string describe_process() {
  auto settings = load_settings();
  std::string fabric = settings.ok() ? "" : settings.status().message();
  if (settings.ok()) {
    auto made = Context::get().fabric(*settings);
    fabric = made.ok() ? (*made)->describe() : made.status().message();
  }
  std::string isas;
  for (const char* isa : device::host_isas()) isas += (isas.empty() ? "" : " ") + std::string(isa);
  return json{{"version", std::to_string(HETCCL_MAJOR) + "." + std::to_string(HETCCL_MINOR) + "." +
                              std::to_string(HETCCL_PATCH)},
              {"build", "gcc-compatible " __VERSION__},
              {"host instructions", isas},
              {"fabric", fabric}}
      .dump();
}

std::string describe_settings() {
  json rows = json::array();
  for (const SettingRow& row : setting_rows()) {
    rows.push_back({{"name", "HETCCL_" + std::string(row.name)},
                    {"type", name_of(row.type)},
                    {"default", row.default_text},
                    {"range", row.allowed},
                    {"help", row.help}});
  }
  return rows.dump();
}

}  // namespace
}  // namespace hetccl

extern "C" {

const char* hetcclInternalLastAlgorithm(hetcclComm_t comm) {
  return hetccl::keep_text([&] {
    return hetccl::check_handle(comm).ok() ? comm->communicator->last_algorithm() : std::string();
  });
}

const char* hetcclInternalSettings(void) { return hetccl::keep_text(hetccl::describe_settings); }

const char* hetcclInternalDescribe(hetcclComm_t comm) {
  return hetccl::keep_text([&] {
    if (comm == nullptr) return hetccl::describe_process();
    return hetccl::check_handle(comm).ok() ? comm->communicator->describe() : std::string();
  });
}

}  // extern "C"

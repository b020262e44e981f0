#include "lib/device_run.h"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "lib/base/log.h"
#include "lib/context.h"

namespace hetccl {
namespace {

// Whether the processor can read both ends of a range. Device memory that was freed looks like host
// memory to a vendor's query, and must not be touched. A kernel that does not say counts as yes.
bool is_readable(const void* pointer, size_t bytes) {
  auto* first = static_cast<char*>(const_cast<void*>(pointer));
  char got[2];
  const iovec to{got, 2};
  const iovec from[2] = {{first, 1}, {first + bytes - 1, 1}};
  const ssize_t read = process_vm_readv(getpid(), &to, 1, from, 2, 0);
  return read == 2 || (read < 0 && errno != EFAULT);
}

Status locate_one(const std::string& call, const char* name, const void* pointer, size_t bytes,
                  device::Accelerator** owner) {
  if (bytes == 0) return {};
  device::Memory memory;
  const auto fail = [&](const std::string& why) {
    return invalid_argument(call + ": " + name + " " + why);
  };
  auto found = device::owner_of(pointer, &memory);
  if (!found.ok()) return fail(found.status().message());
  *owner = *found;
  if (memory.place == device::Memory::Place::kDevice && memory.base == nullptr && memory.id == 0) {
    return fail("points into no live allocation of " + (*owner)->description() + "; was it freed?");
  }
  if (*owner == nullptr && memory.place == device::Memory::Place::kUnknown &&
      !is_readable(pointer, bytes)) {
    return fail("points to no memory that this process has; was it freed?");
  }
  if (*owner == nullptr || memory.bytes == 0) return {};
  const size_t offset = static_cast<size_t>(static_cast<const std::byte*>(pointer) -
                                            static_cast<const std::byte*>(memory.base));
  if (bytes <= memory.bytes - offset) return {};
  return fail("of " + std::to_string(bytes) + " bytes begins " + std::to_string(offset) +
              " bytes into device memory of " + std::to_string(memory.bytes) + " bytes on " +
              (*owner)->description());
}

}  // namespace

Result<Where> locate(const Call& call, const Extents& extents) {
  Where where;
  const std::string name(coll::name_of(call.collective));
  Status s = locate_one(name, "sendbuff", call.send, extents.send_bytes, &where.send);
  if (s.ok()) s = locate_one(name, "recvbuff", call.recv, extents.recv_bytes, &where.recv);
  if (!s.ok()) return s;
  return where;
}

Result<device::Accelerator*> locate(const std::string& call, const char* name, const void* pointer,
                                    size_t bytes) {
  device::Accelerator* owner = nullptr;
  if (Status s = locate_one(call, name, pointer, bytes, &owner); !s.ok()) return s;
  return owner;
}

Result<DeviceRun::Device*> DeviceRun::open(device::Accelerator* accelerator) {
  Device& device = devices_[accelerator];
  if (device.port == nullptr) {
    auto port = run::Port::open(accelerator, o_.chunk_bytes);
    if (!port.ok()) return port.status();
    device.memory = std::make_unique<run::PeerMemory>(accelerator);
    if (o_.lane != nullptr) {
      run::StagingPool* pool = &Context::get().staging_pool(o_.staging_bytes);
      if (Status s = pool->open(accelerator); !s.ok()) return s;
      device.lane = std::make_unique<run::StagingLane>(o_.lane, port->get(), device.memory.get(),
                                                       pool, paths_for(accelerator), o_.depth);
    }
    device.execution = std::make_unique<run::Execution>(device.lane.get(), port->get(),
                                                        static_cast<int>(o_.paths.size()),
                                                        static_cast<unsigned>(o_.depth));
    device.port = std::move(*port);
  }
  return &device;
}

// Paths were tried with this rank's own device; another vendor's cannot use them.
std::vector<run::DevicePath> DeviceRun::paths_for(device::Accelerator* accelerator) const {
  if (accelerator->kind() == named_kind_) return o_.paths;
  return std::vector<run::DevicePath>(o_.paths.size());
}

Result<net::Lane*> DeviceRun::open_host_lane(device::Accelerator* accelerator) {
  host_lane_ = o_.lane;
  if (accelerator == nullptr || o_.lane == nullptr) return host_lane_;
  named_kind_ = accelerator->kind();
  const bool named = std::any_of(o_.paths.begin(), o_.paths.end(),
                                 [](const run::DevicePath& path) { return path.ipc_in; });
  if (!named) return host_lane_;
  Result<Device*> device = open(accelerator);
  if (!device.ok()) return device.status();
  fetching_ = std::make_unique<run::FetchingLane>(
      o_.lane, (*device)->port.get(), (*device)->memory.get(), static_cast<int>(o_.paths.size()));
  return host_lane_ = fetching_.get();
}

Status DeviceRun::begin(const Where& where, const Call& call, const CachedProgram& program,
                        run::Buffers* buffers) {
  current_ = nullptr;
  send_.device = recv_.device = nullptr;
  copied_back_ = false;
  const Extents& e = program.extents;
  const bool one_device = (where.send == where.recv) ||
                          (e.recv_bytes == 0 && where.send != nullptr) ||
                          (e.send_bytes == 0 && where.recv != nullptr);
  for (auto& [accelerator, device] : devices_) {
    if (device.memory != nullptr) device.memory->begin_call();
  }
  const bool custom = program.program.shape().reduction.custom != nullptr;
  if (custom && !said_host_) {
    said_host_ = true;
    log::warn(
        "operators made at run time are run by the host: device memory is copied there and "
        "back for them");
  }
  // Only a device of the kind that peers name memory of can run a call that may bring such names.
  const bool can_read = fetching_ == nullptr || where.any()->kind() == named_kind_;
  if (custom || !one_device || !can_read || e.send_bytes + e.recv_bytes <= o_.host_below) {
    return begin_on_host(where, call, program, buffers);
  }
  Result<Device*> device = open(where.any());
  if (!device.ok()) return device.status();
  return begin_on_device(*device, call, program, buffers);
}

Status DeviceRun::begin_on_device(Device* device, const Call& call, const CachedProgram& program,
                                  run::Buffers* buffers) {
  current_ = device;
  buffers->input = static_cast<const std::byte*>(call.send);
  buffers->output = static_cast<std::byte*>(call.recv);
  if (program.program.work_bytes() != 0) {
    buffers->work = device->port->work(program.program.work_bytes());
  }
  if (program.program.temp_bytes() != 0) {
    buffers->temp = device->port->temp(program.program.temp_bytes());
  }
  return device->port->status();
}

Status DeviceRun::make_shadow(Shadow* shadow, device::Accelerator* accelerator,
                              const void* original, size_t bytes) {
  Result<Device*> device = open(accelerator);
  if (!device.ok()) return device.status();
  shadow->at = shadow->memory.reserve(bytes);
  if (shadow->at == nullptr) {
    return system_error("no host memory for a copy of " + std::to_string(bytes) +
                        " bytes of device memory");
  }
  shadow->device = *device;
  shadow->original = static_cast<const std::byte*>(original);
  return {};
}

Status DeviceRun::begin_on_host(const Where& where, const Call& call, const CachedProgram& program,
                                run::Buffers* buffers) {
  const Extents& e = program.extents;
  const auto* send = static_cast<const std::byte*>(call.send);
  auto* recv = static_cast<std::byte*>(call.recv);
  buffers->input = send;
  buffers->output = recv;
  const bool overlap = e.send_bytes != 0 && e.recv_bytes != 0 && send < recv + e.recv_bytes &&
                       recv < send + e.send_bytes;
  if (where.recv != nullptr) {
    const std::byte* first = overlap ? std::min<const std::byte*>(send, recv) : recv;
    const std::byte* last = recv + e.recv_bytes;
    if (overlap) last = std::max(last, send + e.send_bytes);
    Status s = make_shadow(&recv_, where.recv, first, static_cast<size_t>(last - first));
    if (!s.ok()) return s;
    buffers->output = recv_.at + (recv - first);
    if (overlap) buffers->input = recv_.at + (send - first);
    written_.clear();
    const size_t width = program.program.shape().element_bytes;
    const auto begin = static_cast<size_t>(recv - first);
    if (program.piece != 0) {
      written_.push_back({begin, e.recv_bytes});
    } else {
      for (const auto& p : program.program.written_output()) {
        written_.push_back({begin + p.offset * width, p.count * width});
      }
    }
  }
  if (where.send == nullptr) return {};
  Shadow& from = overlap ? recv_ : send_;
  if (!overlap) {
    Status s = make_shadow(&send_, where.send, send, e.send_bytes);
    if (!s.ok()) return s;
    buffers->input = send_.at;
  }
  run::Port& port = *from.device->port;
  port.copy_out(const_cast<std::byte*>(buffers->input), {{send, e.send_bytes}}, nullptr);
  return port.status();
}

Result<bool> DeviceRun::shadows_idle() {
  for (Shadow* shadow : {&send_, &recv_}) {
    if (shadow->device == nullptr) continue;
    run::Port& port = *shadow->device->port;
    const bool idle = port.idle();
    if (!port.status().ok()) return port.status();
    if (!idle) return false;
  }
  return true;
}

Result<bool> DeviceRun::prepared() { return current_ != nullptr ? true : shadows_idle(); }

run::Execution* DeviceRun::execution() {
  return current_ != nullptr ? current_->execution.get() : on_host_;
}

net::Lane* DeviceRun::lane() { return current_ != nullptr ? current_->lane.get() : host_lane_; }

Status DeviceRun::copy_back() {
  copied_back_ = true;
  if (recv_.device == nullptr) return {};
  run::Port& port = *recv_.device->port;
  for (const Range& range : written_) {
    port.copy_in(const_cast<std::byte*>(recv_.original) + range.offset, recv_.at + range.offset,
                 range.bytes, nullptr);
  }
  return port.status();
}

Result<bool> DeviceRun::finished() {
  if (current_ == nullptr) {
    if (!copied_back_) {
      if (Status s = copy_back(); !s.ok()) return s;
    }
    return shadows_idle();
  }
  if (current_->lane != nullptr && !current_->lane->idle()) return false;
  const bool idle = current_->port->idle();
  if (!current_->port->status().ok()) return current_->port->status();
  return idle;
}

void DeviceRun::abandon() {
  for (auto& [accelerator, device] : devices_) {
    if (device.execution != nullptr) device.execution->abandon();
    if (device.port != nullptr) device.port->synchronize();
  }
}

}  // namespace hetccl

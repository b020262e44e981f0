// The back end of one vendor: its devices, and the function by which the library finds them.
#include <array>
#include <cstring>

#include "lib/device/gpu/accelerator.h"
#include "lib/device/gpu/module.h"

namespace hetccl::device::gpu {
namespace {

// CUDA counts 1000 * major + 10 * minor; HIP 10'000'000 * major + 100'000 * minor + patch.
std::string version_text(int version) {
  const bool hip = version >= 1'000'000;
  const int major = hip ? version / 10'000'000 : version / 1000;
  const int minor = hip ? version / 100'000 % 100 : version % 1000 / 10;
  return std::to_string(major) + "." + std::to_string(minor);
}

class GpuBackend final : public Backend {
 public:
  explicit GpuBackend(int devices) : devices_(devices), accelerators_(devices) {}

  Kind kind() const override { return vendor::kKind; }
  std::string description() const override;
  int devices() const override { return devices_; }
  Result<Accelerator*> device(int ordinal) override;
  int current_device() override { return vendor::current_device(); }
  Memory query(const void* pointer) override { return vendor::query(pointer); }
  void set_max_blocks(int blocks) override { max_blocks_.store(blocks); }

 private:
  struct Place {
    std::atomic<GpuAccelerator*> device = nullptr;  // never freed
  };
  const int devices_;
  std::atomic<int> max_blocks_ = 16;
  Registrations registrations_;
  std::mutex opening_;
  std::vector<Place> accelerators_;
};

std::string GpuBackend::description() const {
  int runtime = 0, driver = 0;
  if (GPU(RuntimeGetVersion)(&runtime) != GPU(Success) ||
      GPU(DriverGetVersion)(&driver) != GPU(Success)) {
    (void)GPU(GetLastError)();
  }
  return std::string(vendor::kName) + ": runtime " + version_text(runtime) + ", driver " +
         version_text(driver) + ", " HETCCL_GPU_ARCHS;
}

Result<Accelerator*> GpuBackend::device(int ordinal) {
  if (ordinal < 0 || ordinal >= devices_) {
    return invalid_argument(std::string("there is no device ") + vendor::kName + ":" +
                            std::to_string(ordinal) + "; this process sees " +
                            std::to_string(devices_));
  }
  std::atomic<GpuAccelerator*>& place = accelerators_[ordinal].device;
  if (GpuAccelerator* a = place.load(std::memory_order_acquire))
    return static_cast<Accelerator*>(a);
  const std::lock_guard lock(opening_);
  if (GpuAccelerator* a = place.load(std::memory_order_acquire))
    return static_cast<Accelerator*>(a);
  auto opened = GpuAccelerator::open(ordinal, &registrations_, &max_blocks_);
  if (!opened.ok()) return opened.status();
  GpuAccelerator* made = opened->release();
  for (const Place& p : accelerators_) {
    GpuAccelerator* other = p.device.load(std::memory_order_acquire);
    if (other == nullptr) continue;
    made->enable_peer(*other);
    other->enable_peer(*made);
  }
  place.store(made, std::memory_order_release);
  return static_cast<Accelerator*>(made);
}

}  // namespace
}  // namespace hetccl::device::gpu

extern "C" __attribute__((visibility("default"))) hetccl::device::Backend* hetccl_device_backend(
    const char* build, std::string* why) {
  using namespace hetccl::device;
  if (std::strcmp(build, kBuild) != 0) {
    *why = std::string("it is of another build (") + kBuild + ", the library of " + build +
           "); install both from one build";
    return nullptr;
  }
  int devices = 0;
  if (!vendor::start(&devices, why)) return nullptr;
  static auto* const backend = new gpu::GpuBackend(devices);
  return backend;
}

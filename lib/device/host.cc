// The host device: picks the kernels of one instruction set and runs them on the calling thread.
// Stateless after construction; any number of threads may use one device at once.
#include <array>
#include <cassert>
#include <cstring>
#include <string>
#include <vector>

#include "lib/device/device.h"
#include "lib/device/floating_point.h"
#include "lib/device/kernels.h"

#ifdef HETCCL_WITH_X86_KERNELS
#include <cpuid.h>
#endif

namespace hetccl::device {
namespace {

using FindKernel = Kernel (*)(hetcclDataType_t, hetcclRedOp_t);

struct Isa {
  const char* name;
  const char* description;
  bool (*supported)();
  std::array<FindKernel, 4> groups;
};

#define HETCCL_KERNELS_OF(isa) \
  { isa::integer_kernel, isa::float_kernel, isa::narrow_float_kernel, isa::other_kernel }

#ifdef HETCCL_WITH_X86_KERNELS
// Not every compiler's __builtin_cpu_supports knows this name.
bool has_f16c() {
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
#endif

// Best first.
constexpr Isa kIsas[] = {
#ifdef HETCCL_WITH_X86_KERNELS
    {"avx512", "host avx512",
     [] {
       return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
              __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
     },
     HETCCL_KERNELS_OF(avx512)},
    {"avx2", "host avx2", [] { return __builtin_cpu_supports("avx2") && has_f16c(); },
     HETCCL_KERNELS_OF(avx2)},
#endif
    {"portable", "host portable", [] { return true; }, HETCCL_KERNELS_OF(portable)},
};

class HostDevice final : public Device {
 public:
  explicit HostDevice(const Isa& isa) : isa_(isa) {
    for (int t = 0; t < hetcclNumTypes; ++t) {
      for (int o = 0; o < hetcclNumOps; ++o) {
        for (FindKernel find : isa.groups) {
          const Kernel k = find(static_cast<DataType>(t), static_cast<RedOp>(o));
          if (k.run != nullptr) kernels_[t][o] = k;
        }
      }
    }
  }

  void copy(void* destination, const void* source, size_t bytes) override {
    if (destination != source && bytes != 0) std::memcpy(destination, source, bytes);
  }

  void combine(const Reduction& reduction, const Combine& what) override {
    if (what.count == 0) return;
    if (reduction.custom != nullptr) return reduction.custom->combine(this, reduction, what);
    assert(supports(reduction.type, reduction.op) && !what.sources.empty());
    const Kernel& kernel = kernels_[reduction.type][reduction.op];
    constexpr size_t kFew = 16;
    if (what.sources.size() <= kFew) {
      KernelSource sources[kFew];
      return run(kernel, reduction, what, sources);
    }
    std::vector<KernelSource> sources(what.sources.size());
    run(kernel, reduction, what, sources.data());
  }

  const char* description() const override { return isa_.description; }

 private:
  static void run(const Kernel& kernel, const Reduction& reduction, const Combine& what,
                  KernelSource* sources) {
    for (size_t i = 0; i < what.sources.size(); ++i) {
      sources[i] = {what.sources[i].data, what.sources[i].wide};
    }
    const DefaultFloatingPoint mode;
    kernel.run({what.destination, sources, what.sources.size(), what.count * kernel.units,
                reduction.ranks, what.wide, what.finalize});
  }

  const Isa& isa_;
  std::array<std::array<Kernel, hetcclNumOps>, hetcclNumTypes> kernels_ = {};
};

struct Hosts {
  std::vector<HostDevice> devices;
  std::vector<const char*> names;
};

// Built at the first use and never freed: threads may outlive static objects.
Hosts& hosts() {
  static Hosts& all = *[] {
    auto* made = new Hosts;
    Hosts& h = *made;
    for (const Isa& isa : kIsas) {
      if (!isa.supported()) continue;
      h.devices.emplace_back(isa);
      h.names.push_back(isa.name);
    }
    return made;
  }();
  return all;
}

}  // namespace

std::span<const char* const> host_isas() { return hosts().names; }

Result<Device*> host_device(std::string_view isa) {
  Hosts& all = hosts();
  std::string known;
  for (size_t i = 0; i < all.names.size(); ++i) {
    if (isa == "auto" || isa == all.names[i]) return static_cast<Device*>(&all.devices[i]);
    known += std::string(", ") + all.names[i];
  }
  return invalid_argument("instruction set '" + std::string(isa) +
                          "' is not one that this processor has; allowed: auto" + known);
}

}  // namespace hetccl::device

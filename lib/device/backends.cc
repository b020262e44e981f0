// Finds and loads the back ends of GPU vendors. Each is tried once: what was found, or why nothing
// was, holds for the life of the process.
//
// Thread rule: any thread. Loading takes a lock; what asks about loaded back ends takes none.
#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <optional>

#include "lib/device/accelerator.h"
#include "lib/device/gpu/module.h"
#include "lib/device/sim/sim.h"

namespace hetccl::device {
namespace {

struct Module {
  Kind kind;
  const char* file;
  const char* title;
  const char* compiler;
  const char* option;
  bool built;  // by the same configuration as this
};

constexpr Module kModules[] = {
    {hetcclMemoryCuda, "libhetccl_cuda.so", "CUDA", "nvcc", "-Dcuda=enabled",
#ifdef HETCCL_WITH_CUDA
     true},
#else
     false},
#endif
    {hetcclMemoryHip, "libhetccl_hip.so", "HIP", "hipcc", "-Dhip=enabled",
#ifdef HETCCL_WITH_HIP
     true},
#else
     false},
#endif
};

constexpr size_t kKinds = 5;

struct Registry {
  std::mutex mutex;
  std::array<std::optional<Result<Backend*>>, kKinds> tried;  // by kind; guarded by mutex
  // Those found, in the order of loading: entries below `count` never change.
  std::array<std::atomic<Backend*>, kKinds> loaded = {};
  std::atomic<size_t> count = 0;
  std::array<std::atomic<bool>, kKinds> known = {};  // tried
};

// Never destroyed: threads may outlive static objects.
Registry& registry() {
  static Registry& r = *new Registry;
  return r;
}

// The folder of the object that holds this code, with a slash at its end; empty if unknown.
std::string own_folder() {
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(&own_folder), &info) == 0 || info.dli_fname == nullptr) {
    return {};
  }
  const std::string path = info.dli_fname;
  return path.substr(0, path.rfind('/') + 1);
}

Status absent(const Module& m, const std::string& why) {
  return invalid_usage("no " + std::string(m.title) + " back end: " + why);
}

Result<Backend*> load(const Module& m) {
  const std::string folder = own_folder();
  const std::string beside = folder + m.file;
  // Beside the library first, then wherever the loader looks.
  const bool there = !folder.empty() && access(beside.c_str(), R_OK) == 0;
  void* object = dlopen(there ? beside.c_str() : m.file, RTLD_NOW | RTLD_LOCAL);
  if (object == nullptr) {
    const char* error = dlerror();
    const std::string text = error != nullptr ? error : m.file;
    // The loader's text begins with the file that it lacks.
    if (there || text.compare(0, std::strlen(m.file), m.file) != 0) {
      return absent(m, text + "; install the vendor's runtime that it was built with");
    }
    if (m.built)
      return absent(m, std::string(m.file) + " is not in " + folder + "; install it there");
    return absent(m, std::string("this build has none; configure with ") + m.option + " where " +
                         m.compiler + " is");
  }
  const auto entry = reinterpret_cast<Entry>(dlsym(object, kEntryName));
  if (entry == nullptr) {
    dlclose(object);
    return absent(m, std::string(m.file) + " lacks " + kEntryName + "; install hetccl's own");
  }
  std::string why;
  if (Backend* found = entry(kBuild, &why); found != nullptr) return found;
  // It stays loaded: runtimes of GPUs do not bear being unloaded.
  return absent(m, why);
}

Result<Backend*> find(Kind kind) {
  if (kind == hetcclMemorySimCuda || kind == hetcclMemorySimHip) return sim_backend(kind);
  for (const Module& m : kModules) {
    if (m.kind == kind) return load(m);
  }
  return invalid_argument("memory kind " + std::to_string(kind) +
                          " is no device's; allowed: 1 (cuda), 2 (hip), 3 (sim:cuda), 4 (sim:hip)");
}

bool is_loaded(const char* prefix) {
  struct Search {
    const char* prefix;
    bool found;
  } search = {prefix, false};
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        auto* s = static_cast<Search*>(data);
        const char* slash = std::strrchr(info->dlpi_name, '/');
        const char* name = slash != nullptr ? slash + 1 : info->dlpi_name;
        s->found = std::strncmp(name, s->prefix, std::strlen(s->prefix)) == 0;
        return s->found ? 1 : 0;
      },
      &search);
  return search.found;
}

}  // namespace

const char* name_of(Kind kind) {
  switch (kind) {
    case hetcclMemoryHost:
      return "host";
    case hetcclMemoryCuda:
      return "cuda";
    case hetcclMemoryHip:
      return "hip";
    case hetcclMemorySimCuda:
      return "sim:cuda";
    case hetcclMemorySimHip:
      return "sim:hip";
  }
  return "unknown";
}

Result<Backend*> backend(Kind kind) {
  const auto index = static_cast<size_t>(kind);
  if (index == 0 || index >= kKinds) return find(kind);
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  std::optional<Result<Backend*>>& slot = r.tried[index];
  if (!slot.has_value()) {
    Result<Backend*> found = find(kind);
    // A simulated one is absent only while its setting is wrong.
    const bool simulated = kind == hetcclMemorySimCuda || kind == hetcclMemorySimHip;
    if (!found.ok() && simulated) return found;
    slot = std::move(found);
    if (slot->ok()) {
      const size_t n = r.count.load(std::memory_order_relaxed);
      r.loaded[n].store(**slot, std::memory_order_relaxed);
      r.count.store(n + 1, std::memory_order_release);
    }
    r.known[index].store(true, std::memory_order_release);
  }
  return *slot;
}

void find_backends() {
  const auto known = [](Kind kind) {
    return registry().known[kind].load(std::memory_order_acquire);
  };
  // CUDA programs have the driver whichever runtime they use; HIP's runtime is its own.
  if (!known(hetcclMemoryCuda) && is_loaded("libcuda.so")) (void)!backend(hetcclMemoryCuda).ok();
  if (!known(hetcclMemoryHip) && is_loaded("libamdhip64.so")) (void)!backend(hetcclMemoryHip).ok();
}

bool any_loaded() { return registry().count.load(std::memory_order_acquire) != 0; }

std::vector<Backend*> loaded_backends() {
  Registry& r = registry();
  std::vector<Backend*> all(r.count.load(std::memory_order_acquire));
  for (size_t i = 0; i < all.size(); ++i) all[i] = r.loaded[i].load(std::memory_order_relaxed);
  return all;
}

Result<Accelerator*> owner_of(const void* pointer, Memory* memory) {
  *memory = {};
  Registry& r = registry();
  const size_t count = r.count.load(std::memory_order_acquire);
  for (size_t i = 0; i < count; ++i) {
    Backend* candidate = r.loaded[i].load(std::memory_order_relaxed);
    const Memory found = candidate->query(pointer);
    if (found.place == Memory::Place::kUnknown) continue;
    *memory = found;
    if (found.place == Memory::Place::kRegisteredHost) break;
    return candidate->device(found.ordinal);
  }
  return static_cast<Accelerator*>(nullptr);
}

}  // namespace hetccl::device

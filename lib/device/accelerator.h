// A GPU, or the simulated one: memory that the processor does not share, queues of work that run in
// the background, and what may be asked of both.
//
// A vendor's back end is a shared object of its own, loaded at run time; the simulated one is built
// in. Everything here is made at first use and lives until the process ends, except where a
// unique_ptr says otherwise.
//
// Thread rule: any thread, but a Queue and an Event serve one thread at a time. The calling
// thread's current device is the same after every call as before.
// Errors: hetcclUnhandledDeviceError with the vendor's own name and text of the error, unless
// said otherwise. Nothing here waits for the device except where said.
#pragma once

#include <hetccl/hetccl.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lib/base/status.h"
#include "lib/device/device.h"

namespace hetccl::device {

using Kind = hetcclMemoryKind_t;

// What a pointer is. Asked anew each time, so that a freed and reused address is never mistaken.
struct Memory {
  enum class Place {
    kUnknown,         // not this vendor's: plain host memory, or another's
    kRegisteredHost,  // host memory that the device reaches too
    kDevice,
    kManaged,  // one address for both, moved on demand
  };
  Place place = Place::kUnknown;
  int ordinal = -1;            // kDevice, kManaged: the device that holds it
  const void* base = nullptr;  // kDevice: the allocation, where the vendor tells
  size_t bytes = 0;
  uint64_t id = 0;  // kDevice: unique among all allocations of the process's life; 0: unknown
};

// A moment in a queue. Holds nothing until recorded.
class Event {
 public:
  virtual ~Event() = default;
};

// Keeps a queue of the user's waiting until it is opened, with no thread and no kernel that spins.
// One that is destroyed opens.
class Gate {
 public:
  virtual ~Gate() = default;
  virtual void open() = 0;  // once; any thread
};

// Work in the order given, in the background. Pointers are the device's own memory, memory of a
// peer device or an imported handle, or host memory from allocate_host() or register_host().
class Queue {
 public:
  virtual ~Queue() = default;
  // Any direction. Plain host memory is allowed, but the call may then wait for the queue.
  virtual Status copy(void* destination, const void* source, size_t bytes) = 0;
  // As Device::combine(). All pointers are the device's memory, a peer's, or registered host
  // memory.
  virtual Status combine(const Reduction& reduction, const Combine& what) = 0;
  virtual Status record(Event* event) = 0;
  // What is given later waits for what `event` holds now.
  virtual Status wait(const Event& event) = 0;
  // What is given later waits for the gate. hetcclInvalidUsage: this device cannot; the caller must
  // wait by itself.
  virtual Result<std::unique_ptr<Gate>> hold() = 0;
  // True once all that was given has run. An error of the work itself comes back here.
  virtual Result<bool> idle() = 0;
  virtual Status synchronize() = 0;  // waits
};

struct Abilities {
  bool ipc = false;     // export_memory() may work
  bool direct = false;  // the network may be given network_address()
  bool gate = false;    // Queue::hold() works
};

class Accelerator {
 public:
  virtual ~Accelerator() = default;
  virtual Kind kind() const = 0;
  virtual int ordinal() const = 0;
  virtual std::string description() const = 0;  // "cuda:0 NVIDIA H200 (sm_90)"
  virtual Abilities abilities() const = 0;
  // The device among all of this machine, in whatever process: "0000:3b:00.0". "": unknown.
  virtual std::string identity() const { return {}; }

  virtual Result<void*> allocate(size_t bytes) = 0;  // contents undefined; aligned to 256
  virtual Status free(void* memory) = 0;             // from allocate(); no work uses it any more
  virtual Result<void*> allocate_host(size_t bytes) = 0;  // pinned
  virtual Status free_host(void* memory) = 0;
  // Makes host memory reachable by copies and kernels of all devices of the vendor. Registering
  // again what is registered is no error.
  virtual Status register_host(void* memory, size_t bytes) = 0;
  virtual Status unregister_host(void* memory) = 0;

  virtual Result<std::unique_ptr<Queue>> make_queue() = 0;  // never ordered by others implicitly
  virtual Result<std::unique_ptr<Event>> make_event() = 0;
  // What `event` holds has run. An event that was never recorded has.
  virtual Result<bool> done(const Event& event) = 0;

  // A native stream of the user's, which stays the user's. hetcclInvalidArgument: it is none of
  // this device's. hetcclInvalidUsage: it is being captured into a graph.
  virtual Result<std::unique_ptr<Queue>> adopt(hetcclStream_t stream) = 0;
  // For tools: a native stream made here.
  virtual Result<hetcclStream_t> make_stream() = 0;
  virtual Status destroy_stream(hetcclStream_t stream) = 0;

  // A description of the allocation that holds `memory`, with the offset, for another process on
  // this node with a device of the same kind. hetcclInvalidUsage: this memory cannot be exported.
  virtual Result<std::string> export_memory(const void* memory) = 0;
  // Maps it for this device. Valid until close_memory().
  virtual Result<void*> import_memory(const std::string& handle) = 0;
  virtual Status close_memory(void* memory) = 0;

  // The address that the network is to be given for the device's `memory`.
  virtual void* network_address(void* memory) = 0;

  // Runs `what` with this device as the calling thread's current one, which is what other libraries
  // of the vendor's go by.
  virtual Status with_current(const std::function<Status()>& what) { return what(); }
};

// The devices of one vendor.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual Kind kind() const = 0;
  virtual std::string description() const = 0;  // "cuda: runtime 13.0, driver 13.1, sm_80 sm_90"
  virtual int devices() const = 0;
  virtual Result<Accelerator*> device(int ordinal) = 0;  // hetcclInvalidArgument: no such ordinal
  virtual int current_device() = 0;                      // the calling thread's; -1: none yet
  virtual Memory query(const void* pointer) = 0;         // about 1 us at most
  // How many blocks a kernel of combine() may use, of all queues from now on.
  virtual void set_max_blocks(int /*blocks*/) {}
};

// A vendor's name as tools spell it: "host", "cuda", "hip", "sim:cuda", "sim:hip".
const char* name_of(Kind kind);

// The back end of a kind, loaded now if need be. hetcclInvalidUsage: absent; the message says why:
// not built, no driver, no device. The simulated ones are always there. Not for hetcclMemoryHost.
Result<Backend*> backend(Kind kind);

// Loads the back ends of vendors whose runtimes are in this process already.
void find_backends();

// Whether any back end is loaded: without one all memory is the host's.
bool any_loaded();

// Those loaded so far, in the order of loading. Lock-free.
std::vector<Backend*> loaded_backends();

// Whose memory `pointer` is; null for host memory, registered or not. Costs one comparison a
// simulated vendor, and the vendor's own query for a loaded one.
Result<Accelerator*> owner_of(const void* pointer, Memory* memory);

}  // namespace hetccl::device

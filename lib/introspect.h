// What the tools may ask the library beyond the public API: which algorithm ran, which settings
// there are, what a communicator consists of. Exported for hetccl_perf and hetccl_info of the same
// build; not part of the public interface.
//
// Thread rule: any thread. A returned text is never NULL and stays valid until the calling thread
// next calls a function of this header. The cause of an error: hetcclGetLastError(NULL).
#pragma once

#include <hetccl/hetccl.h>

#ifdef __cplusplus
extern "C" {
#endif

// The algorithm of the last collective of `comm` that this rank began ("ring"); "" if none.
HETCCL_API const char* hetcclInternalLastAlgorithm(hetcclComm_t comm);

// JSON: [{"name": "HETCCL_ALGO", "type": "text", "default": "", "range": "...", "help": "..."},
// ...]
HETCCL_API const char* hetcclInternalSettings(void);

// JSON: {"ranks": [{"rank": 0, "host": "a", "node": "...", "pid": 1, "kind": "cuda",
//                   "device": "cuda:0 ..."}, ...],
//        "links": [{"peer": 1, "lane": "shared memory", "path": "ipc", "reason": "..."}, ...],
//        "delegation": {"to": "nccl", "reason": "nccl 2.28.9"},
//        "settings": {"HETCCL_TIMEOUT": "600", ...}}
// "path": how data of this rank's device travel to and from that peer: "ipc", "direct", "staged";
// "host" where this rank has none.
// "to": whose library runs the calls that it has, or "", and "reason" is then why none does.
// With NULL, what the process has instead: {"version": "0.1.0", "build": "...", "fabric": "..."}.
HETCCL_API const char* hetcclInternalDescribe(hetcclComm_t comm);

// JSON: [{"kind": "cuda", "back_end": "cuda: runtime ...", "devices": ["cuda:0 ...", ...]},
//        {"kind": "hip", "absent": "why"}, ...], simulated ones last.
HETCCL_API const char* hetcclInternalDevices(void);

// ---- What tools and tests do with devices of any vendor through the library's back ends.
// `device` is an ordinal; -1: the calling thread's current one.

HETCCL_API hetcclResult_t hetcclInternalMemAllocOn(hetcclMemoryKind_t kind, int device,
                                                   size_t bytes, void** ptr);
// Between memory of any kinds; waits until it is done.
HETCCL_API hetcclResult_t hetcclInternalCopy(void* to, const void* from, size_t bytes);
HETCCL_API hetcclResult_t hetcclInternalStreamCreate(hetcclMemoryKind_t kind, int device,
                                                     hetcclStream_t* stream);
HETCCL_API hetcclResult_t hetcclInternalStreamDestroy(hetcclMemoryKind_t kind, int device,
                                                      hetcclStream_t stream);
HETCCL_API hetcclResult_t hetcclInternalStreamSynchronize(hetcclMemoryKind_t kind, int device,
                                                          hetcclStream_t stream);
// Ordered in the native stream; host memory should be from hetcclInternalHostAlloc.
HETCCL_API hetcclResult_t hetcclInternalStreamCopy(hetcclMemoryKind_t kind, int device,
                                                   hetcclStream_t stream, void* to,
                                                   const void* from, size_t bytes);
// Pinned host memory of the device.
HETCCL_API hetcclResult_t hetcclInternalHostAlloc(hetcclMemoryKind_t kind, int device, size_t bytes,
                                                  void** ptr);
HETCCL_API hetcclResult_t hetcclInternalHostFree(hetcclMemoryKind_t kind, int device, void* ptr);

// ---- What a vendor's own runtime does to a simulated device.

// The calling thread's current device of this vendor.
HETCCL_API hetcclResult_t hetcclInternalSimSetDevice(hetcclMemoryKind_t kind, int device);
// Begins or ends the capture of a native stream into a graph.
HETCCL_API hetcclResult_t hetcclInternalSimCapture(hetcclStream_t stream, int capturing);

#ifdef __cplusplus
}
#endif

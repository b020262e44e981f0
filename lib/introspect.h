// What the tools may ask the library beyond the public API: which algorithm ran, which settings
// there are, what a communicator consists of. Exported for hetccl_perf and hetccl_info of the same
// build; not part of the public interface.
//
// Thread rule: any thread. A returned text is never NULL and stays valid until the calling thread
// next calls a function of this header.
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

// JSON: {"ranks": [{"rank": 0, "host": "a", "node": "...", "pid": 1}, ...],
//        "links": [{"peer": 1, "lane": "shared memory"}, ...],
//        "settings": {"HETCCL_TIMEOUT": "600", ...}}
// With NULL, what the process has instead: {"version": "0.1.0", "build": "...", "fabric": "..."}.
HETCCL_API const char* hetcclInternalDescribe(hetcclComm_t comm);

#ifdef __cplusplus
}
#endif

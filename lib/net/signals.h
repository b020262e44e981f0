// libucs takes over SIGSEGV and its kin when it is loaded. Runtimes that live on those signals
// must keep them, so what UCX took is given back.
#pragma once

namespace hetccl::net {

// Puts back the handlers that were there before libucs was loaded, for each signal whose handler
// now lies inside libucs. A handler that the host installed later stays. Any thread.
void release_ucx_signals();

}  // namespace hetccl::net

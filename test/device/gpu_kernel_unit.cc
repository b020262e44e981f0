// One of the GPUs' kernel sources, compiled for the shim of the host.
#include HETCCL_GPU_UNIT

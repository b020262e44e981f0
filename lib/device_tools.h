// Devices as the API's memory functions and the tools use them. Any thread.
#pragma once

#include <hetccl/hetccl.h>

#include <cstddef>

#include "lib/base/status.h"
#include "lib/device/accelerator.h"

namespace hetccl {

// `ordinal` -1: the calling thread's current one.
Result<device::Accelerator*> device_of(hetcclMemoryKind_t kind, int ordinal);
Status allocate_on_device(hetcclMemoryKind_t kind, int ordinal, size_t bytes, void** memory);
// Memory of any kinds; waits.
Status copy_anywhere(void* to, const void* from, size_t bytes);

}  // namespace hetccl

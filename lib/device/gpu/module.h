// The seam between the library and a vendor's back end, a shared object of its own that exports one
// function. Both sides pass C++ objects, so they must come from one build: the entry compares.
#pragma once

#include <hetccl/hetccl.h>

#include <string>

#include "lib/device/accelerator.h"

#define HETCCL_TEXT_(x) #x
#define HETCCL_TEXT(x) HETCCL_TEXT_(x)

namespace hetccl::device {

// HETCCL_INTERFACE comes from the build: a digest of the headers that both sides include.
inline constexpr char kBuild[] =
    "hetccl " HETCCL_TEXT(HETCCL_MAJOR) "." HETCCL_TEXT(HETCCL_MINOR) "." HETCCL_TEXT(
        HETCCL_PATCH) ", interface " HETCCL_INTERFACE ", compiler " __VERSION__;

inline constexpr char kEntryName[] = "hetccl_device_backend";
// The back end, which lives until the process ends; or null, and `why` has cause and remedy.
// Called once.
using Entry = Backend* (*)(const char* build, std::string* why);

}  // namespace hetccl::device

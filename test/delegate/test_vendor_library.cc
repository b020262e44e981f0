// Loading a vendor's library, and one rank's group of its own.
#include <gtest/gtest.h>

#include "lib/device/vendor_collectives.h"

namespace {
bool taken_for_the_library = false;
}

// What a program may have put before the vendor's functions.
extern "C" __attribute__((visibility("default"))) int ncclCommGetAsyncError(void*, int* code) {
  taken_for_the_library = true;
  *code = 0;
  return 0;
}

namespace hetccl::device {
namespace {

// Where the machine has the real library, its interface is the one that was written down here.
void load_real(Kind kind, const char* name) {
  const auto library = VendorLibrary::load(kind, "");
  if (!library.ok()) GTEST_SKIP() << library.status().message();
  EXPECT_EQ((*library)->description().rfind(std::string(name) + " 2.", 0), 0u)
      << (*library)->description();
  EXPECT_GE((*library)->version(), 21400);
  EXPECT_EQ(*VendorLibrary::load(kind, ""), *library) << "loaded twice";
}
TEST(VendorLibrary, RealNccl) { load_real(hetcclMemoryCuda, "nccl"); }
TEST(VendorLibrary, RealRccl) { load_real(hetcclMemoryHip, "rccl"); }

TEST(VendorLibrary, Missing) {
  const auto library = VendorLibrary::load(hetcclMemoryCuda, "/nowhere/libnccl.so.2");
  ASSERT_FALSE(library.ok());
  EXPECT_EQ(library.status().code(), hetcclInvalidUsage);
  EXPECT_NE(library.status().message().find("/nowhere/libnccl.so.2"), std::string::npos);
  EXPECT_NE(library.status().message().find("HETCCL_DELEGATE_LIBRARY"), std::string::npos);
}

TEST(VendorLibrary, HostMemoryHasNone) {
  EXPECT_FALSE(VendorLibrary::load(hetcclMemoryHost, HETCCL_STUB).ok());
}

// A program that puts functions of the same names before the library's, as tracers and
// replacements do, gets its own calls only, not the library's.
TEST(VendorLibrary, KeepsToItsOwnFunctions) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the address sanitizer allows no deep binding";
#endif
  const auto library = VendorLibrary::load(hetcclMemorySimCuda, HETCCL_STUB);
  ASSERT_TRUE(library.ok()) << library.status().message();
  const auto backend = device::backend(hetcclMemorySimCuda);
  ASSERT_TRUE(backend.ok()) << backend.status().message();
  const auto accelerator = (*backend)->device(0);
  ASSERT_TRUE(accelerator.ok());
  const auto id = (*library)->make_id();
  ASSERT_TRUE(id.ok());
  auto group = VendorGroup::join(*library, *accelerator, *id, 1, 0);
  ASSERT_TRUE(group.ok()) << group.status().message();
  for (;;) {
    const Result<bool> ready = (*group)->ready();
    ASSERT_TRUE(ready.ok()) << ready.status().message();
    if (*ready) break;
  }
  (*group)->leave(10);
  EXPECT_FALSE(taken_for_the_library);
}

TEST(VendorNumbers, FollowFromTypeAndOperator) {
  using N = VendorNumbers;
  for (int type = 0; type < hetcclNumTypes; ++type) {
    for (int op = 0; op < hetcclNumOps; ++op) {
      const bool integer = type <= hetcclUint64;
      const bool real = !integer && type <= hetcclBfloat16;
      const bool exact = op == hetcclSum || op == hetcclProd || op == hetcclMin || op == hetcclMax;
      const N want = integer && exact                     ? N::kSame
                     : real && (exact || op == hetcclAvg) ? N::kOther
                                                          : N::kNone;
      EXPECT_EQ(vendor_numbers(static_cast<hetcclDataType_t>(type), static_cast<hetcclRedOp_t>(op)),
                want)
          << "type " << type << " op " << op;
    }
  }
  EXPECT_EQ(vendor_numbers(hetcclInt32, hetcclRedOpMaxValue), N::kNone);
}

}  // namespace
}  // namespace hetccl::device

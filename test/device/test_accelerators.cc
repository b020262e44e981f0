// The contract of accelerators, for each vendor that this machine has and for both simulated ones.
#include "test/device/accelerator_contract.h"
#include "test/device/other_process.h"

namespace hetccl::device {

INSTANTIATE_TEST_SUITE_P(Kinds, AcceleratorContract,
                         testing::Values(hetcclMemorySimCuda, hetcclMemorySimHip, hetcclMemoryCuda,
                                         hetcclMemoryHip),
                         test_name);

}  // namespace hetccl::device

int main(int argc, char** argv) {
  if (hetccl::device::was_other_process(argc, argv)) return 0;
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

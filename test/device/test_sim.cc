// The simulated device: its settings, its memory, its streams, and what can be broken.
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "test/device/other_process.h"
#include "test/device/sim_test.h"

namespace hetccl::device {
namespace {

using Ability = SimOptions::Ability;

TEST(SimOptions, AreParsed) {
  const auto o = parse_sim_options(
      "devices=3,h2d=1.5G,d2h=100M,d2d=0,compute=8,latency=10us,memory=2G,ipc=off,direct=broken,"
      "gate=off,fail_copy=100,fail_combine=7");
  ASSERT_OK(o);
  EXPECT_EQ(o->devices, 3);
  EXPECT_EQ(o->rates[SimOptions::kHostToDevice], 1.5 * (1 << 30));
  EXPECT_EQ(o->rates[SimOptions::kDeviceToHost], 100.0 * (1 << 20));
  EXPECT_EQ(o->rates[SimOptions::kDeviceToDevice], 0);
  EXPECT_EQ(o->rates[SimOptions::kCompute], 8);
  EXPECT_EQ(o->latency, std::chrono::microseconds(10));
  EXPECT_EQ(o->memory, size_t{2} << 30);
  EXPECT_EQ(o->ipc, Ability::kOff);
  EXPECT_EQ(o->direct, Ability::kBroken);
  EXPECT_FALSE(o->gate);
  EXPECT_EQ(o->fail_copy, 100u);
  EXPECT_EQ(o->fail_combine, 7u);
  EXPECT_EQ(parse_sim_options("latency=1.5ms")->latency, std::chrono::microseconds(1500));
  EXPECT_EQ(parse_sim_options("latency=0")->latency.count(), 0);
  const auto none = parse_sim_options("");
  ASSERT_OK(none);
  EXPECT_EQ(none->devices, 2);
}

TEST(SimOptions, ABadOneIsNamed) {
  for (const char* bad :
       {"devices=0",      "devices=9", "devices=1.5", "devices",       "h2d=fast",    "h2d=-1",
        "d2h=",           "h2d=1T",    "latency=5",   "latency=us",    "latency=11s", "memory=1",
        "memory=1T",      "ipc=maybe", "gate=broken", "fail_copy=0.5", "speed=1G",    "=",
        "h2d=1G,,d2h=1G", "h2d=inf",   "h2d=nan",     "h2d=0x10"}) {
    const auto o = parse_sim_options(bad);
    ASSERT_FALSE(o.ok()) << bad;
    EXPECT_EQ(o.status().code(), hetcclInvalidArgument);
    EXPECT_TRUE(mentions(o.status(), "HETCCL_SIM=\"" + std::string(bad) + "\"")) << bad;
    EXPECT_TRUE(mentions(o.status(), "allowed")) << bad;
  }
}

TEST(SimOptions, ComeFromTheEnvironment) {
  OtherProcess usual_process(hetcclMemorySimHip);
  EXPECT_EQ(usual_process.ask("devices"), "2");
  OtherProcess process(hetcclMemorySimHip, "devices=5");
  EXPECT_EQ(process.ask("devices"), "5");
  OtherProcess wrong(hetcclMemorySimHip, "devices=five");
  EXPECT_EQ(wrong.ask("devices"),
            "error: HETCCL_SIM=\"devices=five\": \"devices=five\" is not allowed; allowed: "
            "devices=1 to 8");
}

TEST_F(SimTest, NumberAndMemoryOfDevicesStay) {
  SimOptions o = usual();
  o.devices = 1;
  EXPECT_EQ(configure_sim(o).code(), hetcclInvalidUsage);
  o = usual();
  o.memory *= 2;
  EXPECT_EQ(configure_sim(o).code(), hetcclInvalidUsage);
  EXPECT_EQ(backend_->devices(), kDevices);
}

TEST_F(SimTest, SaysThatItIsSimulated) {
  EXPECT_EQ(device_->description(), "sim:cuda:0 simulated");
  EXPECT_TRUE(backend_->description().find("simulated") != std::string::npos);
  const auto hip = backend(hetcclMemorySimHip);
  ASSERT_OK(hip);
  EXPECT_EQ((*(*hip)->device(1))->description(), "sim:hip:1 simulated");
  EXPECT_FALSE(sim_backend(hetcclMemoryCuda).ok());
}

using SimDeathTest = SimTest;

// Sanitizers turn the signal into an exit.
bool faulted(int status) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
#else
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
#endif
}

TEST_F(SimDeathTest, TheProcessorCannotTouchIt) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  volatile auto* a = reinterpret_cast<volatile char*>(allocate(4096));
  EXPECT_EXIT(a[0] = 1, faulted, "");
  EXPECT_EXIT((void)a[4095], faulted, "");
  EXPECT_EXIT((void)a[1 << 20], faulted, "") << "never allocated";
}

TEST_F(SimTest, TheNetworksAddressIsTheSameMemory) {
  std::byte* a = allocate(10'000);
  const Bytes data = pattern(5000, 1);
  upload(a + 100, data);
  auto* seen = static_cast<uint8_t*>(device_->network_address(a + 100));
  EXPECT_TRUE(std::equal(data.begin(), data.end(), seen));
  seen[7] ^= 1;
  EXPECT_EQ(download(a + 107, 1)[0], data[7] ^ 1);
  Bytes plain(10);
  EXPECT_EQ(device_->network_address(plain.data()), plain.data());
}

TEST_F(SimTest, BrokenDirectAccessReachesOtherMemory) {
  std::byte* a = allocate(5000);
  const Bytes data = pattern(5000, 2);
  upload(a, data);
  SimOptions o = usual();
  o.direct = Ability::kBroken;
  ASSERT_OK(configure_sim(o));
  EXPECT_TRUE(device_->abilities().direct);
  void* wrong = device_->network_address(a);
  EXPECT_NE(std::memcmp(wrong, data.data(), data.size()), 0);
  std::memset(wrong, 1, 5000);
  EXPECT_EQ(download(a, 5000), data);
  o.direct = Ability::kOff;
  ASSERT_OK(configure_sim(o));
  EXPECT_FALSE(device_->abilities().direct);
}

TEST_F(SimTest, IpcCanBeOffOrBroken) {
  std::byte* a = allocate(5000);
  upload(a, Bytes(5000, 9));
  const auto handle = device_->export_memory(a);
  ASSERT_OK(handle);
  OtherProcess broken(hetcclMemorySimCuda, "ipc=broken");
  ASSERT_EQ(broken.ask("import " + to_hex(*handle)), "ok");
  EXPECT_EQ(broken.ask("read 5000"), "same 0");
  EXPECT_EQ(broken.ask("write 5000 5"), "ok");
  EXPECT_EQ(download(a, 5000), Bytes(5000, 9));
  EXPECT_EQ(broken.ask("close"), "ok");
  SimOptions o = usual();
  o.ipc = Ability::kOff;
  ASSERT_OK(configure_sim(o));
  EXPECT_FALSE(device_->abilities().ipc);
  EXPECT_EQ(device_->export_memory(a).status().code(), hetcclInvalidUsage);
}

TEST_F(SimTest, AnImportEndsWithItsAllocation) {
  OtherProcess other(hetcclMemorySimCuda);
  const std::string handle = from_hex(other.ask("export 40000 7"));
  const auto memory = device_->import_memory(handle);
  ASSERT_OK(memory);
  EXPECT_EQ(download(*memory, 40'000), Bytes(40'000, 7));
  EXPECT_EQ(other.ask("free"), "ok");
  Bytes seen(100);
  const Status s = queue_->copy(seen.data(), *memory, 100);
  EXPECT_TRUE(mentions(s, "freed by the process that exported it")) << s.message();
  EXPECT_TRUE(mentions(device_->import_memory(handle).status(), "freed after its export"));
  ASSERT_OK(device_->close_memory(*memory));
  EXPECT_EQ(backend_->query(*memory).base, nullptr);
  other.kill();
  EXPECT_TRUE(mentions(device_->import_memory(handle).status(), "is gone"));
}

TEST_F(SimTest, MemoryOfADeadProcessStaysReadable) {
  OtherProcess other(hetcclMemorySimCuda);
  const auto memory = device_->import_memory(from_hex(other.ask("export 40000 7")));
  ASSERT_OK(memory);
  other.kill();
  EXPECT_EQ(download(*memory, 40'000), Bytes(40'000, 7));
  ASSERT_OK(device_->close_memory(*memory));
}

TEST_F(SimTest, HandlesAreForOneVendorAndCheckedWhole) {
  OtherProcess other(hetcclMemorySimHip);
  const std::string handle = from_hex(other.ask("export 40000 7"));
  EXPECT_EQ(device_->import_memory(handle).status().code(), hetcclInvalidArgument);
  Accelerator* hip = *(*backend(hetcclMemorySimHip))->device(0);
  for (size_t k = 0; k < handle.size(); ++k) {
    const auto cut = hip->import_memory(handle.substr(0, k));
    EXPECT_FALSE(cut.ok()) << "the first " << k << " characters";
    std::string other_digit = handle;
    other_digit[k] = handle[k] == '9' ? '8' : '9';
    const auto changed = hip->import_memory(other_digit);
    if (changed.ok()) {
      EXPECT_OK(hip->close_memory(*changed));
    }
  }
}

TEST_F(SimTest, ImportedMemoryIsNotExported) {
  OtherProcess other(hetcclMemorySimCuda);
  const auto memory = device_->import_memory(from_hex(other.ask("export 100 7")));
  ASSERT_OK(memory);
  EXPECT_EQ(device_->export_memory(*memory).status().code(), hetcclInvalidUsage);
  EXPECT_FALSE(device_->free(*memory).ok());
  ASSERT_OK(device_->close_memory(*memory));
  EXPECT_EQ(device(1)->export_memory(allocate(100)).status().code(), hetcclInvalidUsage);
}

TEST_F(SimTest, PeersReachEachOther) {
  Accelerator* peer = device(1);
  const auto memory = peer->allocate(5000);
  ASSERT_OK(memory);
  EXPECT_EQ(backend_->query(*memory).ordinal, 1);
  std::byte* a = allocate(5000);
  const Bytes data = pattern(5000, 3);
  upload(a, data);
  ASSERT_OK(queue_->copy(*memory, a, 5000));
  const Source sources[] = {{a, false}, {*memory, false}};
  ASSERT_OK(queue_->combine({hetcclUint8, hetcclBXor, 2}, {a, false, true, sources, 5000}));
  ASSERT_OK(queue_->synchronize());
  EXPECT_EQ(download(a, 5000), Bytes(5000, 0));
  EXPECT_EQ(download(*memory, 5000), data);
  EXPECT_FALSE(device_->free(*memory).ok()) << "another device's";
  ASSERT_OK(peer->free(*memory));
  EXPECT_FALSE(peer->free(*memory).ok()) << "twice";
}

TEST_F(SimTest, MemoryOfTheOtherVendorIsRefused) {
  Accelerator* hip = *(*backend(hetcclMemorySimHip))->device(0);
  const auto memory = hip->allocate(100);
  ASSERT_OK(memory);
  std::byte* a = allocate(100);
  EXPECT_EQ(queue_->copy(a, *memory, 100).code(), hetcclInvalidArgument);
  EXPECT_EQ(queue_->copy(*memory, a, 100).code(), hetcclInvalidArgument);
  EXPECT_EQ(queue_->copy(a, nullptr, 100).code(), hetcclInvalidArgument);
  EXPECT_EQ(backend_->query(*memory).place, Memory::Place::kUnknown);
  EXPECT_OK(queue_->synchronize());
  ASSERT_OK(hip->free(*memory));
}

TEST_F(SimTest, MemoryIsLimitedAndComesBack) {
  for (int round = 0; round < 3; ++round) {
    const auto most = device_->allocate(kMemory);
    ASSERT_OK(most);
    const Status s = device_->allocate(1).status();
    EXPECT_TRUE(mentions(s, "out of memory")) << s.message();
    ASSERT_OK(device_->free(*most));
  }
  EXPECT_FALSE(device_->allocate(kMemory + 1).ok());
  EXPECT_FALSE(device_->allocate(SIZE_MAX).ok());
}

TEST_F(SimTest, FreedContentsAreGone) {
  for (size_t bytes : {size_t{100}, size_t{100'000}}) {
    const auto a = device_->allocate(bytes);
    ASSERT_OK(a);
    const Bytes data = pattern(bytes, 5);
    upload(*a, data);
    ASSERT_OK(device_->free(*a));
    const auto b = device_->allocate(bytes);
    ASSERT_OK(b);
    ASSERT_EQ(*a, *b) << "the address comes back";
    const Bytes seen = download(*b, bytes);
    EXPECT_FALSE(std::equal(seen.begin() + bytes / 2, seen.end(), data.begin() + bytes / 2));
    ASSERT_OK(device_->free(*b));
  }
}

TEST_F(SimTest, RegistrationsNestAndDoNotCross) {
  Bytes host(10'000);
  ASSERT_OK(device_->register_host(host.data(), 5000));
  ASSERT_OK(device_->register_host(host.data() + 1000, 1000));
  EXPECT_FALSE(device_->register_host(host.data() + 4000, 2000).ok());
  EXPECT_FALSE(device_->register_host(host.data() + 4000, 0).ok());
  EXPECT_FALSE(device_->register_host(allocate(100), 100).ok());
  ASSERT_OK(device_->unregister_host(host.data()));
  EXPECT_EQ(backend_->query(host.data()).place, Memory::Place::kRegisteredHost);
  ASSERT_OK(device_->unregister_host(host.data() + 1000));
  EXPECT_EQ(backend_->query(host.data()).place, Memory::Place::kUnknown);
  EXPECT_FALSE(device_->free_host(host.data()).ok());
}

TEST_F(SimTest, StreamsOfOthersAreRefused) {
  const auto mine = device_->make_stream(), peers = device(1)->make_stream();
  ASSERT_OK(mine);
  ASSERT_OK(peers);
  Accelerator* hip = *(*backend(hetcclMemorySimHip))->device(0);
  const Status of_peer = device_->adopt(*peers).status();
  EXPECT_EQ(of_peer.code(), hetcclInvalidArgument);
  EXPECT_TRUE(mentions(of_peer, "sim:cuda:1")) << of_peer.message();
  EXPECT_EQ(hip->adopt(*mine).status().code(), hetcclInvalidArgument);
  int nothing = 0;
  EXPECT_EQ(device_->adopt(&nothing).status().code(), hetcclInvalidArgument);
  EXPECT_EQ(device(1)->destroy_stream(*mine).code(), hetcclInvalidArgument);

  ASSERT_OK(set_capturing(*mine, true));
  EXPECT_EQ(device_->adopt(*mine).status().code(), hetcclInvalidUsage);
  ASSERT_OK(set_capturing(*mine, false));
  EXPECT_OK(device_->adopt(*mine));
  EXPECT_EQ(set_capturing(&nothing, true).code(), hetcclInvalidArgument);

  ASSERT_OK(device_->destroy_stream(*mine));
  EXPECT_EQ(device_->adopt(*mine).status().code(), hetcclInvalidArgument);
  EXPECT_EQ(device_->destroy_stream(*mine).code(), hetcclInvalidArgument);
  ASSERT_OK(device(1)->destroy_stream(*peers));
}

TEST_F(SimTest, AThreadHasACurrentDevice) {
  ASSERT_OK(set_current_device(hetcclMemorySimCuda, 2));
  EXPECT_EQ(backend_->current_device(), 2);
  int other = -2;
  std::thread([&] { other = backend_->current_device(); }).join();
  EXPECT_EQ(other, 0);
  ASSERT_OK(set_current_device(hetcclMemorySimCuda, 0));
  EXPECT_EQ(set_current_device(hetcclMemorySimCuda, kDevices).code(), hetcclInvalidArgument);
  OtherProcess fresh(hetcclMemorySimCuda);
  EXPECT_EQ(fresh.ask("current"), "-1") << "nothing has used the device yet";
  (void)fresh.ask("export 100 1");
  EXPECT_EQ(fresh.ask("current"), "0");
}

}  // namespace
}  // namespace hetccl::device

int main(int argc, char** argv) {
  if (hetccl::device::was_other_process(argc, argv)) return 0;
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

// One collective of N ranks in one process over the simulated network, with its data and what must
// come of it; each rank on host memory or on the memory of a device.
#pragma once

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <random>

#include "lib/call.h"
#include "lib/coll/registry.h"
#include "lib/net/sim_network.h"
#include "lib/run/execution.h"
#include "lib/run/fetching_lane.h"
#include "lib/run/staging_lane.h"

namespace hetccl {

using coll::Collective;
using Random = std::mt19937_64;

inline int32_t value(int rank, size_t index) {
  return static_cast<int32_t>((index * 31 + static_cast<size_t>(rank) * 7) % 23);
}

// One collective of all ranks, with its data and what must come of it.
class Job {
 public:
  struct Options {
    const coll::Algorithm* algorithm;
    int ranks;
    int root;
    size_t count;
    DataType type;  // int32, or float16, whose partial sums travel in float32
    std::vector<bool> in_place;
    net::SimOptions network;
    // Of each rank; none, or null: host memory.
    std::vector<device::Accelerator*> devices = {};
    device::Accelerator* reader = nullptr;  // what ranks of host memory read named memory with
    run::StagingPool* pool = nullptr;       // with devices
    std::vector<std::vector<run::DevicePath>> paths = {};  // by rank and peer
  };

  explicit Job(const Options& options) : o_(options) {
    lanes_ = net::open_sim_lanes(o_.ranks, o_.network);
    for (int r = 0; r < o_.ranks; ++r) add_rank(r);
  }

  // Polls ranks in random order until all are done, or all that are not dead know of the loss.
  // False: no end within the bound.
  bool run(Random& random, bool loss_expected) {
    std::vector<int> state(static_cast<size_t>(o_.ranks), 0);  // 1: done, 2: error
    // Devices work in the background and take what time they take.
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    for (int round = 0; round < 2000000; ++round) {
      if (!o_.devices.empty() && round % 1000 == 0) {
        sched_yield();
        round = std::chrono::steady_clock::now() < end ? 0 : 2000000;
      }
      const auto r = static_cast<size_t>(random() % static_cast<size_t>(o_.ranks));
      if (state[r] == 0) {
        switch (ranks_[r].done ? run::Execution::Outcome::kDone : ranks_[r].execution->poll()) {
          case run::Execution::Outcome::kDone:
            ranks_[r].done = true;
            state[r] = at_rest(ranks_[r]) ? 1 : 0;
            break;
          case run::Execution::Outcome::kMismatch:
            ADD_FAILURE() << "rank " << r << " saw a mismatch: rank "
                          << ranks_[r].execution->mismatch().peer << " sent "
                          << ranks_[r].execution->mismatch().received_bytes << " bytes for "
                          << ranks_[r].execution->mismatch().expected_bytes;
            return false;
          default:
            break;
        }
      }
      if (!ranks_[r].lane->progress().ok()) {
        EXPECT_TRUE(loss_expected);
        if (state[r] == 0) state[r] = 2;
      }
      if (std::find(state.begin(), state.end(), 0) == state.end()) return true;
    }
    return false;
  }

  ~Job() {
    for (Rank& rank : ranks_) {
      rank.execution.reset();
      rank.staging.reset();
      rank.fetching.reset();
      for (std::byte* memory : {rank.device_send, rank.device_recv}) {
        if (memory == nullptr) continue;
        EXPECT_TRUE(rank.device->free(memory).ok());
      }
    }
  }

  void check() {
    for (Rank& rank : ranks_) {
      if (rank.staging == nullptr) continue;
      copy(rank.send.data(), rank.device_send, rank.send.size(), rank.device);
      if (rank.device_recv != nullptr) {
        copy(rank.recv.data(), rank.device_recv, rank.recv.size(), rank.device);
      }
    }
    for (int r = 0; r < o_.ranks; ++r) check_rank(r);
  }

 private:
  struct Rank {
    device::Accelerator* device = nullptr;
    std::unique_ptr<run::Port> port;
    std::unique_ptr<run::PeerMemory> memory;
    std::byte *device_send = nullptr, *device_recv = nullptr;
    net::Lane* lane = nullptr;
    std::unique_ptr<run::StagingLane> staging;
    std::unique_ptr<run::FetchingLane> fetching;
    bool done = false;
    std::vector<std::byte> send, recv, work, temp;
    std::unique_ptr<run::Program> program;
    std::unique_ptr<run::Execution> execution;
    std::byte *input, *output;
  };

  size_t n() const { return static_cast<size_t>(o_.ranks); }
  size_t width() const { return size_of(o_.type); }
  size_t send_count(int r) const {
    switch (o_.algorithm->collective) {
      case Collective::kReduceScatter:
      case Collective::kAllToAll:
        return o_.count * n();
      case Collective::kBroadcast:
        return r == o_.root ? o_.count : 0;
      case Collective::kScatter:
        return r == o_.root ? o_.count * n() : 0;
      case Collective::kBarrier:
        return 0;
      default:
        return o_.count;
    }
  }
  size_t recv_count(int r) const {
    switch (o_.algorithm->collective) {
      case Collective::kAllGather:
      case Collective::kAllToAll:
        return o_.count * n();
      case Collective::kReduce:
        return r == o_.root ? o_.count : 0;
      case Collective::kGather:
        return r == o_.root ? o_.count * n() : 0;
      case Collective::kExscan:
        return r > 0 ? o_.count : 0;
      case Collective::kBarrier:
        return 0;
      default:
        return o_.count;
    }
  }

  void put(std::byte* place, size_t index, int32_t v) const {
    if (o_.type == hetcclInt32) {
      std::memcpy(place + index * 4, &v, 4);
    } else {  // small whole numbers as float16: exact
      uint16_t bits = 0;
      if (v != 0) {
        const int e = 31 - __builtin_clz(static_cast<unsigned>(v));
        bits = static_cast<uint16_t>((e + 15) << 10 | ((v << (10 - e)) & 0x3ff));
      }
      std::memcpy(place + index * 2, &bits, 2);
    }
  }
  bool holds(const std::byte* place, size_t index, int32_t v) const {
    std::byte want[4];
    put(want, 0, v);
    return std::memcmp(place + index * width(), want, width()) == 0;
  }

  void add_rank(int r) {
    Call call{o_.algorithm->collective};
    call.count = o_.algorithm->collective == Collective::kBarrier ? 0 : o_.count;
    call.type = o_.type;
    call.op = hetcclSum;
    call.root = o_.root;
    run::Shape shape;
    shape.reduction = {o_.type, hetcclSum, o_.ranks};
    shape.reduces = call.reduces();
    shape.element_bytes = width();
    shape.accumulator_bytes = call.reduces() ? accumulator_size(o_.type, hetcclSum) : width();
    shape.max_message = o_.network.chunk_bytes;
    shape.unbuffered = o_.algorithm->unbuffered;
    Rank rank;
    rank.program =
        std::make_unique<run::Program>(coll::make_plan(*o_.algorithm, o_.ranks, r, o_.root),
                                       layout_of(call, *o_.algorithm, o_.ranks, r), shape);
    const size_t sends = send_count(r), receives = recv_count(r);
    rank.send.resize(std::max(sends, receives) * width() + 1, std::byte{0xEE});
    rank.recv.resize(receives * width() + 1, std::byte{0xEE});
    rank.input = rank.send.data();
    rank.output = rank.recv.data();
    if (o_.in_place[static_cast<size_t>(r)]) {
      rank.output = rank.send.data();
      const size_t own = static_cast<size_t>(r) * o_.count * width();
      const bool root = r == o_.root;
      if (call.collective == Collective::kAllGather ||
          (call.collective == Collective::kGather && root)) {
        rank.input = rank.output + own;
      }
      if (call.collective == Collective::kReduceScatter ||
          (call.collective == Collective::kScatter && root)) {
        rank.output = rank.input + own;
      }
    }
    for (size_t i = 0; i < sends; ++i) put(rank.input, i, value(r, i));
    ranks_.push_back(std::move(rank));
    start(r, &ranks_.back());
  }

  void start(int r, Rank* rank) {
    rank->lane = lanes_[static_cast<size_t>(r)].get();
    if (!o_.devices.empty()) open_device(r, rank);
    if (rank->staging) return start_on_device(rank);
    rank->work.resize(rank->program->work_bytes());
    rank->temp.resize(rank->program->temp_bytes());
    rank->execution = std::make_unique<run::Execution>(rank->lane, *device::host_device("auto"),
                                                       o_.ranks, o_.network.depth);
    rank->execution->start(
        *rank->program, {rank->input, rank->output, rank->work.data(), rank->temp.data()}, 12345);
  }

  // Ranks of host memory have a device, too, where others may name memory.
  void open_device(int r, Rank* rank) {
    const auto& paths = o_.paths[static_cast<size_t>(r)];
    const bool named =
        std::any_of(paths.begin(), paths.end(), [](const run::DevicePath& p) { return p.ipc_in; });
    rank->device = o_.devices[static_cast<size_t>(r)];
    device::Accelerator* const reader = rank->device != nullptr ? rank->device : o_.reader;
    if (rank->device == nullptr && !named) return;
    rank->port = std::move(*run::Port::open(reader, o_.network.chunk_bytes));
    rank->memory = std::make_unique<run::PeerMemory>(reader);
    if (rank->device == nullptr) {
      rank->fetching = std::make_unique<run::FetchingLane>(rank->lane, rank->port.get(),
                                                           rank->memory.get(), o_.ranks);
      rank->lane = rank->fetching.get();
    } else {
      rank->staging = std::make_unique<run::StagingLane>(
          rank->lane, rank->port.get(), rank->memory.get(), o_.pool, paths, o_.network.depth);
      rank->lane = rank->staging.get();
    }
  }

  void start_on_device(Rank* rank) {
    rank->device_send = on_device(rank->send, rank->device);
    std::byte* output = rank->device_send + (rank->output - rank->send.data());
    if (rank->output == rank->recv.data()) {
      rank->device_recv = on_device(rank->recv, rank->device);
      output = rank->device_recv;
    }
    const std::byte* input = rank->device_send + (rank->input - rank->send.data());
    rank->execution = std::make_unique<run::Execution>(rank->staging.get(), rank->port.get(),
                                                       o_.ranks, o_.network.depth);
    rank->execution->start(*rank->program,
                           {input, output, rank->port->work(rank->program->work_bytes()),
                            rank->port->temp(rank->program->temp_bytes())},
                           12345);
  }

  static void copy(void* to, const void* from, size_t bytes, device::Accelerator* device) {
    auto queue = std::move(*device->make_queue());
    ASSERT_TRUE(queue->copy(to, from, bytes).ok());
    ASSERT_TRUE(queue->synchronize().ok());
  }
  static std::byte* on_device(const std::vector<std::byte>& data, device::Accelerator* device) {
    auto* memory = static_cast<std::byte*>(*device->allocate(data.size()));
    copy(memory, data.data(), data.size(), device);
    return memory;
  }
  static bool at_rest(Rank& rank) {
    if (rank.staging == nullptr) return true;
    return rank.staging->idle() && rank.port->idle() && rank.port->status().ok();
  }

  int32_t expected(int r, size_t i) const {
    const auto me = static_cast<size_t>(r);
    switch (o_.algorithm->collective) {
      case Collective::kBroadcast:
        return value(o_.root, i);
      case Collective::kScatter:
        return value(o_.root, me * o_.count + i);
      case Collective::kAllGather:
      case Collective::kGather:
        return value(static_cast<int>(i / o_.count), i % o_.count);
      case Collective::kAllToAll:
        return value(static_cast<int>(i / o_.count), me * o_.count + i % o_.count);
      default:
        break;
    }
    const size_t at =
        o_.algorithm->collective == Collective::kReduceScatter ? me * o_.count + i : i;
    int32_t sum = 0;
    const int summed = coll::contributions(o_.algorithm->collective, o_.ranks, r);
    for (int k = 0; k < summed; ++k) sum += value(k, at);
    return sum;
  }

  void check_rank(int r) const {
    const Rank& rank = ranks_[static_cast<size_t>(r)];
    for (size_t i = 0; i < recv_count(r); ++i) {
      ASSERT_TRUE(holds(rank.output, i, expected(r, i)))
          << coll::name_of(o_.algorithm->collective) << ":" << o_.algorithm->name << " rank " << r
          << " of " << o_.ranks << " root " << o_.root << " count " << o_.count << " element " << i
          << " seed " << o_.network.seed;
    }
    EXPECT_EQ(rank.recv.back(), std::byte{0xEE});
    if (o_.in_place[static_cast<size_t>(r)]) return;
    for (size_t i = 0; i < send_count(r); ++i) {
      ASSERT_TRUE(holds(rank.input, i, value(r, i))) << "the send buffer was written";
    }
  }

  Options o_;
  std::vector<std::unique_ptr<net::Lane>> lanes_;
  std::vector<Rank> ranks_;
};

inline Job::Options random_options(uint64_t seed, Random& random) {
  const auto rows = coll::algorithms();
  Job::Options o;
  o.algorithm = &rows[random() % rows.size()];
  o.ranks = static_cast<int>(1 + random() % 9);
  o.root = static_cast<int>(random() % static_cast<uint64_t>(o.ranks));
  o.count = random() % 4 == 0 ? random() % 12 : random() % 700;
  const bool half = random() % 2 == 0 && o.algorithm->collective != Collective::kBarrier;
  o.type = half ? hetcclFloat16 : hetcclInt32;
  for (int r = 0; r < o.ranks; ++r) o.in_place.push_back(random() % 2 == 0);
  o.network.seed = seed;
  o.network.chunk_bytes = random() % 2 == 0 ? 64 : 512;
  o.network.depth = static_cast<unsigned>(2 + random() % 3);
  o.network.longest_delay = static_cast<unsigned>(1 + random() % 40);
  return o;
}

}  // namespace hetccl

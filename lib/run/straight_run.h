// Runs straight programs between ranks that share memory: polled, like
// Execution, whose part it is. Thread rule: one thread at a time, the one that
// holds the communicator.
#pragma once

#include <array>
#include <vector>

#include "lib/device/device.h"
#include "lib/net/lane.h"
#include "lib/net/shm_pair.h"
#include "lib/run/program.h"

namespace hetccl::run {

// A message that does not belong to this call: the ranks disagree.
struct Mismatch {
  int peer = -1;
  size_t expected_bytes = 0, received_bytes = 0;
  // Of calls whose counts the two sides alone know: elements due, and what the
  // sender named. That is a count if the call is the same, and any 64 bits if
  // it is another.
  uint64_t expected_elements = 0, named_elements = 0;
};

enum class Outcome { kIdle, kMoved, kDone, kMismatch };

class StraightRun {
 public:
  StraightRun(net::Lane* lane, device::Device* device, int ranks);

  // Whether all peers share memory.
  bool possible() const { return possible_; }

  void set_patience(unsigned looks) { patience_ = looks; }

  using Bases = std::array<std::byte*, coll::kBuffers>;
  // Sends what the program begins with.
  void start(const Straight& program, const device::Reduction& reduction, const Bases& bases,
             uint64_t signature);
  Outcome poll();
  const Mismatch& mismatch() const { return mismatch_; }

 private:
  bool send(const Straight::Step& step);
  bool combine(const Straight::Step& step);
  bool take(const Straight::Step& step);
  bool await(net::ShmPair* pair, net::Received* message) const;
  // The pieces of a send of this run may be overwritten.
  bool is_done(uint32_t step) const {
    return pairs_[program_->steps[step].peer]->sends_done() >= numbers_[step];
  }

  device::Device* device_;
  std::vector<net::ShmPair*> pairs_;  // by peer
  bool possible_ = true;
  unsigned patience_ = 0;

  const Straight* program_ = nullptr;
  const device::Reduction* reduction_ = nullptr;
  Bases bases_{};
  uint64_t signature_ = 0;
  const Straight::Step* at_ = nullptr;  // the step at hand
  const Straight::Step* end_ = nullptr;
  uint32_t taken_ = 0;  // operands of the step at hand that are there
  bool mismatched_ = false;
  Mismatch mismatch_;
  std::vector<uint64_t> numbers_;  // by step: of sends, the message's
  std::vector<device::Source> sources_;
};

}  // namespace hetccl::run

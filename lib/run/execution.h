// Runs programs, one at a time, over a lane and a device: an interpreter that
// is polled. Thread rule: one thread at a time, the one that holds the
// communicator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lib/base/status.h"
#include "lib/device/device.h"
#include "lib/net/lane.h"
#include "lib/run/program.h"
#include "lib/run/straight_run.h"

namespace hetccl::run {

struct Buffers {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::byte* work = nullptr;
  std::byte* temp = nullptr;
};

class Execution {
 public:
  using Outcome = run::Outcome;

  // `lane` may be null for one rank; others may use it between two programs.
  // `ahead`: receives announced before their turn.
  Execution(net::Lane* lane, device::Device* device, int ranks, unsigned ahead);

  // Whether straight programs are run as such.
  bool runs_straight() const { return straight_run_.possible(); }
  // How often poll() looks for a message of a straight program before it
  // returns; 0: once.
  void set_patience(unsigned looks) { straight_run_.set_patience(looks); }

  // `program` stays alive until kDone or abandon(). `signature` of 0 compares
  // lengths only.
  void start(const Program& program, const Buffers& buffers, uint64_t signature);
  // Does what can be done now. After kDone or kMismatch the execution is over.
  Outcome poll();
  void abandon() { program_ = nullptr; }

  const Mismatch& mismatch() const { return straight_ ? straight_run_.mismatch() : mismatch_; }
  // Steps finished since the start of this object, for measurements.
  uint64_t steps_run() const { return steps_run_; }

 private:
  struct State {
    uint32_t issued = 0;  // send: messages accepted by the lane
    uint32_t done = 0;    // chunks whose effect is complete
    uint64_t base = 0;    // send: number of the first message to this peer
  };

  bool ready(const Program::BoundStep& step, uint32_t chunk) const;
  bool advance_send(uint32_t index);
  bool advance_combine(uint32_t index);
  void announce(uint32_t index);
  bool combine_chunk(const Program::BoundStep& step, uint32_t chunk);
  bool take_messages(const Program::BoundStep& step, uint32_t chunk, size_t elements);
  void reduce_pieces(const Program::BoundStep& step, uint32_t chunk,
                     std::span<const Program::Piece> pieces);
  bool is_wide(const coll::Operand& operand) const;
  const std::byte* source_of(coll::Buffer buffer) const;
  std::byte* target_of(coll::Buffer buffer) const;

  net::Lane* lane_;
  device::Device* device_;
  unsigned ahead_;
  const Program* program_ = nullptr;
  Buffers buffers_;
  uint64_t signature_ = 0;
  uint32_t first_ = 0;  // steps before it are complete
  uint64_t steps_run_ = 0;
  Mismatch mismatch_;
  bool mismatched_ = false;
  StraightRun straight_run_;
  uint32_t straight_steps_ = 0;
  bool straight_ = false;        // the program at hand is run by it
  std::vector<bool> announces_;  // to each peer: whether its lane wants announcements
  std::vector<State> states_;
  std::vector<uint32_t> announced_;      // of each operand of the plan
  std::vector<net::Received> messages_;  // of the operands of the chunk at hand
  std::vector<Program::Piece> pieces_, operand_pieces_;
  std::vector<net::Piece> wire_;
  std::vector<device::Source> sources_;
};

}  // namespace hetccl::run

#include "lib/coll/builder.h"

#include <algorithm>
#include <cassert>

namespace hetccl::coll {
namespace {

bool same_blocks(BlockRange a, BlockRange b) { return a.first == b.first && a.count == b.count; }

// Finds what each step of a plan must wait for.
//
// Every block of each place group (see plan.h: input, output and work are one) is a place. A place
// remembers who wrote it last and who has read it since; a later reader waits for the writer, a
// later writer for the writer and the readers. One exception keeps a rank's copy of its own input
// off the critical path: copying block b of input to block b of output writes nothing where the two
// are one place, so it is no hazard to those who read the input.
class DependencyFinder {
 public:
  explicit DependencyFinder(Plan& plan)
      : plan_(plan),
        places_(static_cast<size_t>(kPlaceGroups) * plan.blocks),
        last_sent_(plan.ranks, -1),
        last_received_(plan.ranks, -1) {}

  void run() {
    for (uint32_t s = 0; s < plan_.steps.size(); ++s) {
      found_.clear();
      Step& step = plan_.steps[s];
      if (step.kind == StepKind::kSend) {
        wait_in_order(last_sent_[step.peer], s);
        read(s, step.buffer, step.blocks.first);
      } else {
        for (uint32_t o = step.operands_begin; o < step.operands_end; ++o) {
          const Operand& operand = plan_.operands[o];
          if (operand.peer >= 0) {
            wait_in_order(last_received_[operand.peer], s);
          } else {
            read(s, operand.buffer, operand.first);
          }
        }
        write(s);
      }
      keep_needed(step);
    }
  }

 private:
  struct Access {
    int step;
    Buffer buffer;
    bool aligned;  // the place is block i of the step's range, and not of an operand's elsewhere
  };
  struct Place {
    Access writer{-1, Buffer::kInput, false};
    Access copy{-1, Buffer::kInput, false};  // since the writer: output <- input
    std::vector<Access> readers;             // since the writer
  };

  Place& place(Buffer buffer, int block) {
    return places_[place_group(plan_, buffer) * plan_.blocks + block % plan_.blocks];
  }

  void wait_in_order(int& last, uint32_t s) {
    if (last >= 0) wait(last, true);
    last = static_cast<int>(s);
  }

  void wait(int step, bool whole) {
    for (Dependency& d : found_) {
      if (d.step == static_cast<uint32_t>(step)) {
        d.whole |= whole;
        return;
      }
    }
    found_.push_back({static_cast<uint32_t>(step), whole});
  }

  void wait_for(const Access& earlier, uint32_t s, bool aligned) {
    if (earlier.step < 0 || earlier.step == static_cast<int>(s)) return;
    const bool chunkwise = aligned && earlier.aligned &&
                           same_blocks(plan_.steps[earlier.step].blocks, plan_.steps[s].blocks);
    wait(earlier.step, !chunkwise);
  }

  void read(uint32_t s, Buffer buffer, int first) {
    const Step& step = plan_.steps[s];
    const bool aligned = first == step.blocks.first;
    for (int i = 0; i < step.blocks.count; ++i) {
      Place& p = place(buffer, first + i);
      wait_for(p.writer, s, aligned);
      if (buffer != Buffer::kInput) wait_for(p.copy, s, aligned);
      p.readers.push_back({static_cast<int>(s), buffer, aligned});
    }
  }

  void write(uint32_t s) {
    const Step& step = plan_.steps[s];
    const bool copies = copies_input(plan_, step);
    const Access self{static_cast<int>(s), step.buffer, true};
    for (int i = 0; i < step.blocks.count; ++i) {
      Place& p = place(step.buffer, step.blocks.first + i);
      wait_for(p.writer, s, true);
      wait_for(p.copy, s, true);
      for (const Access& reader : p.readers) {
        if (!copies || reader.buffer != Buffer::kInput) wait_for(reader, s, true);
      }
      if (copies) {
        p.copy = self;
      } else {
        p.writer = self;
        p.copy.step = -1;
        p.readers.clear();
      }
    }
  }

  // Whether waiting for `by` makes sure that `target` has run (all of it where `whole`). Looks at a
  // few steps only: a dependency too many costs little.
  bool implies(const Dependency& by, const Dependency& target) {
    int budget = 32;
    return implies(by, target, &budget);
  }
  bool implies(const Dependency& by, const Dependency& target, int* budget) {
    if (by.step < target.step || --*budget < 0) return false;
    if (by.step == target.step) return by.whole || !target.whole;
    const Step& step = plan_.steps[by.step];
    for (uint32_t d = step.dependencies_begin; d < step.dependencies_end; ++d) {
      Dependency next = plan_.dependencies[d];
      next.whole |= by.whole;
      if (implies(next, target, budget)) return true;
    }
    return false;
  }

  void keep_needed(Step& step) {
    constexpr size_t kSearched = 16;
    std::sort(found_.begin(), found_.end(),
              [](const Dependency& a, const Dependency& b) { return a.step > b.step; });
    step.dependencies_begin = static_cast<uint32_t>(plan_.dependencies.size());
    for (const Dependency& target : found_) {
      const size_t kept = plan_.dependencies.size() - step.dependencies_begin;
      bool implied = false;
      for (size_t k = 0; k < kept && kept <= kSearched && !implied; ++k) {
        implied = implies(plan_.dependencies[step.dependencies_begin + k], target);
      }
      if (!implied) plan_.dependencies.push_back(target);
    }
    step.dependencies_end = static_cast<uint32_t>(plan_.dependencies.size());
  }

  Plan& plan_;
  std::vector<Place> places_;  // group after group
  std::vector<int> last_sent_, last_received_;
  std::vector<Dependency> found_;
};

}  // namespace

bool copies_input(const Plan& plan, const Step& step) {
  if (step.kind != StepKind::kCombine || step.buffer != Buffer::kOutput || step.finalize ||
      step.operands_end - step.operands_begin != 1) {
    return false;
  }
  const Operand& from = plan.operands[step.operands_begin];
  return from.peer < 0 && from.buffer == Buffer::kInput && from.first == step.blocks.first;
}

Builder::Builder(Collective collective, int ranks, int rank, int root, int blocks, bool apart) {
  assert(ranks > 0 && rank >= 0 && rank < ranks && root >= 0 && root < ranks && blocks > 0);
  plan_.collective = collective;
  plan_.ranks = ranks;
  plan_.rank = rank;
  plan_.root = root;
  plan_.blocks = blocks;
  plan_.apart = apart;
}

BlockRange Builder::normal(BlockRange blocks) const {
  assert(blocks.count > 0 && blocks.count <= plan_.blocks);
  blocks.first = (blocks.first % plan_.blocks + plan_.blocks) % plan_.blocks;
  return blocks;
}

void Builder::note(Buffer buffer) {
  plan_.uses_work |= buffer == Buffer::kWork;
  plan_.uses_temp |= buffer == Buffer::kTemp;
}

void Builder::send(int peer, Buffer from, BlockRange blocks) {
  send_to_all(std::span<const int>(&peer, 1), from, blocks);
}

void Builder::send_to_all(std::span<const int> peers, Buffer from, BlockRange blocks) {
  note(from);
  for (size_t i = 0; i < peers.size(); ++i) {
    assert(peers[i] >= 0 && peers[i] < plan_.ranks && peers[i] != plan_.rank);
    Step step;
    step.kind = StepKind::kSend;
    step.buffer = from;
    step.fan_out = i > 0;
    step.peer = peers[i];
    step.blocks = normal(blocks);
    step.operands_begin = step.operands_end = static_cast<uint32_t>(plan_.operands.size());
    plan_.steps.push_back(step);
  }
}

void Builder::combine(Buffer to, BlockRange blocks, std::span<const Operand> operands,
                      bool finalize) {
  assert(!operands.empty() && to != Buffer::kInput);
  note(to);
  Step step;
  step.kind = StepKind::kCombine;
  step.buffer = to;
  step.finalize = finalize;
  step.blocks = normal(blocks);
  step.operands_begin = static_cast<uint32_t>(plan_.operands.size());
  for (Operand operand : operands) {
    assert(operand.peer < plan_.ranks && operand.peer != plan_.rank);
    if (operand.peer < 0) {
      note(operand.buffer);
      operand.first = normal({operand.first, 1}).first;
    }
    plan_.operands.push_back(operand);
  }
  step.operands_end = static_cast<uint32_t>(plan_.operands.size());
  plan_.steps.push_back(step);
}

Plan Builder::finish(std::string algorithm) && {
  plan_.algorithm = std::move(algorithm);
  DependencyFinder(plan_).run();
  return std::move(plan_);
}

}  // namespace hetccl::coll

#include "lib/coll/in_order.h"

#include <vector>

namespace hetccl::coll {
namespace {

constexpr int kMostRanks = 32;

class InOrder {
 public:
  InOrder(const Algorithm& algorithm, int ranks, int root, size_t depth)
      : ranks_(ranks), depth_(depth), unbuffered_(algorithm.unbuffered) {
    const auto n = static_cast<size_t>(ranks);
    sent_.resize(n * n);
    taken_.resize(n * n);
    for (int r = 0; r < ranks; ++r) {
      runs_.push_back({make_plan(algorithm, ranks, r, root), 0, {}});
      runs_.back().numbers.resize(runs_.back().plan.steps.size());
    }
  }

  bool completes() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int r = 0; r < ranks_; ++r) {
        while (runs_[r].at < runs_[r].plan.steps.size() && advance(r)) moved = true;
      }
    }
    for (const Run& run : runs_) {
      if (run.at != run.plan.steps.size()) return false;
    }
    return true;
  }

 private:
  struct Run {
    Plan plan;
    size_t at;
    std::vector<size_t> numbers;  // of sends: which message to that peer it is, from 1
  };
  size_t pair(int from, int to) const { return static_cast<size_t>(from) * ranks_ + to; }

  bool advance(int r) {
    Run& run = runs_[r];
    const Step& step = run.plan.steps[run.at];
    if (step.kind == StepKind::kSend) {
      const size_t p = pair(r, step.peer);
      if (sent_[p] - taken_[p] == depth_) return false;
      run.numbers[run.at] = ++sent_[p];
    } else {
      if (unbuffered_ && !sends_taken(r, step)) return false;
      for (int pass = 0; pass < 2; ++pass) {
        for (uint32_t o = step.operands_begin; o < step.operands_end; ++o) {
          const int peer = run.plan.operands[o].peer;
          if (peer < 0) continue;
          if (pass == 1) ++taken_[pair(peer, r)];
          if (pass == 0 && sent_[pair(peer, r)] == taken_[pair(peer, r)]) return false;
        }
      }
    }
    ++run.at;
    return true;
  }

  bool sends_taken(int r, const Step& step) const {
    const Run& run = runs_[r];
    for (uint32_t d = step.dependencies_begin; d < step.dependencies_end; ++d) {
      const uint32_t other = run.plan.dependencies[d].step;
      const Step& send = run.plan.steps[other];
      if (send.kind != StepKind::kSend) continue;
      if (taken_[pair(r, send.peer)] < run.numbers[other]) return false;
    }
    return true;
  }

  const int ranks_;
  const size_t depth_;
  const bool unbuffered_;
  std::vector<Run> runs_;
  std::vector<size_t> sent_, taken_;  // messages of each ordered pair
};

}  // namespace

bool runs_in_order(const Algorithm& algorithm, int ranks, int root, size_t depth) {
  return ranks <= kMostRanks && InOrder(algorithm, ranks, root, depth).completes();
}

}  // namespace hetccl::coll

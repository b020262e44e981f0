// The half of verify() that needs one plan only.
#include <string>

#include "lib/coll/verify.h"

namespace hetccl::coll {
namespace {

// Which steps of a plan have run before others start, by the dependencies and what follows from
// them. Bit sets: steps x steps.
class Order {
 public:
  explicit Order(const Plan& plan)
      : words_((plan.steps.size() + 63) / 64),
        any_(plan.steps.size() * words_),
        whole_(plan.steps.size() * words_) {
    for (size_t s = 0; s < plan.steps.size(); ++s) {
      const Step& step = plan.steps[s];
      for (uint32_t i = step.dependencies_begin; i < step.dependencies_end; ++i) {
        const Dependency& d = plan.dependencies[i];
        merge(any_, s, any_, d.step);
        set(any_, s, d.step);
        merge(whole_, s, d.whole ? any_ : whole_, d.step);
        if (d.whole) set(whole_, s, d.step);
      }
    }
  }

  // Chunk c of `earlier` before chunk c of `later`, for steps over the same blocks.
  bool by_chunk(size_t earlier, size_t later) const { return get(any_, later, earlier); }
  // All of `earlier` before any of `later`.
  bool entirely(size_t earlier, size_t later) const { return get(whole_, later, earlier); }

 private:
  using Bits = std::vector<uint64_t>;
  void merge(Bits& to, size_t row, const Bits& from, size_t other) {
    for (size_t w = 0; w < words_; ++w) to[row * words_ + w] |= from[other * words_ + w];
  }
  void set(Bits& bits, size_t row, size_t bit) {
    bits[row * words_ + bit / 64] |= uint64_t{1} << (bit % 64);
  }
  bool get(const Bits& bits, size_t row, size_t bit) const {
    return bits[row * words_ + bit / 64] >> (bit % 64) & 1;
  }

  size_t words_;
  Bits any_, whole_;
};

bool same_blocks(BlockRange a, BlockRange b) { return a.first == b.first && a.count == b.count; }

class PlanCheck {
 public:
  explicit PlanCheck(const Plan& plan) : plan_(plan) {}

  Status run() {
    if (Status s = check_shape(); !s.ok()) return s;
    for (size_t i = 0; i < plan_.steps.size(); ++i) {
      if (Status s = check_widths(i); !s.ok()) return s;
      if (Status s = check_rights(i); !s.ok()) return s;
    }
    const Order order(plan_);
    if (Status s = check_message_order(order); !s.ok()) return s;
    return check_races(order);
  }

 private:
  struct Access {
    size_t step;
    Buffer buffer;
    bool writes;
    bool aligned;  // block i of the step's range, not of an operand's elsewhere
  };

  Status fail(size_t step, const std::string& why) const {
    std::string where = "rank " + std::to_string(plan_.rank);
    if (step < plan_.steps.size()) where += ", step " + to_text(plan_, step);
    return internal_error("plan of " + std::string(name_of(plan_.collective)) + " " +
                          plan_.algorithm + ", " + where + ": " + why);
  }

  bool valid(BlockRange r) const {
    return r.first >= 0 && r.first < plan_.blocks && r.count > 0 && r.count <= plan_.blocks;
  }
  bool valid_peer(int peer) const { return peer >= 0 && peer < plan_.ranks && peer != plan_.rank; }

  // Indices in range, dependencies on earlier steps, and chunk by chunk only between equal blocks.
  Status check_shape() const {
    for (size_t i = 0; i < plan_.steps.size(); ++i) {
      const Step& step = plan_.steps[i];
      if (!valid(step.blocks)) return internal_error(outside(i));
      if (step.kind == StepKind::kSend) {
        if (!valid_peer(step.peer)) return internal_error(outside(i));
        const Step* before = i > 0 ? &plan_.steps[i - 1] : nullptr;
        if (step.fan_out &&
            (!before || before->kind != StepKind::kSend || before->buffer != step.buffer ||
             !same_blocks(before->blocks, step.blocks))) {
          return fail(i, "is marked fan-out but sends other blocks than the step before it");
        }
      }
      for (uint32_t o = step.operands_begin; o < step.operands_end; ++o) {
        const Operand& operand = plan_.operands[o];
        if (operand.peer >= 0 ? !valid_peer(operand.peer)
                              : !valid({operand.first, step.blocks.count})) {
          return internal_error(outside(i));
        }
      }
      for (uint32_t d = step.dependencies_begin; d < step.dependencies_end; ++d) {
        const Dependency& dependency = plan_.dependencies[d];
        if (dependency.step >= i) return fail(i, "depends on a step that is not before it");
        if (!dependency.whole && !same_blocks(plan_.steps[dependency.step].blocks, step.blocks)) {
          return fail(i, "depends chunk by chunk on step " + std::to_string(dependency.step) +
                             ", which has other blocks");
        }
      }
    }
    return {};
  }
  std::string outside(size_t i) const {
    return "plan of " + std::string(name_of(plan_.collective)) + " " + plan_.algorithm + ", rank " +
           std::to_string(plan_.rank) + ", step " + std::to_string(i) +
           ": a block or peer lies outside the plan";
  }

  // Accumulators live in work and nowhere else; results never do.
  Status check_widths(size_t i) const {
    const Step& step = plan_.steps[i];
    if (step.kind == StepKind::kSend) return {};
    const uint32_t operands = step.operands_end - step.operands_begin;
    if (operands == 0) return fail(i, "combines nothing");
    if (!reduces(plan_.collective) && (operands > 1 || step.finalize)) {
      return fail(i, "reduces in a collective that only moves data");
    }
    if (step.finalize && step.buffer == Buffer::kWork) {
      return fail(i, "finalizes into work, which holds partials");
    }
    if (step.finalize || step.buffer == Buffer::kWork) return {};
    if (operands > 1) return fail(i, "leaves a partial outside work, where it does not fit");
    const Operand& from = plan_.operands[step.operands_begin];
    if (from.peer >= 0 ? from.wide : from.buffer == Buffer::kWork) {
      return fail(i, "moves a partial out of work without finalizing it");
    }
    return {};
  }

  // What the collective lets this rank read and write in the user's buffers.
  Status check_rights(size_t i) const {
    const Step& step = plan_.steps[i];
    if (step.kind == StepKind::kSend) return check_read(i, step.buffer, step.blocks);
    for (uint32_t o = step.operands_begin; o < step.operands_end; ++o) {
      const Operand& operand = plan_.operands[o];
      if (operand.peer >= 0) continue;
      const Status s = check_read(i, operand.buffer, {operand.first, step.blocks.count});
      if (!s.ok()) return s;
    }
    if (step.buffer == Buffer::kInput) return fail(i, "writes the input");
    if (step.buffer != Buffer::kOutput) return {};
    const Collective c = plan_.collective;
    const bool own_block = c == Collective::kReduceScatter || c == Collective::kScatter;
    if (own_block && !same_blocks(step.blocks, {plan_.rank, 1})) {
      return fail(i, "writes blocks of the output that belong to others");
    }
    if ((c == Collective::kReduce || c == Collective::kGather) && plan_.rank != plan_.root) {
      return fail(i, "writes the output though it is not the root");
    }
    if (c == Collective::kExscan && plan_.rank == 0) {
      return fail(i, "writes the output, which an exclusive scan leaves alone on rank 0");
    }
    if (c == Collective::kBarrier) return fail(i, "writes the output of a barrier");
    return {};
  }
  Status check_read(size_t i, Buffer buffer, BlockRange blocks) const {
    if (buffer != Buffer::kInput) return {};
    const Collective c = plan_.collective;
    const bool of_root = c == Collective::kBroadcast || c == Collective::kScatter;
    if (of_root && plan_.rank != plan_.root) {
      return fail(i, "reads the input though it is not the root");
    }
    const bool own_block = c == Collective::kAllGather || c == Collective::kGather;
    if (own_block && !same_blocks(blocks, {plan_.rank, 1})) {
      return fail(i, "reads blocks that its input does not hold");
    }
    return {};
  }

  Status check_message_order(const Order& order) const {
    std::vector<int> sent(plan_.ranks, -1), received(plan_.ranks, -1);
    for (size_t i = 0; i < plan_.steps.size(); ++i) {
      const Step& step = plan_.steps[i];
      if (step.kind == StepKind::kSend) {
        if (Status s = in_order(order, sent[step.peer], i, "to"); !s.ok()) return s;
      }
      for (uint32_t o = step.operands_begin; o < step.operands_end; ++o) {
        const int peer = plan_.operands[o].peer;
        if (peer < 0) continue;
        if (received[peer] == static_cast<int>(i)) {
          return fail(i, "combines two messages of one peer");
        }
        if (Status s = in_order(order, received[peer], i, "from"); !s.ok()) return s;
      }
    }
    return {};
  }
  Status in_order(const Order& order, int& last, size_t i, const char* which) const {
    if (last >= 0 && !order.entirely(last, i)) {
      return fail(i, "its message may overtake that of step " + std::to_string(last) + " " + which +
                         " the same peer: it must depend on the whole of it");
    }
    last = static_cast<int>(i);
    return {};
  }

  // Two steps that touch one place, one of them writing, must be ordered, whether the buffers are
  // one place (in place) or not. A copy of input to the same block of output does nothing in place,
  // and else does not touch what readers of the input read.
  Status check_races(const Order& order) const {
    std::vector<std::vector<Access>> places(static_cast<size_t>(kPlaceGroups) * plan_.blocks);
    for (size_t i = 0; i < plan_.steps.size(); ++i) {
      const Step& step = plan_.steps[i];
      const auto touch = [&](Buffer buffer, int first, bool writes) {
        const int group = place_group(plan_, buffer) * plan_.blocks;
        for (int b = 0; b < step.blocks.count; ++b) {
          places[group + (first + b) % plan_.blocks].push_back(
              {i, buffer, writes, first == step.blocks.first});
        }
      };
      if (step.kind == StepKind::kSend) touch(step.buffer, step.blocks.first, false);
      for (uint32_t o = step.operands_begin; o < step.operands_end; ++o) {
        const Operand& operand = plan_.operands[o];
        if (operand.peer < 0) touch(operand.buffer, operand.first, false);
      }
      if (step.kind == StepKind::kCombine) touch(step.buffer, step.blocks.first, true);
    }
    for (const std::vector<Access>& accesses : places) {
      if (Status s = check_place(order, accesses); !s.ok()) return s;
    }
    return {};
  }

  Status check_place(const Order& order, const std::vector<Access>& accesses) const {
    for (size_t w = 0; w < accesses.size(); ++w) {
      if (!accesses[w].writes) continue;
      for (size_t a = 0; a < accesses.size(); ++a) {
        if (a == w || (accesses[a].writes && a < w)) continue;
        const Access& first = accesses[a < w ? a : w];
        const Access& second = accesses[a < w ? w : a];
        if (first.step == second.step) {
          if (first.aligned) continue;
          return fail(second.step, "overwrites blocks that it reads in another order");
        }
        const Access& other = accesses[a];
        const bool reads_input = !other.writes && other.buffer == Buffer::kInput;
        if (reads_input && copies_input(plan_, plan_.steps[accesses[w].step])) continue;
        const bool lined_up =
            first.aligned && second.aligned &&
            same_blocks(plan_.steps[first.step].blocks, plan_.steps[second.step].blocks);
        if (lined_up ? order.by_chunk(first.step, second.step)
                     : order.entirely(first.step, second.step)) {
          continue;
        }
        return fail(second.step, "races with step " + std::to_string(first.step) +
                                     ": both touch one place, one writes it, and nothing orders "
                                     "them");
      }
    }
    return {};
  }

  const Plan& plan_;
};

}  // namespace

Status check_plan(const Plan& plan) { return PlanCheck(plan).run(); }

}  // namespace hetccl::coll

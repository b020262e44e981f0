// The half of verify() that runs the plans of all ranks against one another.
#include <algorithm>
#include <string>

#include "lib/coll/verify.h"
#include "lib/coll/verify_values.h"

namespace hetccl::coll {
namespace {

constexpr uint32_t kNone = ~0u;

// With one slot a pair, a step moves as several chunks, so that a message can be half under way.
constexpr int chunks_of(Buffering buffering) { return buffering == Buffering::kOneSlot ? 2 : 1; }

struct Message {
  uint32_t step;  // the sender's
  uint32_t next;  // behind it in the queue of this pair
  size_t cells;   // where its copy of the blocks begins
  int chunk;
};

// The stream of messages from one rank to another.
struct Pair {
  uint32_t head = kNone, tail = kNone;  // messages sent and not consumed
  uint32_t blocked = kNone;             // the sender's step that waits for the slot
  uint32_t waiter = kNone;              // the receiver's step that waits for a message
};

struct RankState {
  std::vector<Cell> cells;                 // of input (or all three), output, work, then temp
  std::vector<uint32_t> pending;           // by step and chunk: what it still waits for
  std::vector<uint32_t> missing;           // by step: messages that have not come
  std::vector<int> next_chunk;             // by step: chunks done
  std::vector<int> rounds;                 // by step: longest chain of messages up to it
  std::vector<uint64_t> heard;             // by step: ranks it has heard from (barrier)
  std::vector<uint32_t> dependents_begin;  // by step, into dependents
  std::vector<Dependency> dependents;      // later steps
};

class Runner {
 public:
  Runner(std::span<const Plan> plans, Buffering buffering, const std::vector<bool>& in_place)
      : plans_(plans),
        ranks_(static_cast<int>(plans.size())),
        blocks_(plans[0].blocks),
        collective_(plans[0].collective),
        buffering_(buffering),
        chunks_(chunks_of(buffering)),
        in_place_(in_place),
        words_((ranks_ + 63) / 64),
        values_(ranks_),
        pairs_(static_cast<size_t>(ranks_) * ranks_),
        state_(ranks_) {
    for (int r = 0; r < ranks_; ++r) prepare(r);
  }

  Result<Proof> run() {
    for (int r = 0; r < ranks_; ++r) {
      for (uint32_t s = 0; s < plans_[r].steps.size(); ++s) {
        if (state_[r].pending[s * chunks_] == 0) ready_.push_back({r, s});
      }
    }
    while (!ready_.empty() && failure_.ok()) {
      const Ready next = ready_.back();
      ready_.pop_back();
      start(next.rank, next.step);
    }
    if (failure_.ok()) check_all_done();
    if (failure_.ok()) check_results();
    if (!failure_.ok()) return failure_;
    return proof_;
  }

 private:
  struct Ready {
    int rank;
    uint32_t step;
  };

  void prepare(int r) {
    const Plan& plan = plans_[r];
    const size_t steps = plan.steps.size();
    RankState& state = state_[r];
    state.cells.resize(static_cast<size_t>(kBuffers) * blocks_);
    state.pending.resize(steps * chunks_);
    state.missing.resize(steps);
    state.next_chunk.resize(steps);
    state.rounds.resize(steps);
    state.dependents_begin.resize(steps + 1);
    state.dependents.resize(plan.dependencies.size());
    if (collective_ == Collective::kBarrier) {
      state.heard.resize(steps * words_);
      for (size_t s = 0; s < steps; ++s) set_heard(state, s, r);
    }
    fill_input(r);
    for (const Dependency& d : plan.dependencies) ++state.dependents_begin[d.step + 1];
    for (size_t s = 0; s < steps; ++s) {
      state.dependents_begin[s + 1] += state.dependents_begin[s];
    }
    std::vector<uint32_t> fill(state.dependents_begin.begin(), state.dependents_begin.end() - 1);
    for (uint32_t s = 0; s < steps; ++s) {
      const Step& step = plan.steps[s];
      for (uint32_t i = step.dependencies_begin; i < step.dependencies_end; ++i) {
        const Dependency& d = plan.dependencies[i];
        state.dependents[fill[d.step]++] = {s, d.whole};
        ++state.pending[s * chunks_];
        for (int c = 1; c < chunks_ && !d.whole; ++c) ++state.pending[s * chunks_ + c];
      }
      for (int c = 1; c < chunks_; ++c) ++state.pending[s * chunks_ + c];  // the chunk before it
    }
  }

  void fill_input(int r) {
    for (int b = 0; b < blocks_; ++b) {
      bool holds = true;
      if (collective_ == Collective::kAllGather || collective_ == Collective::kGather) {
        holds = b == r;
      }
      if (collective_ == Collective::kBroadcast || collective_ == Collective::kScatter) {
        holds = r == plans_[r].root;
      }
      if (holds) cell(r, Buffer::kInput, b) = {values_.contribution(r), b};
    }
  }

  Cell& cell(int r, Buffer buffer, int block) {
    const bool shared = in_place_[r] && place_group(plans_[r], buffer) == 0;
    const size_t group = shared ? 0 : static_cast<size_t>(buffer);
    return state_[r].cells[group * blocks_ + block % blocks_];
  }
  Pair& pair(int from, int to) { return pairs_[static_cast<size_t>(from) * ranks_ + to]; }

  void fail(int r, size_t step, const std::string& why) {
    if (!failure_.ok()) return;
    failure_ =
        internal_error("plans of " + std::string(name_of(collective_)) + " " + plans_[r].algorithm +
                       " for " + std::to_string(ranks_) + " ranks: rank " + std::to_string(r) +
                       ", step " + to_text(plans_[r], step) + ": " + why);
  }

  // What the step's next chunk depends on has run.
  void start(int r, uint32_t s) {
    const Step& step = plans_[r].steps[s];
    if (step.kind == StepKind::kSend) return offer(r, s);
    uint32_t missing = 0;
    for (uint32_t o = step.operands_begin; o < step.operands_end; ++o) {
      const int peer = plans_[r].operands[o].peer;
      if (peer < 0) continue;
      Pair& from = pair(peer, r);
      if (from.head != kNone) continue;
      from.waiter = s;
      ++missing;
    }
    state_[r].missing[s] = missing;
    if (missing == 0) consume(r, s);
  }

  void offer(int r, uint32_t s) {
    const Step& step = plans_[r].steps[s];
    Pair& to = pair(r, step.peer);
    if (buffering_ == Buffering::kOneSlot && to.head != kNone) {
      to.blocked = s;
      return;
    }
    const uint32_t number = static_cast<uint32_t>(messages_.size());
    const int chunk = state_[r].next_chunk[s];
    messages_.push_back({s, kNone, sent_cells_.size(), chunk});
    if (chunk == chunks_ - 1) {
      for (int i = 0; i < step.blocks.count; ++i) {
        sent_cells_.push_back(cell(r, step.buffer, step.blocks.first + i));
      }
      ++proof_.messages;
      proof_.blocks_sent += step.blocks.count;
    }
    (to.head == kNone ? to.head : messages_[to.tail].next) = number;
    to.tail = number;
    if (buffering_ != Buffering::kNone) complete(r, s);
    if (to.waiter == kNone) return;
    const uint32_t receiver = to.waiter;
    to.waiter = kNone;
    if (--state_[step.peer].missing[receiver] == 0) consume(step.peer, receiver);
  }

  // All messages of a combine have come.
  void consume(int r, uint32_t s) {
    const Step& step = plans_[r].steps[s];
    const bool last = state_[r].next_chunk[s] == chunks_ - 1;
    if (last) evaluate(r, s);
    for (uint32_t o = step.operands_begin; o < step.operands_end && failure_.ok(); ++o) {
      const Operand& operand = plans_[r].operands[o];
      if (operand.peer < 0) continue;
      Pair& from = pair(operand.peer, r);
      const Message taken = messages_[from.head];
      check_message(r, s, operand, taken);
      from.head = taken.next;
      if (last) learn(r, s, operand.peer, taken.step);
      if (buffering_ == Buffering::kNone) complete(operand.peer, taken.step);
      if (from.blocked != kNone) {
        ready_.push_back({operand.peer, from.blocked});
        from.blocked = kNone;
      }
    }
    if (failure_.ok()) complete(r, s);
  }

  void check_message(int r, uint32_t s, const Operand& operand, const Message& taken) {
    const Step& sent = plans_[operand.peer].steps[taken.step];
    const Step& step = plans_[r].steps[s];
    const bool free_place =
        collective_ == Collective::kAllToAll || collective_ == Collective::kBarrier;
    const std::string sender = " (rank " + std::to_string(operand.peer) + ", step " +
                               to_text(plans_[operand.peer], taken.step) + ")";
    if (taken.chunk != state_[r].next_chunk[s]) {
      fail(r, s, "takes another chunk than was sent" + sender);
    } else if (sent.blocks.count != step.blocks.count ||
               (!free_place && sent.blocks.first != step.blocks.first)) {
      fail(r, s, "takes a message with other blocks" + sender);
    } else if ((sent.buffer == Buffer::kWork) != operand.wide) {
      fail(r, s,
           std::string("takes a ") + (operand.wide ? "narrow" : "wide") +
               " message for the opposite" + sender);
    }
  }

  // Computes the step's blocks.
  void evaluate(int r, uint32_t s) {
    const Step& step = plans_[r].steps[s];
    if (collective_ == Collective::kBarrier) return;
    result_.clear();
    for (int i = 0; i < step.blocks.count && failure_.ok(); ++i) {
      Cell sum;
      for (uint32_t o = step.operands_begin; o < step.operands_end && failure_.ok(); ++o) {
        const Cell next = operand_cell(r, s, plans_[r].operands[o], i);
        if (failure_.ok()) add(r, s, next, o == step.operands_begin, &sum);
      }
      if (step.finalize && failure_.ok()) finalize(r, s, &sum);
      result_.push_back(sum);
    }
    for (size_t i = 0; i < result_.size(); ++i) {
      cell(r, step.buffer, step.blocks.first + static_cast<int>(i)) = result_[i];
    }
  }

  Cell operand_cell(int r, uint32_t s, const Operand& operand, int i) {
    Cell value;
    if (operand.peer < 0) {
      value = cell(r, operand.buffer, operand.first + i);
    } else {
      const Message& message = messages_[pair(operand.peer, r).head];
      if (i >= plans_[operand.peer].steps[message.step].blocks.count) {
        fail(r, s, "takes a message with fewer blocks");
        return value;
      }
      value = sent_cells_[message.cells + i];
    }
    if (value.value == Values::kUnwritten) {
      fail(r, s,
           operand.peer < 0 ? "reads a place that was never written"
                            : "takes a message read from a place that was never written");
    }
    return value;
  }

  void add(int r, uint32_t s, Cell next, bool first, Cell* sum) {
    if (first) {
      *sum = next;
      return;
    }
    const int twice = values_.shared_contribution(sum->value, next.value);
    if (next.block != sum->block) {
      fail(r, s,
           "combines block " + std::to_string(next.block) + " with block " +
               std::to_string(sum->block));
    } else if (values_.is_final(sum->value) || values_.is_final(next.value)) {
      fail(r, s, "combines a result that was finalized already");
    } else if (twice >= 0) {
      fail(r, s, "counts the contribution of rank " + std::to_string(twice) + " twice");
    } else {
      sum->value = values_.combined(sum->value, next.value);
    }
  }

  void finalize(int r, uint32_t s, Cell* sum) {
    if (values_.is_final(sum->value)) {
      fail(r, s, "finalizes a result twice");
    } else if (const int due = contributions(collective_, ranks_, r);
               values_.contributions(sum->value) != due) {
      fail(r, s,
           "finalizes " + std::to_string(values_.contributions(sum->value)) + " of " +
               std::to_string(due) + " contributions");
    } else {
      sum->value = values_.finalized(sum->value);
    }
  }

  // What the receiver's step knows after a message of the sender's.
  void learn(int r, uint32_t s, int sender, uint32_t sent) {
    int& rounds = state_[r].rounds[s];
    rounds = std::max(rounds, state_[sender].rounds[sent] + 1);
    proof_.rounds = std::max(proof_.rounds, rounds);
    hear(state_[r], s, state_[sender], sent);
  }
  void hear(RankState& to, uint32_t s, const RankState& from, uint32_t other) {
    for (int w = 0; w < words_ && !to.heard.empty(); ++w) {
      to.heard[static_cast<size_t>(s) * words_ + w] |=
          from.heard[static_cast<size_t>(other) * words_ + w];
    }
  }
  void set_heard(RankState& state, size_t s, int rank) {
    state.heard[s * words_ + rank / 64] |= uint64_t{1} << (rank % 64);
  }

  // A chunk of the step has run: those that waited for it may.
  void complete(int r, uint32_t s) {
    RankState& state = state_[r];
    const int chunk = state.next_chunk[s]++;
    const bool last = chunk == chunks_ - 1;
    for (uint32_t i = state.dependents_begin[s]; i < state.dependents_begin[s + 1]; ++i) {
      const Dependency& d = state.dependents[i];
      if (last) {
        state.rounds[d.step] = std::max(state.rounds[d.step], state.rounds[s]);
        hear(state, d.step, state, s);
      }
      if (d.whole) {
        if (last) release(r, d.step, 0);
      } else {
        release(r, d.step, chunk);
      }
    }
    if (!last) release(r, s, chunk + 1);
  }
  void release(int r, uint32_t s, int chunk) {
    if (--state_[r].pending[s * chunks_ + chunk] == 0) ready_.push_back({r, s});
  }

  void check_all_done() {
    for (int r = 0; r < ranks_ && failure_.ok(); ++r) {
      for (uint32_t s = 0; s < plans_[r].steps.size(); ++s) {
        if (state_[r].next_chunk[s] == chunks_) continue;
        return fail(r, s,
                    plans_[r].steps[s].kind == StepKind::kSend
                        ? "deadlock: its message is never taken"
                        : "deadlock: it waits for a message that is never sent");
      }
    }
    for (int from = 0; from < ranks_; ++from) {
      for (int to = 0; to < ranks_; ++to) {
        const uint32_t head = pair(from, to).head;
        if (head != kNone) return fail(from, messages_[head].step, "its message is never taken");
      }
    }
  }

  void fail_result(int r, int block, const std::string& why) {
    if (!failure_.ok()) return;
    failure_ =
        internal_error("plans of " + std::string(name_of(collective_)) + " " + plans_[r].algorithm +
                       " for " + std::to_string(ranks_) + " ranks: rank " + std::to_string(r) +
                       ", output block " + std::to_string(block) + ": " + why);
  }

  // The outputs are what the collective says.
  void check_results() {
    proof_.rank_order = true;
    if (collective_ == Collective::kBarrier) return check_barrier();
    if (collective_ == Collective::kScan || collective_ == Collective::kExscan) {
      return check_prefixes();
    }
    const Values::Id in_order = values_.result_in_rank_order(ranks_);
    std::vector<Values::Id> agreed(blocks_, Values::kUnwritten);
    for (int r = 0; r < ranks_; ++r) {
      for (int b = 0; b < blocks_; ++b) {
        if (!is_result(r, b)) continue;
        const Cell result = cell(r, Buffer::kOutput, b);
        if (result.value == Values::kUnwritten) return fail_result(r, b, "is never written");
        Cell right{values_.contribution(moved_from(r, b)), moved_block(r, b)};
        if (reduces(collective_) && ranks_ > 1) {
          if (!values_.is_final(result.value)) return fail_result(r, b, "is not finalized");
          if (agreed[b] == Values::kUnwritten) agreed[b] = result.value;
          right.value = agreed[b];
          proof_.rank_order &= result.value == in_order;
        }
        if (result.block != right.block) {
          return fail_result(r, b, "holds block " + std::to_string(result.block));
        }
        if (result.value != right.value) {
          return fail_result(r, b,
                             reduces(collective_)
                                 ? "was reduced in another order than on other ranks"
                                 : "holds the data of another rank");
        }
      }
    }
  }
  bool is_result(int r, int b) const {
    switch (collective_) {
      case Collective::kReduce:
      case Collective::kGather:
        return r == plans_[r].root;
      case Collective::kReduceScatter:
      case Collective::kScatter:
        return b == r;
      default:
        return true;
    }
  }
  int moved_from(int r, int b) const {
    switch (collective_) {
      case Collective::kBroadcast:
      case Collective::kScatter:
        return plans_[r].root;
      case Collective::kAllGather:
      case Collective::kAllToAll:
      case Collective::kGather:
        return b;
      default:
        return 0;  // one rank alone
    }
  }
  int moved_block(int r, int b) const { return collective_ == Collective::kAllToAll ? r : b; }

  // Each rank has the ranks up to it, or below it, combined from left to right. A prefix of one is
  // that rank's data as they are.
  void check_prefixes() {
    for (int r = 0; r < ranks_; ++r) {
      const int due = contributions(collective_, ranks_, r);
      for (int b = 0; b < blocks_ && due > 0; ++b) {
        const Cell result = cell(r, Buffer::kOutput, b);
        if (result.value == Values::kUnwritten) return fail_result(r, b, "is never written");
        if (result.block != b) return fail_result(r, b, "holds another block");
        if (values_.contributions(result.value) != due || !values_.is_prefix(result.value)) {
          return fail_result(r, b, "is not what the first ranks give, in their order");
        }
        if (values_.is_final(result.value) != (due > 1)) {
          return fail_result(r, b, due > 1 ? "is not finalized" : "is finalized, but of one rank");
        }
        proof_.rank_order &= result.value == values_.result_in_rank_order(due);
      }
    }
  }

  void check_barrier() {
    for (int r = 0; r < ranks_; ++r) {
      std::vector<uint64_t> all(words_);
      for (size_t i = 0; i < state_[r].heard.size(); ++i) all[i % words_] |= state_[r].heard[i];
      for (int q = 0; q < ranks_; ++q) {
        if (q == r || (all[q / 64] >> (q % 64) & 1) != 0) continue;
        return fail_result(r, 0, "leaves the barrier without word of rank " + std::to_string(q));
      }
    }
  }

  std::span<const Plan> plans_;
  int ranks_, blocks_;
  Collective collective_;
  Buffering buffering_;
  int chunks_;
  const std::vector<bool>& in_place_;
  int words_;
  Values values_;
  std::vector<Pair> pairs_;
  std::vector<RankState> state_;
  std::vector<Message> messages_;
  std::vector<Cell> sent_cells_;
  std::vector<Cell> result_;
  std::vector<Ready> ready_;
  Status failure_;
  Proof proof_;
};

}  // namespace

Result<Proof> run_plans(std::span<const Plan> plans, Buffering buffering,
                        const std::vector<bool>& in_place) {
  return Runner(plans, buffering, in_place).run();
}

}  // namespace hetccl::coll

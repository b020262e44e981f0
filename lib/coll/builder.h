// Collects the steps of one rank's plan and infers what each depends on.
// An algorithm is a function `void f(Builder&)`: it asks for ranks(), rank(), root() and emits
// steps. First blocks are taken modulo blocks(), so `rank() - 1` is a block on every rank.
// Thread rule: plain values; one thread at a time.
#pragma once

#include <initializer_list>
#include <span>

#include "lib/coll/plan.h"

namespace hetccl::coll {

inline Operand local(Buffer buffer, int first) { return {-1, buffer, first, false}; }
inline Operand message(int peer) { return {peer, Buffer::kInput, 0, false}; }
inline Operand wide_message(int peer) { return {peer, Buffer::kInput, 0, true}; }

class Builder {
 public:
  Builder(Collective collective, int ranks, int rank, int root, int blocks, bool apart = false);

  int ranks() const { return plan_.ranks; }
  int rank() const { return plan_.rank; }
  int root() const { return plan_.root; }
  int blocks() const { return plan_.blocks; }

  void send(int peer, Buffer from, BlockRange blocks);
  void send_to_all(std::span<const int> peers, Buffer from, BlockRange blocks);  // fan-out
  // Operands left to right. Messages of several operands come from different peers.
  void combine(Buffer to, BlockRange blocks, std::span<const Operand> operands, bool finalize);
  void combine(Buffer to, BlockRange blocks, std::initializer_list<Operand> operands,
               bool finalize = false) {
    combine(to, blocks, std::span<const Operand>(operands.begin(), operands.size()), finalize);
  }
  void receive(int peer, Buffer to, BlockRange blocks) { combine(to, blocks, {message(peer)}); }
  void copy(Buffer to, BlockRange blocks, Buffer from, int first) {
    combine(to, blocks, {local(from, first)});
  }

  // Infers dependencies, drops those that others imply, and gives the plan away.
  Plan finish(std::string algorithm) &&;

 private:
  BlockRange normal(BlockRange blocks) const;
  void note(Buffer buffer);

  Plan plan_;
};

}  // namespace hetccl::coll

#include "lib/coll/registry.h"

#include <array>
#include <cassert>

#include "lib/coll/algorithms.h"

namespace hetccl::coll {
namespace {

int one_block(int) { return 1; }
int block_per_rank(int ranks) { return ranks; }

Buffer root_result(const Builder& b) {
  return b.rank() == b.root() ? Buffer::kOutput : Buffer::kTemp;
}

// The rank's own block of an all-gather, once the rest is on its way.
void copy_own(Builder& b) { b.copy(Buffer::kOutput, {b.rank()}, Buffer::kInput, b.rank()); }

void ring_all_reduce(Builder& b) {
  ring_reduce_scatter(b, Buffer::kOutput);
  ring_all_gather(b, Buffer::kOutput);
}
void direct_all_reduce(Builder& b) {
  direct_reduce_scatter(b, Buffer::kOutput);
  direct_all_gather(b, Buffer::kOutput);
}
void ring_gather_reduce(Builder& b) {
  ring_reduce_scatter(b, root_result(b));
  gather_results(b);
}
void direct_gather_reduce(Builder& b) {
  direct_reduce_scatter(b, root_result(b));
  gather_results(b);
}
void ring_reduce_scatter_only(Builder& b) { ring_reduce_scatter(b, Buffer::kOutput); }
void direct_reduce_scatter_only(Builder& b) { direct_reduce_scatter(b, Buffer::kOutput); }
void ring_all_gather_only(Builder& b) {
  ring_all_gather(b, Buffer::kInput);
  copy_own(b);
}
void direct_all_gather_only(Builder& b) {
  direct_all_gather(b, Buffer::kInput);
  copy_own(b);
}

using C = Collective;
constexpr bool kRankOrder = true, kOtherOrder = false;
constexpr bool kUnbuffered = true, kBuffered = false;
constexpr bool kOwnCounts = true, kAllCounts = false;
constexpr bool kStages = true;

// Within a collective, the first of two algorithms that cost the same is preferred.
constexpr Algorithm kAlgorithms[] = {
    {C::kAllReduce, "one_shot", "every rank sends all to all and combines for itself",
     one_shot_all_reduce, one_block, kRankOrder, kBuffered},
    {C::kAllReduce, "direct", "each block straight to its owner, the result straight to all",
     direct_all_reduce, block_per_rank, kRankOrder, kUnbuffered},
    {C::kAllReduce, "recursive_doubling", "whole vectors between partners at distance 1, 2, 4, ...",
     recursive_doubling_all_reduce, one_block, kOtherOrder, kBuffered},
    {C::kAllReduce, "halving_doubling",
     "halving reduce-scatter, doubling all-gather (Rabenseifner)", halving_doubling_all_reduce,
     block_per_rank, kOtherOrder, kUnbuffered},
    {C::kAllReduce, "ring", "ring reduce-scatter, ring all-gather (Patarasuk, Yuan)",
     ring_all_reduce, block_per_rank, kOtherOrder, kUnbuffered},

    {C::kReduce, "direct", "all ranks send to the root", direct_reduce, one_block, kRankOrder,
     kUnbuffered},
    {C::kReduce, "binomial", "partial sums up a binomial tree", binomial_reduce, one_block,
     kOtherOrder, kUnbuffered},
    {C::kReduce, "direct_gather", "direct reduce-scatter, results to the root",
     direct_gather_reduce, block_per_rank, kRankOrder, kUnbuffered},
    {C::kReduce, "ring_gather", "ring reduce-scatter, results to the root", ring_gather_reduce,
     block_per_rank, kOtherOrder, kUnbuffered},
    {C::kReduce, "chain", "pipelined from rank 0 to the last rank, then to the root", chain_reduce,
     one_block, kRankOrder, kUnbuffered},

    {C::kReduceScatter, "direct", "each block straight to its owner", direct_reduce_scatter_only,
     block_per_rank, kRankOrder, kUnbuffered},
    {C::kReduceScatter, "halving", "recursive halving", halving_reduce_scatter, block_per_rank,
     kOtherOrder, kUnbuffered},
    {C::kReduceScatter, "ring", "partial sums around the ring (Patarasuk, Yuan)",
     ring_reduce_scatter_only, block_per_rank, kOtherOrder, kUnbuffered},

    {C::kBroadcast, "direct", "the root sends to all", direct_broadcast, one_block, kRankOrder,
     kUnbuffered},
    {C::kBroadcast, "binomial", "down a binomial tree", binomial_broadcast, one_block, kRankOrder,
     kUnbuffered},
    {C::kBroadcast, "scatter_direct", "scatter, direct all-gather", scatter_direct_broadcast,
     block_per_rank, kRankOrder, kUnbuffered},
    {C::kBroadcast, "scatter_ring", "scatter, ring all-gather (van de Geijn)",
     scatter_ring_broadcast, block_per_rank, kRankOrder, kUnbuffered},
    {C::kBroadcast, "chain", "pipelined from neighbour to neighbour", chain_broadcast, one_block,
     kRankOrder, kUnbuffered},

    {C::kAllGather, "direct", "each block straight to all", direct_all_gather_only, block_per_rank,
     kRankOrder, kUnbuffered},
    {C::kAllGather, "bruck", "1, 2, 4, ... blocks to the rank that many below (Bruck)",
     bruck_all_gather, block_per_rank, kRankOrder, kUnbuffered},
    {C::kAllGather, "recursive_doubling", "all blocks held, between partners at distance 1, 2, ...",
     doubling_all_gather, block_per_rank, kRankOrder, kUnbuffered},
    {C::kAllGather, "ring", "each block around the ring", ring_all_gather_only, block_per_rank,
     kRankOrder, kUnbuffered},

    {C::kAllToAll, "direct", "each block straight to its rank", direct_all_to_all, block_per_rank,
     kRankOrder, kBuffered, kOwnCounts},
    {C::kAllToAll, "pairwise", "pairs exchange, the higher rank by way of a copy",
     pairwise_all_to_all, block_per_rank, kRankOrder, kUnbuffered, kOwnCounts},
    {C::kAllToAll, "bruck", "packed blocks 1, 2, 4, ... ranks at a time (Bruck)", bruck_all_to_all,
     block_per_rank, kRankOrder, kUnbuffered, kAllCounts, kStages},

    {C::kGather, "direct", "each block straight to the root", direct_gather, block_per_rank,
     kRankOrder, kUnbuffered, kOwnCounts},
    {C::kGather, "binomial", "blocks of subtrees up a binomial tree", binomial_gather,
     block_per_rank, kRankOrder, kUnbuffered, kAllCounts, kStages},

    {C::kScatter, "direct", "each block straight from the root", direct_scatter, block_per_rank,
     kRankOrder, kUnbuffered, kOwnCounts},
    {C::kScatter, "binomial", "blocks of subtrees down a binomial tree", binomial_scatter,
     block_per_rank, kRankOrder, kUnbuffered, kAllCounts, kStages},

    {C::kScan, "direct", "every rank sends to all above it", direct_scan, one_block, kRankOrder,
     kUnbuffered},
    {C::kScan, "recursive_doubling", "partials to the ranks 1, 2, 4, ... above (Hillis, Steele)",
     doubling_inclusive_scan, one_block, kOtherOrder, kUnbuffered},
    {C::kScan, "chain", "partials pipelined from rank 0 to the last", chain_scan, one_block,
     kRankOrder, kUnbuffered},

    {C::kExscan, "direct", "every rank sends to all above it", direct_exscan, one_block, kRankOrder,
     kUnbuffered},
    {C::kExscan, "recursive_doubling", "a shift, then partials to the ranks 1, 2, 4, ... above",
     doubling_exscan, one_block, kOtherOrder, kUnbuffered},
    {C::kExscan, "chain", "partials pipelined from rank 0 to the last", chain_exscan, one_block,
     kRankOrder, kUnbuffered},

    {C::kBarrier, "dissemination", "a word to the ranks 1, 2, 4, ... above (Hensgen)",
     dissemination_barrier, one_block, kRankOrder, kBuffered},
};

constexpr std::array<std::string_view, kCollectives> kNames = {
    "allreduce", "reduce",  "reducescatter", "broadcast", "allgather", "alltoall",
    "gather",    "scatter", "scan",          "exscan",    "barrier"};

}  // namespace

std::span<const Algorithm> algorithms() { return kAlgorithms; }

const Algorithm* find(Collective collective, std::string_view name) {
  for (const Algorithm& a : kAlgorithms) {
    if (a.collective == collective && a.name == name) return &a;
  }
  return nullptr;
}

std::string_view name_of(Collective collective) { return kNames[static_cast<size_t>(collective)]; }

std::optional<Collective> parse_collective(std::string_view name) {
  std::string plain;  // "all_reduce" and "AllReduce" are meant as well
  for (const char c : name) {
    if (c != '_') plain += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  }
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == plain) return static_cast<Collective>(i);
  }
  return std::nullopt;
}

Plan make_plan(const Algorithm& algorithm, int ranks, int rank, int root, bool apart) {
  assert(rank >= 0 && rank < ranks && root >= 0 && root < ranks);
  assert(!apart || algorithm.own_counts);
  const int blocks = algorithm.blocks(ranks);
  Builder builder(algorithm.collective, ranks, rank, root, blocks, apart);
  if (ranks > 1) {
    algorithm.emit(builder);
  } else if (contributions(algorithm.collective, 1, 0) > 0 &&
             algorithm.collective != Collective::kBarrier) {
    builder.copy(Buffer::kOutput, {0, blocks}, Buffer::kInput, 0);  // bit for bit: no reduction
  }
  return std::move(builder).finish(algorithm.name);
}

}  // namespace hetccl::coll

// The algorithms, for the registry. Each emits one rank's steps; none is called with one rank.
// A result is narrow and finalized; `result` and `own` say in which buffer a phase leaves or finds
// the rank's own block, so that phases compose.
#pragma once

#include "lib/coll/builder.h"

namespace hetccl::coll {

// ring.cc
void ring_reduce_scatter(Builder& b, Buffer result);
void ring_all_gather(Builder& b, Buffer own);
void chain_broadcast(Builder& b);
void chain_reduce(Builder& b);
void scatter_ring_broadcast(Builder& b);

// direct.cc
void direct_reduce_scatter(Builder& b, Buffer result);
void direct_all_gather(Builder& b, Buffer own);
void one_shot_all_reduce(Builder& b);
void direct_broadcast(Builder& b);
void direct_reduce(Builder& b);
void scatter_direct_broadcast(Builder& b);
void gather_results(Builder& b);
void direct_all_to_all(Builder& b);
void pairwise_all_to_all(Builder& b);

// halving.cc
void halving_reduce_scatter(Builder& b);
void doubling_all_gather(Builder& b);
void halving_doubling_all_reduce(Builder& b);
void recursive_doubling_all_reduce(Builder& b);

// tree.cc
void binomial_broadcast(Builder& b);
void binomial_reduce(Builder& b);
void bruck_all_gather(Builder& b);
void bruck_all_to_all(Builder& b);
void dissemination_barrier(Builder& b);

// gather.cc
void direct_gather(Builder& b);
void direct_scatter(Builder& b);
void binomial_gather(Builder& b);
void binomial_scatter(Builder& b);

// scan.cc
void direct_scan(Builder& b);
void direct_exscan(Builder& b);
void doubling_inclusive_scan(Builder& b);
void doubling_exscan(Builder& b);
void chain_scan(Builder& b);
void chain_exscan(Builder& b);

}  // namespace hetccl::coll

#include "bench/collectives_page.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <vector>

#include "lib/coll/registry.h"
#include "lib/coll/verify.h"

namespace hetccl::bench {
namespace {

using coll::Algorithm;
using coll::Collective;
using coll::Plan;

constexpr int kPictured = 3;                                  // ranks of a picture
constexpr std::array<int, 3> kCounted = {4, 8, 13};           // ranks of the tables
constexpr const char* kLetters[kPictured] = {"a", "b", "c"};  // whose data

struct Entry {
  Collective collective;
  const char* title;
  const char* text;
  const char* in_place;
  const char* example;
};

constexpr Entry kEntries[] = {
    {Collective::kAllReduce, "AllReduce", "Every rank gets all contributions, combined.",
     "sendbuff == recvbuff.",
     "hetcclAllReduce(send, recv, count, hetcclFloat32, hetcclSum, comm, NULL);"},
    {Collective::kReduce, "Reduce", "The root, here rank 0, gets all contributions, combined.",
     "at the root, sendbuff == recvbuff.",
     "hetcclReduce(send, recv, count, hetcclFloat32, hetcclSum, 0, comm, NULL);"},
    {Collective::kReduceScatter, "ReduceScatter, ReduceScatterv",
     "Every rank gets its block of all contributions, combined.",
     "recvbuff is the rank's own block in sendbuff, and only that block is written.",
     "hetcclReduceScatter(send, recv, count, hetcclFloat32, hetcclSum, comm, NULL);"},
    {Collective::kBroadcast, "Broadcast", "Every rank gets what the root, here rank 0, has.",
     "sendbuff == recvbuff.", "hetcclBroadcast(send, recv, count, hetcclFloat32, 0, comm, NULL);"},
    {Collective::kAllGather, "AllGather, AllGatherv", "Every rank gets the blocks of all.",
     "sendbuff is the rank's own block in recvbuff.",
     "hetcclAllGather(send, recv, count, hetcclFloat32, comm, NULL);"},
    {Collective::kAllToAll, "AllToAll, AllToAllv", "Every rank has a block for each rank.",
     "sendbuff == recvbuff; AllToAllv: with equal counts and displacements.",
     "hetcclAllToAll(send, recv, count, hetcclFloat32, comm, NULL);"},
    {Collective::kGather, "Gather, Gatherv", "The root, here rank 0, gets the blocks of all.",
     "at the root, sendbuff is its own block in recvbuff.",
     "hetcclGather(send, recv, count, hetcclFloat32, 0, comm, NULL);"},
    {Collective::kScatter, "Scatter, Scatterv",
     "Every rank gets its block of what the root, here rank 0, has.",
     "at the root, recvbuff is its own block in sendbuff.",
     "hetcclScatter(send, recv, count, hetcclFloat32, 0, comm, NULL);"},
    {Collective::kScan, "Scan", "Every rank gets the contributions of the ranks up to it.",
     "sendbuff == recvbuff.",
     "hetcclScan(send, recv, count, hetcclFloat32, hetcclSum, comm, NULL);"},
    {Collective::kExscan, "Exscan",
     "Every rank gets the contributions of the ranks below it; rank 0 gets nothing.",
     "sendbuff == recvbuff.",
     "hetcclExscan(send, recv, count, hetcclFloat32, hetcclSum, comm, NULL);"},
    {Collective::kBarrier, "Barrier", "No rank leaves before all have come.", "",
     "hetcclBarrier(comm, NULL);"},
};
static_assert(std::size(kEntries) == coll::kCollectives);

std::string block(int rank, int index) { return kLetters[rank] + std::to_string(index); }

// The sum of block `index` of the first ranks.
std::string sum(int ranks, int index) {
  std::string text;
  for (int r = 0; r < ranks; ++r) text += (r == 0 ? "" : "+") + block(r, index);
  return text;
}

std::string all_blocks(std::string (*cell)(int, int), int rank) {
  std::string text;
  for (int b = 0; b < kPictured; ++b) text += (b == 0 ? "" : " ") + cell(rank, b);
  return text;
}

std::string before(Collective c, int rank) {
  const bool of_root = c == Collective::kBroadcast || c == Collective::kScatter;
  if (c == Collective::kBarrier || (of_root && rank != 0)) return "";
  if (c == Collective::kAllGather || c == Collective::kGather) return block(rank, rank);
  return all_blocks([](int r, int b) { return block(r, b); }, rank);
}

std::string after(Collective c, int rank) {
  switch (c) {
    case Collective::kReduce:
      if (rank != 0) return "";
      [[fallthrough]];
    case Collective::kAllReduce:
    case Collective::kScan:
    case Collective::kExscan: {
      const int ranks = coll::contributions(c, kPictured, rank);
      std::string text;
      for (int b = 0; b < kPictured && ranks > 0; ++b) text += (b == 0 ? "" : " ") + sum(ranks, b);
      return text;
    }
    case Collective::kReduceScatter:
      return sum(kPictured, rank);
    case Collective::kBroadcast:
      return before(c, 0);
    case Collective::kScatter:
      return block(0, rank);
    case Collective::kGather:
      if (rank != 0) return "";
      [[fallthrough]];
    case Collective::kAllGather:
      return all_blocks([](int, int b) { return block(b, b); }, rank);
    case Collective::kAllToAll:
      return all_blocks([](int r, int b) { return block(b, r); }, rank);
    case Collective::kBarrier:
      break;
  }
  return "";
}

std::string picture(Collective c) {
  std::string text = "| rank | before | after |\n|---|---|---|\n";
  for (int r = 0; r < kPictured; ++r) {
    text += "| " + std::to_string(r) + " | " + before(c, r) + " | " + after(c, r) + " |\n";
  }
  return text;
}

// Two digits, without zeros at the end.
std::string shortened(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", value);
  std::string s = text;
  s.erase(s.find_last_not_of('0') + 1);
  if (s.back() == '.') s.pop_back();
  return s;
}

// What a plan costs, counted in it. Bytes are parts of S, the vector or all blocks together.
struct Cost {
  int rounds = 0;
  int messages = 0;               // that the rank with the most sends
  double sent = 0, received = 0;  // by the rank with the most
};

double blocks_received(const std::vector<Plan>& plans, int rank) {
  double blocks = 0;
  for (const Plan& plan : plans) {
    for (const coll::Step& step : plan.steps) {
      if (step.kind == coll::StepKind::kSend && step.peer == rank) blocks += step.blocks.count;
    }
  }
  return blocks;
}

bool count(const Algorithm& algorithm, int ranks, Cost* cost, std::string* error) {
  std::vector<Plan> plans;
  for (int r = 0; r < ranks; ++r) plans.push_back(coll::make_plan(algorithm, ranks, r, 0));
  const auto proof = coll::verify(plans, coll::Buffering::kUnbounded,
                                  std::vector<bool>(static_cast<size_t>(ranks), false));
  if (!proof.ok()) {
    *error = proof.status().message();
    return false;
  }
  cost->rounds = proof->rounds;
  // A barrier's messages are empty.
  const double each = algorithm.collective == Collective::kBarrier ? 0 : 1.0 / plans[0].blocks;
  for (const Plan& plan : plans) {
    int messages = 0;
    double sent = 0;
    for (const coll::Step& step : plan.steps) {
      if (step.kind != coll::StepKind::kSend) continue;
      ++messages;
      sent += step.blocks.count * each;
    }
    cost->messages = std::max(cost->messages, messages);
    cost->sent = std::max(cost->sent, sent);
    cost->received = std::max(cost->received, blocks_received(plans, plan.rank) * each);
  }
  return true;
}

// "2, 3, 4" for the rank counts of the tables.
template <typename Figure>
std::string figures(const std::vector<Cost>& costs, Figure figure) {
  std::string text;
  for (const Cost& cost : costs) text += (text.empty() ? "" : ", ") + figure(cost);
  return text;
}

bool add_algorithms(Collective c, std::string* page, std::string* error) {
  *page +=
      "| algorithm | what it does | rounds | messages | sent, of S | received, of S |"
      " in rank order |\n|---|---|---|---|---|---|---|\n";
  for (const Algorithm& a : coll::algorithms()) {
    if (a.collective != c) continue;
    std::vector<Cost> costs;
    for (const int ranks : kCounted) {
      costs.emplace_back();
      if (!count(a, ranks, &costs.back(), error)) return false;
    }
    *page += "| `" + std::string(a.name) + "` | " + a.help + " | " +
             figures(costs, [](const Cost& x) { return std::to_string(x.rounds); }) + " | " +
             figures(costs, [](const Cost& x) { return std::to_string(x.messages); }) + " | " +
             figures(costs, [](const Cost& x) { return shortened(x.sent); }) + " | " +
             figures(costs, [](const Cost& x) { return shortened(x.received); }) + " | " +
             (!coll::reduces(c) ? "-"
              : a.rank_order    ? "yes"
                                : "no") +
             " |\n";
  }
  return true;
}

constexpr const char* kIntroduction =
    "# Collectives\n\n"
    "Made by `hetccl_info --collectives` from the plans that run; a test compares.\n\n"
    "In pictures a1 is block 1 of rank 0's data, b1 of rank 1's. The tables are for 4, 8 and 13\n"
    "ranks on as many nodes, root 0. A round is a message that must arrive before the next can\n"
    "leave. Messages and bytes are those of the rank with the most; S is the vector, or all "
    "blocks\n"
    "together, in a type that is summed as it is (partial sums of 16-bit floats travel in 32 "
    "bits).\n"
    "In rank order means ((0 + 1) + 2) + ... exactly; the others have an order of their own, the\n"
    "same in every run and, where ranks get the same result, on every rank.\n"
    "v-forms use the algorithms of their plain forms; AllToAllv, Gatherv and Scatterv, whose "
    "counts\n"
    "no rank knows all of, only those that need no other rank's counts.\n";

}  // namespace

std::string collectives_page(std::string* error) {
  std::string page = kIntroduction;
  for (const Entry& entry : kEntries) {
    page += "\n## " + std::string(entry.title) + "\n\n" + entry.text + "\n\n";
    if (entry.collective != Collective::kBarrier) {
      page += picture(entry.collective) + "\nIn place: " + entry.in_place + "\n\n";
    }
    page += std::string("```c\n") + entry.example + "\n```\n\n";
    if (!add_algorithms(entry.collective, &page, error)) return "";
  }
  return page;
}

}  // namespace hetccl::bench

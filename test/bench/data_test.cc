#include "bench/data.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "bench/call.h"

namespace hetccl::bench {
namespace {

template <typename T>
std::vector<T> elements(const Pattern& pattern, uint64_t first, size_t count) {
  std::vector<T> values(count);
  pattern.fill(values.data(), count, first);
  return values;
}

// What comes out is what an independent sum over the ranks gives.
TEST(Data, SumsOfFloatsAreThoseOfTheContributions) {
  for (int ranks : {1, 2, 3, 7, 64}) {
    std::vector<float> sums(kPeriod, 0.0f);
    bool depends_on_rank = ranks == 1;
    std::vector<float> first =
        elements<float>(contribution(hetcclFloat32, hetcclSum, ranks, 0), 0, kPeriod);
    for (int r = 0; r < ranks; ++r) {
      auto mine = elements<float>(contribution(hetcclFloat32, hetcclSum, ranks, r), 0, kPeriod);
      for (size_t i = 0; i < kPeriod; ++i) sums[i] += mine[i];
      depends_on_rank = depends_on_rank || mine != first;
    }
    EXPECT_TRUE(depends_on_rank);
    EXPECT_EQ(sums, elements<float>(reduced(hetcclFloat32, hetcclSum, ranks), 0, kPeriod));
  }
}

TEST(Data, AveragesOfIntegersAreExact) {
  for (int ranks : {1, 2, 5, 8}) {
    std::vector<int> sums(kPeriod, 0);
    for (int r = 0; r < ranks; ++r) {
      auto mine = elements<int8_t>(contribution(hetcclInt8, hetcclAvg, ranks, r), 0, kPeriod);
      for (size_t i = 0; i < kPeriod; ++i) sums[i] += mine[i];
    }
    auto averages = elements<int8_t>(reduced(hetcclInt8, hetcclAvg, ranks), 0, kPeriod);
    for (size_t i = 0; i < kPeriod; ++i) EXPECT_EQ(sums[i], averages[i] * ranks);
  }
}

TEST(Data, LowestIndexWinsAmongEqualValues) {
  auto results = elements<std::pair<float, int>>(reduced(hetcclFloatInt, hetcclMaxLoc, 5), 0, 200);
  std::vector<std::vector<std::pair<float, int>>> terms;
  for (int r = 0; r < 5; ++r) {
    terms.push_back(
        elements<std::pair<float, int>>(contribution(hetcclFloatInt, hetcclMaxLoc, 5, r), 0, 200));
  }
  for (size_t i = 0; i < results.size(); ++i) {
    std::pair<float, int> best = terms[0][i];
    for (const auto& t : terms) {
      if (t[i].first > best.first) best = t[i];
    }
    EXPECT_EQ(results[i], best) << i;
  }
}

// The bit patterns of OCP and IEEE formats for values that are easy to write down.
TEST(Data, SmallFloatsAreEncodedExactly) {
  std::vector<uint8_t> e5m2 = elements<uint8_t>(reduced(hetcclFloat8e5m2, hetcclProd, 2), 0, 9);
  for (uint8_t bits : e5m2) EXPECT_TRUE(bits == 0x3C || bits == 0x40 || bits == 0x44) << +bits;
  std::vector<uint8_t> e4m3 = elements<uint8_t>(reduced(hetcclFloat8e4m3, hetcclProd, 2), 0, 9);
  for (uint8_t bits : e4m3) EXPECT_TRUE(bits == 0x38 || bits == 0x40 || bits == 0x48) << +bits;
  std::vector<uint16_t> half = elements<uint16_t>(reduced(hetcclFloat16, hetcclProd, 2), 0, 9);
  for (auto bits : half) EXPECT_TRUE(bits == 0x3C00 || bits == 0x4000 || bits == 0x4400) << bits;
  std::vector<uint16_t> bf16 = elements<uint16_t>(reduced(hetcclBfloat16, hetcclProd, 2), 0, 9);
  for (auto bits : bf16) EXPECT_TRUE(bits == 0x3F80 || bits == 0x4000 || bits == 0x4080) << bits;
}

TEST(Data, EveryTypeAndOperatorHasResultsThatVerify) {
  for (int t = 0; t < hetcclNumTypes; ++t) {
    for (int o = 0; o < hetcclNumOps; ++o) {
      auto type = static_cast<DataType>(t);
      auto op = static_cast<RedOp>(o);
      if (!supports(type, op)) continue;
      for (int ranks : {1, 4, 300}) {
        Pattern result = reduced(type, op, ranks);
        std::vector<std::byte> buffer(3000 * size_of(type));
        result.fill(buffer.data(), 3000, 17);
        EXPECT_EQ(result.count_wrong(buffer.data(), 3000, 17), 0u) << t << " " << o;
        buffer[1234 * size_of(type)] ^= std::byte{1};
        EXPECT_EQ(result.count_wrong(buffer.data(), 3000, 17), 1u) << t << " " << o;
      }
    }
  }
}

TEST(Data, PaddingOfPairsIsNotLookedAt) {
  Pattern result = reduced(hetcclDoubleInt, hetcclMinLoc, 3);
  struct Pair {
    double value;
    int index;
    int padding;
  };
  std::vector<Pair> pairs(10);
  result.fill(pairs.data(), pairs.size(), 0);
  pairs[3].padding = 77;
  EXPECT_EQ(result.count_wrong(pairs.data(), pairs.size(), 0), 0u);
  pairs[4].index += 1;
  EXPECT_EQ(result.count_wrong(pairs.data(), pairs.size(), 0), 1u);
}

// The ranks whose sum rank r gets.
size_t summed(Kind kind, size_t ranks, size_t r) {
  return kind == Kind::kScan ? r + 1 : kind == Kind::kExscan ? r : ranks;
}

void sum_up(const Call& c, size_t r, const std::vector<std::vector<std::byte>>& inputs) {
  const bool scattered = c.kind() == Kind::kReduceScatter || c.kind() == Kind::kReduceScatterv;
  size_t at = scattered ? c.sent().displacements[r] : 0, of = summed(c.kind(), inputs.size(), r);
  for (size_t i = 0; i < c.received().total && of > 0; ++i) {
    int sum = 0;
    for (size_t s = 0; s < of; ++s) {
      int term;
      std::memcpy(&term, inputs[s].data() + (at + i) * sizeof term, sizeof term);
      sum += term;
    }
    std::memcpy(c.recv() + i * sizeof sum, &sum, sizeof sum);
  }
}

// Runs a collective by hand over the calls of all ranks, as any right library would.
void perform(const std::vector<Call>& calls, const std::vector<std::vector<std::byte>>& inputs) {
  for (size_t r = 0; r < calls.size(); ++r) {
    const Call& c = calls[r];
    const bool root = static_cast<int>(r) == c.root();
    if (reduces(c.kind())) {
      if (c.kind() != Kind::kReduce || root) sum_up(c, r, inputs);
      continue;
    }
    const bool one_receives = plain_name_of(c.kind()) == "gather";
    const bool one_sends = plain_name_of(c.kind()) == "scatter" || c.kind() == Kind::kBroadcast;
    for (size_t s = 0; s < calls.size(); ++s) {
      if ((one_receives && !root) || (one_sends && static_cast<int>(s) != c.root())) continue;
      // Block r of what s sends, if it sends several; block s of what r gets, if it gets several.
      const Call::Blocks &out = calls[s].sent(), &in = c.received();
      const size_t from = out.counts.size() > 1 ? r : 0, to = in.counts.size() > 1 ? s : 0;
      ASSERT_EQ(out.counts[from], in.counts[to]);
      std::memcpy(c.recv() + in.displacements[to] * 4,
                  inputs[s].data() + out.displacements[from] * 4, in.counts[to] * 4);
    }
  }
}

constexpr Kind kMoving[] = {Kind::kAllReduce,      Kind::kReduce,    Kind::kReduceScatter,
                            Kind::kReduceScatterv, Kind::kBroadcast, Kind::kAllGather,
                            Kind::kAllGatherv,     Kind::kAllToAll,  Kind::kAllToAllv,
                            Kind::kGather,         Kind::kGatherv,   Kind::kScatter,
                            Kind::kScatterv,       Kind::kScan,      Kind::kExscan};

class CallOfKind : public testing::TestWithParam<std::tuple<Kind, Skew, bool>> {};

TEST_P(CallOfKind, VerifiesARightResultAndCountsAWrongOne) {
  auto [kind, skew, in_place] = GetParam();
  constexpr int kRanks = 5, kRoot = 1;
  Shape shape = shape_of_count(kind, hetcclInt32, kRanks, 1500, skew);
  std::vector<std::vector<std::byte>> send(kRanks), recv(kRanks), inputs;
  std::vector<Call> calls;
  for (int r = 0; r < kRanks; ++r) {
    send[r].resize(shape.bytes);
    recv[r].resize(shape.bytes);
    calls.emplace_back(kind, hetcclInt32, hetcclSum, kRoot, shape, in_place, Place{kRanks, r},
                       send[r].data(), recv[r].data());
    const Call& c = calls.back();
    EXPECT_LE(c.sent().total, shape.send_elements);
    EXPECT_LE(c.received().total, shape.recv_elements);
    c.spoil_output();
    c.write_input();
    inputs.emplace_back(c.send(), c.send() + c.sent().total * sizeof(int));
  }
  uint64_t before = 0;
  for (const Call& c : calls) before += c.count_wrong();
  EXPECT_GT(before, 0u);
  perform(calls, inputs);
  for (const Call& c : calls) EXPECT_EQ(c.count_wrong(), 0u);
  const Call& at_root = calls[kRoot];
  if (at_root.received().total == 0) return;  // its block is empty
  at_root.recv()[4 * (at_root.received().total - 1)] ^= std::byte{1};
  EXPECT_EQ(at_root.count_wrong(), 1u);
}
INSTANTIATE_TEST_SUITE_P(Data, CallOfKind,
                         testing::Combine(testing::ValuesIn(kMoving),
                                          testing::Values(Skew::kEven, Skew::kSkewed, Skew::kZero),
                                          testing::Bool()));

TEST(Call, ChangedInputCountsAsWrong) {
  Shape shape = shape_of_count(Kind::kAllReduce, hetcclInt32, 1, 100);
  std::vector<std::byte> send(400), recv(400);
  Call call(Kind::kAllReduce, hetcclInt32, hetcclSum, 0, shape, false, {1, 0}, send.data(),
            recv.data());
  call.write_input();
  std::memcpy(recv.data(), send.data(), 400);
  EXPECT_EQ(call.count_wrong(), 0u);
  send[8] ^= std::byte{1};
  EXPECT_EQ(call.count_wrong(), 1u);
}

}  // namespace
}  // namespace hetccl::bench

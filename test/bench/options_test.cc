#include "bench/options.h"

#include <gtest/gtest.h>

namespace hetccl::bench {
namespace {

Parsed parse(std::vector<const char*> arguments, int ranks = 4) {
  arguments.insert(arguments.begin(), "hetccl_perf");
  return parse_options(static_cast<int>(arguments.size()), arguments.data(), ranks);
}

TEST(Options, DefaultsAreThoseOfTheManual) {
  Parsed p = parse({"allreduce"});
  ASSERT_TRUE(p.run) << p.message;
  EXPECT_EQ(p.options.begin, 8u);
  EXPECT_EQ(p.options.end, 128u << 20);
  EXPECT_EQ(p.options.factor, 4u);
  EXPECT_EQ(p.options.type, hetcclFloat32);
  EXPECT_EQ(p.options.op, hetcclSum);
  EXPECT_TRUE(p.options.in_place && p.options.out_of_place && p.options.check);
}

TEST(Options, SizesTakeSuffixes) {
  Parsed p = parse({"allgather", "-b", "64M", "-e", "70M", "-i", "2M"});
  ASSERT_TRUE(p.run) << p.message;
  EXPECT_EQ(p.options.begin, 64u << 20);
  EXPECT_EQ(p.options.end, 70u << 20);
  EXPECT_EQ(p.options.increment, 2u << 20);
  EXPECT_EQ(parse({"reduce", "-b", "64k"}).options.begin, 65536u);
  EXPECT_EQ(parse({"reduce", "-e", "1.5G"}).options.end, 1610612736u);
}

TEST(Options, NamesMayBeSpelledWithUnderscores) {
  EXPECT_EQ(parse({"Reduce_Scatter"}).options.kind, Kind::kReduceScatter);
  EXPECT_EQ(parse({"all-to-all"}).options.kind, Kind::kAllToAll);
}

TEST(Options, SkewIsOfCallsWithCounts) {
  EXPECT_EQ(parse({"all-to-all-v", "--skew", "zero"}).options.skew, Skew::kZero);
  EXPECT_EQ(parse({"gatherv"}).options.skew, Skew::kEven);
  EXPECT_EQ(parse({"gatherv", "--algo", "direct"}).options.algorithm, "gather:direct");
}

TEST(Options, AlgorithmBelongsToTheCollective) {
  EXPECT_EQ(parse({"allreduce", "--algo", "ring"}).options.algorithm, "allreduce:ring");
  EXPECT_EQ(parse({"allreduce", "--algo", "*:ring"}).options.algorithm, "*:ring");
  EXPECT_EQ(parse({"replay", "f", "--algo", "ring"}).options.algorithm, "*:ring");
}

struct Refused {
  std::vector<const char*> arguments;
  const char* named;  // what the message must say
};
void PrintTo(const Refused& r, std::ostream* out) { *out << r.named; }
class RefusedOptions : public testing::TestWithParam<Refused> {};

TEST_P(RefusedOptions, AreNamed) {
  Parsed p = parse(GetParam().arguments);
  EXPECT_FALSE(p.run);
  EXPECT_NE(p.exit_code, 0);
  EXPECT_NE(p.message.find(GetParam().named), std::string::npos) << p.message;
}
INSTANTIATE_TEST_SUITE_P(
    Options, RefusedOptions,
    testing::Values(
        Refused{{}, "collective"}, Refused{{"allreduse"}, "'allreduse'"},
        Refused{{"allreduce", "-b", "8", "-e", "4"}, "-b 8"},
        Refused{{"allreduce", "-b", "2x"}, "-b"}, Refused{{"allreduce", "-e", "16E"}, "-e"},
        Refused{{"allreduce", "-i", "0"}, "-i"}, Refused{{"allreduce", "-i", "8", "-f", "2"}, "-f"},
        Refused{{"allreduce", "-f", "1"}, "-f"}, Refused{{"allreduce", "-n", "0"}, "--iters"},
        Refused{{"allreduce", "-d", "float3"}, "float32"},
        Refused{{"allreduce", "-o", "summ"}, "'summ'"},
        Refused{{"allreduce", "-o", "band"}, "float32"}, Refused{{"exscan", "-o", "avg"}, "exscan"},
        Refused{{"gather", "--skew", "even"}, "--skew"},
        Refused{{"gatherv", "--skew", "odd"}, "skewed"},
        Refused{{"broadcast", "--root", "4"}, "--root"},
        Refused{{"broadcast", "--root", "-1"}, "--root"},
        Refused{{"allreduce", "--memory", "cudda"}, "--memory: 'cudda' is unknown"},
        Refused{{"allreduce", "--memory", "host,,host,host"}, "3 kinds for 4 ranks"},
        Refused{{"allreduce", "--memory", "host,sim:hip"}, "--memory: 2 kinds for 4 ranks"},
        Refused{{"allreduce", "--memory", "host,host,host,host,cuda"}, "5 kinds for 4 ranks"},
        Refused{{"allreduce", "--memory", "host,host,cuda,host", "--compare", "mpi"},
                "host+host+cuda+host"},
        Refused{{"allreduce", "--stream", "cuda"}, "native"},
        Refused{{"allreduce", "--compare", "nccl"}, "mpi"},
        Refused{{"allreduce", "--format", "xml"}, "json"},
        Refused{{"allreduce", "--in-place", "--out-of-place"}, "place"},
        Refused{{"replay"}, "FILE"}, Refused{{"allreduce", "f"}, "replay"},
        Refused{{"allreduce", "--nonsense"}, "--nonsense"}));

TEST(Options, HelpIsNoFailure) {
  Parsed p = parse({"--help"});
  EXPECT_FALSE(p.run);
  EXPECT_EQ(p.exit_code, 0);
  EXPECT_NE(p.message.find("--compare"), std::string::npos);
}

std::vector<std::string> names_of(const Parsed& p) {
  std::vector<std::string> names;
  for (const MemoryKind& kind : p.options.memory) names.push_back(kind.name);
  return names;
}

TEST(Options, MemoryListHasOneKindForEachRank) {
  Parsed p = parse({"allreduce", "--memory", "host,sim:cuda,sim:hip,host-lib"});
  ASSERT_TRUE(p.run) << p.message;
  EXPECT_EQ(names_of(p), (std::vector<std::string>{"host", "sim:cuda", "sim:hip", "host-lib"}));
  EXPECT_EQ(p.options.memory[1].kind, hetcclMemorySimCuda);
  EXPECT_TRUE(p.options.memory[3].of_library);
  EXPECT_EQ(memory_label(p.options.memory), "host+sim:cuda+sim:hip+host-lib");
}

TEST(Options, OneMemoryKindServesAllRanks) {
  Parsed p = parse({"allreduce", "--memory", "cuda"}, 3);
  ASSERT_TRUE(p.run) << p.message;
  EXPECT_EQ(names_of(p), (std::vector<std::string>{"cuda", "cuda", "cuda"}));
  EXPECT_EQ(memory_label(p.options.memory), "cuda");
  EXPECT_EQ(names_of(parse({"allreduce"}, 2)), (std::vector<std::string>{"host", "host"}));
}

TEST(Options, MpiIsComparedOnHostMemoryOfAnyKind) {
  EXPECT_TRUE(parse({"allreduce", "--memory", "host,host-lib", "--compare", "mpi"}, 2).run);
}

TEST(Options, StreamsAreNamed) {
  EXPECT_EQ(parse({"allreduce"}).options.stream, StreamKind::kNone);
  EXPECT_EQ(parse({"allreduce", "--stream", "hetccl"}).options.stream, StreamKind::kLibrary);
  EXPECT_EQ(parse({"allreduce", "--stream", "native"}).options.stream, StreamKind::kNative);
}

}  // namespace
}  // namespace hetccl::bench

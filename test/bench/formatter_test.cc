#include "bench/formatter.h"

#include <gtest/gtest.h>

#include <cmath>

namespace hetccl::bench {
namespace {

Measurement measured(Kind kind, int ranks, uint64_t bytes, double us) {
  Measurement m;
  m.kind = kind;
  m.ranks = ranks;
  m.bytes = bytes;
  m.count = bytes / 4;
  m.time = {us, us, us, us};
  m.algorithm = "ring";
  m.memory = "host";
  return m;
}

struct Bandwidth {
  Kind kind;
  double bus;
};
void PrintTo(const Bandwidth& b, std::ostream* out) { *out << name_of(b.kind); }
class BusBandwidth : public testing::TestWithParam<Bandwidth> {};

TEST_P(BusBandwidth, HasTheFactorOfNcclTests) {
  Measurement m = measured(GetParam().kind, 8, 800'000'000, 10'000);
  EXPECT_DOUBLE_EQ(algorithm_bandwidth(m), 80);
  EXPECT_DOUBLE_EQ(bus_bandwidth(m), GetParam().bus);
}
INSTANTIATE_TEST_SUITE_P(
    Formatter, BusBandwidth,
    testing::Values(Bandwidth{Kind::kAllGather, 70}, Bandwidth{Kind::kReduceScatter, 70},
                    Bandwidth{Kind::kAllToAll, 70}, Bandwidth{Kind::kAllReduce, 140},
                    Bandwidth{Kind::kBroadcast, 80}, Bandwidth{Kind::kReduce, 80},
                    Bandwidth{Kind::kGather, 70}, Bandwidth{Kind::kScatterv, 70},
                    Bandwidth{Kind::kAllToAllv, 70}, Bandwidth{Kind::kScan, 80},
                    Bandwidth{Kind::kExscan, 80}));

TEST(Formatter, OneRankMovesNothing) {
  for (Kind kind : {Kind::kAllGather, Kind::kReduceScatter, Kind::kAllToAll, Kind::kAllReduce}) {
    EXPECT_EQ(bus_bandwidth(measured(kind, 1, 800, 10)), 0);
  }
}

TEST(Formatter, ZeroTimeAndZeroBytesStayFinite) {
  std::vector<Measurement> all = {measured(Kind::kAllReduce, 2, 800, 0),
                                  measured(Kind::kAllReduce, 1, 0, 5),
                                  measured(Kind::kBarrier, 4, 0, 1)};
  for (Measurement& m : all) m.compared = true;
  for (const Measurement& m : all) {
    EXPECT_TRUE(std::isfinite(bus_bandwidth(m)));
    EXPECT_TRUE(std::isfinite(speedup(m)));
  }
  for (const std::string& text : {to_text(all, {}), to_csv(all)}) {
    EXPECT_EQ(text.find("inf"), std::string::npos) << text;
    EXPECT_EQ(text.find("nan"), std::string::npos) << text;
  }
}

TEST(Formatter, SummaryIsByNearestRank) {
  std::vector<double> samples;
  for (int i = 200; i >= 1; --i) samples.push_back(i);
  Times t = summarize(samples);
  EXPECT_EQ(t.min, 1);
  EXPECT_EQ(t.median, 100.5);
  EXPECT_EQ(t.p99, 198);
  EXPECT_EQ(t.max, 200);
  EXPECT_EQ(summarize({3, 1, 2}).median, 2);
  EXPECT_EQ(summarize({7}).p99, 7);
}

std::vector<std::string> words(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> all;
  for (std::string word; stream >> word;) all.push_back(word);
  return all;
}

std::vector<std::string> data_lines(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) {
    if (!line.empty() && line[0] != '#') lines.push_back(line);
  }
  return lines;
}

TEST(Formatter, TextHasBothPlacesOnOneLine) {
  std::vector<Measurement> all = {measured(Kind::kAllReduce, 8, 800'000'000, 10'000),
                                  measured(Kind::kAllReduce, 8, 800'000'000, 20'000)};
  all[1].in_place = true;
  all[1].wrong = 3;
  std::string text = to_text(all, {{"version", "1.2.3"}, {"commit", "abc"}, {"mpi", "Some MPI"}});
  std::vector<std::string> lines = data_lines(text);
  ASSERT_EQ(lines.size(), 1u) << text;
  EXPECT_EQ(words(lines[0]), (std::vector<std::string>{"800000000", "200000000", "float32", "sum",
                                                       "-1", "10000", "80.00", "140.00", "0",
                                                       "20000", "40.00", "70.00", "3", "ring"}));
  EXPECT_NE(text.find("# Out of bounds values : 3 FAILED"), std::string::npos) << text;
  EXPECT_NE(text.find("# Avg bus bandwidth    : 105"), std::string::npos) << text;
  EXPECT_NE(text.find("1.2.3 (abc), Some MPI"), std::string::npos) << text;
}

TEST(Formatter, TextLeavesOutWhatWasNotMeasured) {
  std::vector<Measurement> all = {measured(Kind::kBroadcast, 2, 64, 1)};
  all[0].in_place = true;
  all[0].root = 1;
  std::vector<std::string> lines = data_lines(to_text(all, {}));
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(words(lines[0]),
            (std::vector<std::string>{"64", "16", "float32", "none", "1", "-", "-", "-", "-",
                                      "1.00", "0.06", "0.06", "0", "ring"}));
}

TEST(Formatter, ComparisonAddsTimeAndRatio) {
  std::vector<Measurement> all = {measured(Kind::kAllReduce, 2, 4096, 10)};
  all[0].compared = true;
  all[0].mpi_time = {20, 25, 30, 30};
  std::vector<std::string> line = words(data_lines(to_text(all, {}))[0]);
  EXPECT_EQ(line[9], "25.00");
  EXPECT_EQ(line[10], "2.50");
  EXPECT_NE(to_text(all, {}).find("2.50 (geometric mean"), std::string::npos);
  EXPECT_DOUBLE_EQ(to_json(all[0])["speedup"], 2.5);
}

TEST(Formatter, JsonHasTheFieldsOfTheManual) {
  nlohmann::json j = to_json(measured(Kind::kReduce, 4, 64, 2));
  for (const char* key :
       {"collective", "bytes", "count", "dtype", "op", "root", "in_place", "algorithm", "memory",
        "ranks", "time_us", "algbw_gbps", "busbw_gbps", "wrong"}) {
    EXPECT_TRUE(j.contains(key)) << key;
  }
  for (const char* key : {"min", "median", "p99", "max"}) {
    EXPECT_TRUE(j["time_us"].contains(key)) << key;
  }
  EXPECT_FALSE(j.contains("speedup"));
}

TEST(Formatter, CsvRowsHaveAsManyFieldsAsTheHeading) {
  std::vector<Measurement> all = {measured(Kind::kAllReduce, 2, 64, 1),
                                  measured(Kind::kBarrier, 2, 0, 1)};
  auto fields = [](const std::string& line) { return std::count(line.begin(), line.end(), ','); };
  for (bool compared : {false, true}) {
    all[0].compared = compared;
    Step step;
    step.compared = compared;
    std::istringstream stream(step_to_csv(all, step));
    std::string heading, line;
    std::getline(stream, heading);
    int rows = 0;
    for (; std::getline(stream, line); ++rows) EXPECT_EQ(fields(line), fields(heading)) << line;
    EXPECT_EQ(rows, 3);
  }
}

TEST(Formatter, StepIsTheLastLineBeforeTheFooter) {
  std::vector<Measurement> calls = {measured(Kind::kAllReduce, 2, 64, 1)};
  Step step{{3, 4, 5, 5}, true, {7, 8, 9, 9}};
  std::string text = step_to_text(calls, step, {});
  EXPECT_NE(text.find("# Step of 1 calls    : 4.00 us, MPI 8.00 us, ratio 2.00"), std::string::npos)
      << text;
  EXPECT_EQ(to_json(step)["speedup"], 2);
}

TEST(Text, RankTableTellsDeviceAndPaths) {
  const nlohmann::json paths = {
      {"0", {{"path", "staged"}}}, {"2", {{"path", "ipc"}}}, {"10", {{"path", "ipc"}}}};
  const nlohmann::json meta = {
      {"ranks",
       {{{"rank", 0}, {"host", "a"}, {"pid", 7}, {"memory", "host"}, {"device", ""}},
        {{"rank", 1},
         {"host", "a"},
         {"pid", 8},
         {"memory", "cuda"},
         {"device", "cuda:1 X"},
         {"paths", paths}}}}};
  const std::vector<Measurement> none;
  const std::string text = to_text(none, meta);
  EXPECT_NE(text.find("#  rank 0 on a pid 7 memory host\n"), std::string::npos) << text;
  EXPECT_NE(text.find("#  rank 1 on a pid 8 memory cuda on cuda:1 X: ipc to 2 10, staged to 0\n"),
            std::string::npos)
      << text;
}

}  // namespace
}  // namespace hetccl::bench

#include "bench/workload.h"

#include <gtest/gtest.h>

namespace hetccl::bench {
namespace {

TEST(Workload, LinesBecomeCalls) {
  std::vector<WorkloadCall> calls;
  std::string error;
  ASSERT_TRUE(
      parse_workload("# a step\n\nallreduce 1000 float32 sum  # gradients\n"
                     "broadcast 5 int8 none 2\nall_gather 7 half\nbarrier\n"
                     "reduce 3 double max 1",
                     "f", &calls, &error))
      << error;
  ASSERT_EQ(calls.size(), 5u);
  EXPECT_EQ(calls[0].kind, Kind::kAllReduce);
  EXPECT_EQ(calls[0].count, 1000u);
  EXPECT_EQ(calls[1].root, 2);
  EXPECT_EQ(calls[2].type, hetcclFloat16);
  EXPECT_EQ(calls[3].kind, Kind::kBarrier);
  EXPECT_EQ(calls[4].op, hetcclMax);
  EXPECT_EQ(calls[4].root, 1);
}

struct Bad {
  const char* text;
  const char* where;
  const char* what;
};
void PrintTo(const Bad& b, std::ostream* out) { *out << b.what; }
class BadWorkload : public testing::TestWithParam<Bad> {};

TEST_P(BadWorkload, IsRefusedWithFileAndLine) {
  std::vector<WorkloadCall> calls;
  std::string error;
  EXPECT_FALSE(parse_workload(GetParam().text, "list.txt", &calls, &error));
  EXPECT_EQ(error.find(GetParam().where), 0u) << error;
  EXPECT_NE(error.find(GetParam().what), std::string::npos) << error;
}
INSTANTIATE_TEST_SUITE_P(
    Workload, BadWorkload,
    testing::Values(Bad{"", "list.txt:1:", "no call"}, Bad{"# only\n", "list.txt:1:", "no call"},
                    Bad{"barrier\nallreduse 1 float sum\n", "list.txt:2:", "'allreduse'"},
                    Bad{"allreduce -1 float sum\n", "list.txt:1:", "'-1'"},
                    Bad{"allreduce 1x float sum\n", "list.txt:1:", "'1x'"},
                    Bad{"allreduce 99999999999999999999 float sum\n", "list.txt:1:", "count"},
                    Bad{"allreduce 1 flt sum\n", "list.txt:1:", "'flt'"},
                    Bad{"allreduce 1 float\n", "list.txt:1:", "operator"},
                    Bad{"allreduce 1 float summ\n", "list.txt:1:", "'summ'"},
                    Bad{"allreduce 1 float band\n", "list.txt:1:", "not defined"},
                    Bad{"reduce 1 float sum x\n", "list.txt:1:", "'x'"},
                    Bad{"allreduce 1\n", "list.txt:1:", "words"},
                    Bad{"allreduce 1 float sum 0 0\n", "list.txt:1:", "words"}));

}  // namespace
}  // namespace hetccl::bench

#include "lib/base/settings.h"

#include <gtest/gtest.h>

#include <random>

namespace hetccl {
namespace {

Result<Settings> parse(std::vector<std::string> environment) {
  std::vector<std::string> unknown;
  return parse_settings(environment, &unknown);
}

TEST(Settings, DefaultsAreAllowedValues) {
  auto s = parse({});
  ASSERT_TRUE(s.ok()) << s.status().message();
  EXPECT_EQ(s->timeout_s, 600);
  EXPECT_TRUE(s->check);
}

TEST(Settings, ValuesAreRead) {
  auto s = parse({"HETCCL_TIMEOUT=2.5", "HETCCL_CHUNK_SIZE=64K", "HETCCL_ALGO=allreduce:ring",
                  "HETCCL_CHECK=0", "HETCCL_DEBUG=info", "PATH=/bin", "HETCCL_DEPTH=8"});
  ASSERT_TRUE(s.ok()) << s.status().message();
  EXPECT_EQ(s->timeout_s, 2.5);
  EXPECT_EQ(s->chunk_bytes, 65536u);
  EXPECT_EQ(s->algo, "allreduce:ring");
  EXPECT_FALSE(s->check);
  EXPECT_EQ(s->depth, 8u);
  EXPECT_EQ(s->log_level(), log::Level::kInfo);
}

// Every variable, every kind of wrong value: the error names all three.
TEST(Settings, BadValuesNameVariableValueAndWhatIsAllowed) {
  for (const SettingRow& row : setting_rows()) {
    if (row.type == SettingRow::Type::kText) continue;
    for (const char* bad : {"", "abc", "-1", "1e3", "64Q", "99999999999999999999999", " 8k ", "tru",
                            "nan", "inf", "0x10", "8kk", "--", "+1"}) {
      const std::string name = "HETCCL_" + std::string(row.name);
      auto s = parse({name + "=" + bad});
      ASSERT_FALSE(s.ok()) << name << "=" << bad;
      EXPECT_EQ(s.status().code(), hetcclInvalidArgument);
      const std::string& text = s.status().message();
      EXPECT_NE(text.find(name), std::string::npos) << text;
      EXPECT_NE(text.find("\"" + std::string(bad) + "\""), std::string::npos) << text;
      EXPECT_NE(text.find(row.allowed), std::string::npos) << text;
    }
  }
}

TEST(Settings, RangesHold) {
  EXPECT_FALSE(parse({"HETCCL_DEPTH=1"}).ok());
  EXPECT_FALSE(parse({"HETCCL_DEPTH=65"}).ok());
  EXPECT_FALSE(parse({"HETCCL_DEPTH=2.5"}).ok());
  EXPECT_FALSE(parse({"HETCCL_CHUNK_SIZE=100"}).ok());
  EXPECT_FALSE(parse({"HETCCL_CHUNK_SIZE=17M"}).ok());
  EXPECT_TRUE(parse({"HETCCL_CHUNK_SIZE=0"}).ok());
  EXPECT_TRUE(parse({"HETCCL_CHUNK_SIZE=1.5M"}).ok());
}

TEST(Settings, UnknownNamesComeWithTheNearest) {
  std::vector<std::string> unknown;
  ASSERT_TRUE(
      parse_settings(std::vector<std::string>{"HETCCL_TIMOUT=3", "OTHER=1"}, &unknown).ok());
  ASSERT_EQ(unknown, std::vector<std::string>{"HETCCL_TIMOUT"});
  EXPECT_EQ(nearest_setting("HETCCL_TIMOUT"), "HETCCL_TIMEOUT");
  EXPECT_EQ(nearest_setting("HETCCL_ALGOS"), "HETCCL_ALGO");
}

TEST(Settings, AgreedValuesSurviveTheExchange) {
  auto theirs = parse({"HETCCL_ALGO=*:ring", "HETCCL_TIMEOUT=0.25", "HETCCL_DEPTH=16",
                       "HETCCL_REPRODUCIBLE=1", "HETCCL_ISA=portable"});
  auto mine = parse({"HETCCL_ISA=avx2"});
  ASSERT_TRUE(theirs.ok() && mine.ok());
  ASSERT_TRUE(adopt_agreed_values(agreed_values(*theirs), &*mine).ok());
  EXPECT_EQ(agreed_values(*theirs), agreed_values(*mine));
  EXPECT_EQ(mine->timeout_s, 0.25);
  EXPECT_EQ(mine->isa, "avx2") << "each rank's own";
  std::vector<std::string> few = agreed_values(*theirs);
  few.pop_back();
  EXPECT_FALSE(adopt_agreed_values(few, &*mine).ok());
}

// Random bytes: parsed or refused, and what is accepted can be written and read again.
TEST(Settings, FuzzedValues) {
  std::mt19937_64 random(20240607);
  const std::string alphabet =
      "0123456789.eE+-kKmMgG ^:;,*|\"\\\n\xff\x01"
      "autonesringwarn";
  int accepted = 0;
  for (int round = 0; round < 200000; ++round) {
    const auto rows = setting_rows();
    const SettingRow& row = rows[random() % rows.size()];
    std::string value;
    for (size_t k = random() % 8; k > 0; --k) value += alphabet[random() % alphabet.size()];
    auto s = parse({"HETCCL_" + std::string(row.name) + "=" + value});
    if (!s.ok()) {
      ASSERT_EQ(s.status().code(), hetcclInvalidArgument);
      continue;
    }
    ++accepted;
    auto again = parse({"HETCCL_" + std::string(row.name) + "=" + value_text(*s, row)});
    ASSERT_TRUE(again.ok()) << row.name << " " << value << ": " << again.status().message();
    ASSERT_EQ(value_text(*s, row), value_text(*again, row));
  }
  EXPECT_GT(accepted, 1000);
}

}  // namespace
}  // namespace hetccl

// The tables of types and operators against the rules written out another way.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "lib/base/types.h"

namespace hetccl {
namespace {

std::vector<DataType> all_types() {
  std::vector<DataType> all;
  for (int t = 0; t < hetcclNumTypes; ++t) all.push_back(static_cast<DataType>(t));
  return all;
}

std::vector<RedOp> all_ops() {
  std::vector<RedOp> all;
  for (int o = 0; o < hetcclNumOps; ++o) all.push_back(static_cast<RedOp>(o));
  return all;
}

std::string operators_of(DataType type) {
  std::string list;
  for (RedOp op : all_ops()) {
    if (supports(type, op)) list += std::string(list.empty() ? "" : " ") + std::string(name_of(op));
  }
  return list;
}

TEST(Types, OperatorsAreDefinedAsTheRulesSay) {
  const std::string integer = "sum prod max min avg land lor lxor band bor bxor";
  for (DataType type : {hetcclInt8, hetcclUint8, hetcclInt16, hetcclUint16, hetcclInt32,
                        hetcclUint32, hetcclInt64, hetcclUint64}) {
    EXPECT_EQ(operators_of(type), integer) << name_of(type);
  }
  for (DataType type : {hetcclFloat16, hetcclBfloat16, hetcclFloat32, hetcclFloat64,
                        hetcclFloat8e4m3, hetcclFloat8e5m2}) {
    EXPECT_EQ(operators_of(type), "sum prod max min avg") << name_of(type);
  }
  for (DataType type : {hetcclComplex64, hetcclComplex128}) {
    EXPECT_EQ(operators_of(type), "sum prod avg") << name_of(type);
  }
  EXPECT_EQ(operators_of(hetcclBool), "max min land lor lxor band bor bxor");
  EXPECT_EQ(operators_of(hetcclByte), "band bor bxor");
  for (DataType type :
       {hetcclFloatInt, hetcclDoubleInt, hetcclLongInt, hetcclShortInt, hetcclTwoInt}) {
    EXPECT_EQ(operators_of(type), "minloc maxloc") << name_of(type);
  }
}

TEST(Types, SizesAreThoseOfTheCTypes) {
  struct LongInt {
    long value;
    int index;
  };
  struct ShortInt {
    short value;
    int index;
  };
  struct DoubleInt {
    double value;
    int index;
  };
  EXPECT_EQ(size_of(hetcclInt8), 1u);
  EXPECT_EQ(size_of(hetcclUint16), 2u);
  EXPECT_EQ(size_of(hetcclFloat16), 2u);
  EXPECT_EQ(size_of(hetcclFloat8e5m2), 1u);
  EXPECT_EQ(size_of(hetcclFloat64), 8u);
  EXPECT_EQ(size_of(hetcclComplex64), 8u);
  EXPECT_EQ(size_of(hetcclComplex128), 16u);
  EXPECT_EQ(size_of(hetcclFloatInt), 8u);
  EXPECT_EQ(size_of(hetcclTwoInt), 8u);
  EXPECT_EQ(size_of(hetcclShortInt), sizeof(ShortInt));
  EXPECT_EQ(size_of(hetcclLongInt), sizeof(LongInt));
  EXPECT_EQ(size_of(hetcclDoubleInt), sizeof(DoubleInt));
  EXPECT_EQ(alignment_of(hetcclComplex128), alignof(double));
  EXPECT_EQ(alignment_of(hetcclShortInt), alignof(ShortInt));
  EXPECT_EQ(alignment_of(hetcclUint32), alignof(int));
  for (DataType type : all_types()) EXPECT_EQ(size_of(type) % alignment_of(type), 0u);
}

TEST(Types, AccumulatorsHoldEveryPartialSum) {
  for (RedOp op : {hetcclSum, hetcclProd, hetcclAvg}) {
    EXPECT_EQ(accumulator_size(hetcclFloat16, op), 4u);
    EXPECT_EQ(accumulator_size(hetcclFloat8e4m3, op), 4u);
    EXPECT_EQ(accumulator_size(hetcclFloat8e5m2, op), 4u);
    EXPECT_EQ(accumulator_size(hetcclBfloat16, op), op == hetcclAvg ? 8u : 4u);
    for (DataType type : {hetcclFloat32, hetcclFloat64, hetcclComplex64, hetcclComplex128}) {
      EXPECT_EQ(accumulator_size(type, op), size_of(type));
    }
  }
  for (DataType type :
       {hetcclInt8, hetcclUint8, hetcclInt16, hetcclUint16, hetcclInt32, hetcclUint32}) {
    EXPECT_EQ(accumulator_size(type, hetcclAvg), 8u);
  }
  EXPECT_EQ(accumulator_size(hetcclInt64, hetcclAvg), 16u);
  EXPECT_EQ(accumulator_size(hetcclUint64, hetcclAvg), 16u);
  EXPECT_EQ(accumulator_size(hetcclInt8, hetcclSum), 1u);
  for (DataType type : all_types()) {
    for (RedOp op : all_ops()) {
      if (op == hetcclSum || op == hetcclProd || op == hetcclAvg) continue;
      EXPECT_EQ(accumulator_size(type, op), size_of(type)) << name_of(type) << name_of(op);
    }
  }
}

TEST(Types, OnlySumsAndProductsOfFloatsDependOnOrder) {
  for (DataType type : all_types()) {
    const bool rounds = supports(type, hetcclSum) && !supports(type, hetcclBAnd);
    for (RedOp op : all_ops()) {
      const bool mean = op == hetcclSum || op == hetcclProd || op == hetcclAvg;
      EXPECT_EQ(order_free(type, op), supports(type, op) && !(rounds && mean))
          << name_of(type) << " " << name_of(op);
    }
  }
}

TEST(Types, NamesAreUniqueAndParse) {
  std::set<std::string_view> names;
  for (DataType type : all_types()) {
    EXPECT_TRUE(names.insert(name_of(type)).second) << name_of(type);
    DataType parsed = hetcclNumTypes;
    EXPECT_TRUE(parse_type(name_of(type), &parsed));
    EXPECT_EQ(parsed, type);
  }
  for (RedOp op : all_ops()) {
    EXPECT_TRUE(names.insert(name_of(op)).second) << name_of(op);
    RedOp parsed = hetcclNumOps;
    EXPECT_TRUE(parse_op(name_of(op), &parsed));
    EXPECT_EQ(parsed, op);
  }
  DataType type = hetcclByte;
  EXPECT_TRUE(parse_type("half", &type) && type == hetcclFloat16);
  EXPECT_TRUE(parse_type("float", &type) && type == hetcclFloat32);
  EXPECT_TRUE(parse_type("double", &type) && type == hetcclFloat64);
  EXPECT_TRUE(parse_type("f8e4m3", &type) && type == hetcclFloat8e4m3);
  RedOp op = hetcclMax;
  for (std::string_view unknown : {"", "Float", "float3", "float320", "summ", " sum"}) {
    EXPECT_FALSE(parse_type(unknown, &type)) << unknown;
    EXPECT_FALSE(parse_op(unknown, &op)) << unknown;
  }
  EXPECT_EQ(type, hetcclFloat8e4m3);
  EXPECT_EQ(op, hetcclMax);
}

TEST(Types, ValuesOutOfRangeAreUnknown) {
  for (int value : {-1, static_cast<int>(hetcclNumTypes), 31}) {
    const auto type = static_cast<DataType>(value);
    EXPECT_FALSE(is_valid(type)) << value;
    EXPECT_EQ(size_of(type), 0u);
    EXPECT_EQ(name_of(type), "unknown");
    EXPECT_FALSE(supports(type, hetcclSum));
    EXPECT_FALSE(order_free(type, hetcclSum));
  }
  for (int value : {-1, static_cast<int>(hetcclNumOps), 32 + hetcclSum, INT_MAX}) {
    const auto op = static_cast<RedOp>(value);
    EXPECT_FALSE(is_builtin(op)) << value;
    EXPECT_EQ(name_of(op), "unknown");
    EXPECT_FALSE(supports(hetcclInt32, op));
    EXPECT_FALSE(order_free(hetcclInt32, op));
  }
}

}  // namespace
}  // namespace hetccl

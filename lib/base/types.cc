// Data types and operators as constant tables: one row each, and every question is a look-up.
// The rules behind the columns are the section on numbers of doc/semantics.md. Any thread.
#include "lib/base/types.h"

#include <array>
#include <cstdint>

namespace hetccl {
namespace {

using Ops = uint32_t;  // a set of operators, one bit each

constexpr Ops bit(RedOp op) { return Ops{1} << op; }

constexpr Ops kMean = bit(hetcclSum) | bit(hetcclProd) | bit(hetcclAvg);
constexpr Ops kOrder = bit(hetcclMin) | bit(hetcclMax);
constexpr Ops kLogical = bit(hetcclLAnd) | bit(hetcclLOr) | bit(hetcclLXor);
constexpr Ops kBitwise = bit(hetcclBAnd) | bit(hetcclBOr) | bit(hetcclBXor);
constexpr Ops kLocation = bit(hetcclMinLoc) | bit(hetcclMaxLoc);

constexpr Ops kOfInteger = kMean | kOrder | kLogical | kBitwise;
constexpr Ops kOfFloat = kMean | kOrder;
constexpr Ops kOfBool = kOrder | kLogical | kBitwise;

struct FloatInt {
  float value;
  int index;
};
struct DoubleInt {
  double value;
  int index;
};
struct LongInt {
  long value;
  int index;
};
struct ShortInt {
  short value;
  int index;
};
struct TwoInt {
  int value;
  int index;
};

struct TypeRow {
  std::string_view name;
  std::string_view alias;  // of nccl-tests; empty: none
  uint8_t size;
  uint8_t alignment;
  Ops ops;
  uint8_t sum;    // bytes of the accumulator of Sum and Prod
  uint8_t avg;    // bytes of the accumulator of Avg
  Ops any_order;  // operators whose bits do not depend on the order of reduction
};

constexpr TypeRow integer(std::string_view name, std::string_view alias, uint8_t size) {
  return {name, alias, size, size, kOfInteger, size, uint8_t(size == 8 ? 16 : 8), kOfInteger};
}

constexpr TypeRow floating(std::string_view name, std::string_view alias, uint8_t size, uint8_t sum,
                           uint8_t avg) {
  return {name, alias, size, size, kOfFloat, sum, avg, kOrder};
}

template <typename Value>
constexpr TypeRow complex(std::string_view name) {
  constexpr uint8_t size = 2 * sizeof(Value);
  return {name, "", size, alignof(Value), kMean, size, size, 0};
}

template <typename Pair>
constexpr TypeRow pair(std::string_view name) {
  constexpr uint8_t size = sizeof(Pair);
  return {name, "", size, alignof(Pair), kLocation, size, size, kLocation};
}

constexpr std::array<TypeRow, hetcclNumTypes> kTypes = {{
    integer("int8", "char", 1),
    integer("uint8", "", 1),
    integer("int32", "int", 4),
    integer("uint32", "", 4),
    integer("int64", "", 8),
    integer("uint64", "", 8),
    floating("float16", "half", 2, 4, 4),
    floating("float32", "float", 4, 4, 4),
    floating("float64", "double", 8, 8, 8),
    floating("bfloat16", "bf16", 2, 4, 8),
    floating("float8e4m3", "f8e4m3", 1, 4, 4),
    floating("float8e5m2", "f8e5m2", 1, 4, 4),
    integer("int16", "", 2),
    integer("uint16", "", 2),
    complex<float>("complex64"),
    complex<double>("complex128"),
    {"bool", "", 1, 1, kOfBool, 1, 1, kOfBool},
    {"byte", "", 1, 1, kBitwise, 1, 1, kBitwise},
    pair<FloatInt>("floatint"),
    pair<DoubleInt>("doubleint"),
    pair<LongInt>("longint"),
    pair<ShortInt>("shortint"),
    pair<TwoInt>("twoint"),
}};

constexpr std::array<std::string_view, hetcclNumOps> kOps = {
    "sum",  "prod", "max", "min",  "avg",    "land",  "lor",
    "lxor", "band", "bor", "bxor", "minloc", "maxloc"};

constexpr TypeRow kNone = {"unknown", "", 0, 1, 0, 0, 0, 0};

const TypeRow& row(DataType type) { return is_valid(type) ? kTypes[type] : kNone; }

}  // namespace

// Unsigned, so that a negative value from C is out of range too.
bool is_valid(DataType type) { return static_cast<uint32_t>(type) < hetcclNumTypes; }
bool is_builtin(RedOp op) { return static_cast<uint32_t>(op) < hetcclNumOps; }

size_t size_of(DataType type) { return row(type).size; }
size_t alignment_of(DataType type) { return row(type).alignment; }
std::string_view name_of(DataType type) { return row(type).name; }
std::string_view name_of(RedOp op) { return is_builtin(op) ? kOps[op] : kNone.name; }

bool parse_type(std::string_view name, DataType* type) {
  if (name.empty()) return false;
  for (size_t i = 0; i < kTypes.size(); ++i) {
    if (name != kTypes[i].name && name != kTypes[i].alias) continue;
    *type = static_cast<DataType>(i);
    return true;
  }
  return false;
}

bool parse_op(std::string_view name, RedOp* op) {
  for (size_t i = 0; i < kOps.size(); ++i) {
    if (name != kOps[i]) continue;
    *op = static_cast<RedOp>(i);
    return true;
  }
  return false;
}

bool supports(DataType type, RedOp op) { return is_builtin(op) && (row(type).ops & bit(op)) != 0; }

size_t accumulator_size(DataType type, RedOp op) {
  const TypeRow& r = row(type);
  if (op == hetcclSum || op == hetcclProd) return r.sum;
  if (op == hetcclAvg) return r.avg;
  return r.size;
}

bool order_free(DataType type, RedOp op) {
  return is_builtin(op) && (row(type).any_order & bit(op)) != 0;
}

}  // namespace hetccl

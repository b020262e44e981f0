#include "bench/data.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace hetccl::bench {
namespace {

// A small integer, with an imaginary part (complex) or an index (MINLOC, MAXLOC).
struct Value {
  int64_t main = 0;
  int64_t second = 0;
};

uint64_t hash(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9E3779B97F4A7C15u + b + 0x632BE59BD9B4E019u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// The integers up to this one are all exact in the type, whatever their sign.
int64_t exact_limit(DataType type) {
  switch (type) {
    case hetcclFloat8e5m2:
      return 8;
    case hetcclFloat8e4m3:
      return 16;
    case hetcclInt8:
    case hetcclUint8:
      return 127;
    case hetcclBfloat16:
      return 256;
    case hetcclFloat16:
      return 2048;
    case hetcclInt16:
    case hetcclUint16:
      return 32767;
    default:
      return 1 << 20;
  }
}

bool is_unsigned(DataType type) {
  return type == hetcclUint8 || type == hetcclUint16 || type == hetcclUint32 ||
         type == hetcclUint64 || type == hetcclBool || type == hetcclByte;
}
bool is_complex(DataType type) { return type == hetcclComplex64 || type == hetcclComplex128; }
bool is_pair(DataType type) { return type >= hetcclFloatInt && type <= hetcclTwoInt; }

// --- how a value is stored.

struct Minifloat {
  int mantissa_bits, bias, sign_shift;
};

// REQUIRES: |v| has no more significant bits than the format.
uint32_t encode(Minifloat format, int64_t v) {
  if (v == 0) return 0;
  uint32_t magnitude = static_cast<uint32_t>(std::llabs(v));
  int exponent = 31 - __builtin_clz(magnitude);
  uint32_t mantissa = exponent <= format.mantissa_bits
                          ? magnitude << (format.mantissa_bits - exponent)
                          : magnitude >> (exponent - format.mantissa_bits);
  mantissa -= 1u << format.mantissa_bits;
  uint32_t bits =
      (static_cast<uint32_t>(exponent + format.bias) << format.mantissa_bits) | mantissa;
  return bits | (v < 0 ? 1u << format.sign_shift : 0u);
}

template <typename T>
void put(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

template <typename T>
void put_pair(std::byte* at, Value v) {
  struct Pair {
    T value;
    int index;
  };
  put(at + offsetof(Pair, value), static_cast<T>(v.main));
  put(at + offsetof(Pair, index), static_cast<int>(v.second));
}

void store(DataType type, Value v, std::byte* at) {
  switch (type) {
    case hetcclFloat16:
      return put(at, static_cast<uint16_t>(encode({10, 15, 15}, v.main)));
    case hetcclBfloat16:
      return put(at, static_cast<uint16_t>(encode({7, 127, 15}, v.main)));
    case hetcclFloat8e4m3:
      return put(at, static_cast<uint8_t>(encode({3, 7, 7}, v.main)));
    case hetcclFloat8e5m2:
      return put(at, static_cast<uint8_t>(encode({2, 15, 7}, v.main)));
    case hetcclFloat32:
      return put(at, static_cast<float>(v.main));
    case hetcclFloat64:
      return put(at, static_cast<double>(v.main));
    case hetcclComplex64:
      put(at, static_cast<float>(v.main));
      return put(at + sizeof(float), static_cast<float>(v.second));
    case hetcclComplex128:
      put(at, static_cast<double>(v.main));
      return put(at + sizeof(double), static_cast<double>(v.second));
    case hetcclBool:
      return put(at, static_cast<uint8_t>(v.main != 0));
    case hetcclFloatInt:
      return put_pair<float>(at, v);
    case hetcclDoubleInt:
      return put_pair<double>(at, v);
    case hetcclLongInt:
      return put_pair<long>(at, v);
    case hetcclShortInt:
      return put_pair<short>(at, v);
    case hetcclTwoInt:
      return put_pair<int>(at, v);
    default:  // integers and bytes: two's complement, little end first
      std::memcpy(at, &v.main, size_of(type));
  }
}

// --- what ranks contribute.

// A sum that stays within the exact integers: all ranks give up to limit/ranks; where ranks are
// more than that, only some of them give 1, others at each index.
int64_t sum_term(DataType type, int ranks, int rank, size_t i, uint64_t salt) {
  int64_t limit = exact_limit(type), share = limit / ranks;
  if (share == 0) {
    int64_t givers = 1 + static_cast<int64_t>(i) % limit;
    return (rank + static_cast<int64_t>(i)) % ranks < givers ? 1 : 0;
  }
  uint64_t h = hash(static_cast<uint64_t>(rank) + salt, i);
  if (is_unsigned(type)) return static_cast<int64_t>(h % (static_cast<uint64_t>(share) + 1));
  return static_cast<int64_t>(h % (2 * static_cast<uint64_t>(share) + 1)) - share;
}

// k plus deviations that cancel in pairs of ranks; the last of an odd number has none.
int64_t average_term(int ranks, int rank, size_t i) {
  int64_t k = 1 + static_cast<int64_t>(i % 4);
  if (rank == ranks - 1 && ranks % 2 == 1) return k;
  bool up = (static_cast<size_t>(rank / 2) + i + static_cast<size_t>(rank)) % 2 == 0;
  return up ? k + 1 : k - 1;
}

// One rank, another at each index, decides an "and" or an "or", at every second index.
bool decides(int ranks, int rank, size_t i) {
  return i % 2 == 1 && static_cast<size_t>(rank) == (i / 2) % static_cast<size_t>(ranks);
}

Value term(DataType type, RedOp op, int ranks, int rank, size_t i) {
  uint64_t h = hash(static_cast<uint64_t>(rank), i);
  switch (op) {
    case hetcclSum:
      return {sum_term(type, ranks, rank, i, 0),
              is_complex(type) ? sum_term(type, ranks, rank, i, 1u << 30) : 0};
    case hetcclProd:  // two ranks at most give 2
      return {(static_cast<size_t>(rank) + i) % static_cast<size_t>(ranks) < i % 3 ? 2 : 1, 0};
    case hetcclAvg:
      return {average_term(ranks, rank, i),
              is_complex(type) ? average_term(ranks, rank, i + 1) : 0};
    case hetcclMin:
    case hetcclMax:
    case hetcclMinLoc:
    case hetcclMaxLoc:
      return {static_cast<int64_t>(h % 8) - (is_unsigned(type) ? 0 : 3), rank};
    case hetcclLAnd:
      return {decides(ranks, rank, i) ? 0 : 1 + static_cast<int64_t>(h % 3), 0};
    case hetcclLOr:
      return {decides(ranks, rank, i) ? 1 + static_cast<int64_t>(h % 3) : 0, 0};
    case hetcclLXor:
      return {static_cast<int64_t>(h % 3), 0};
    case hetcclBAnd:
      return {decides(ranks, rank, i) ? static_cast<int64_t>(h % 128) : 127, 0};
    case hetcclBOr:
      return {decides(ranks, rank, i) ? static_cast<int64_t>(h % 128) : 0, 0};
    default:  // exclusive or
      return {static_cast<int64_t>(h % 128), 0};
  }
}

int64_t logical_or_bitwise(DataType type, RedOp op, int64_t a, int64_t b) {
  if (type == hetcclBool) {
    a = a != 0;
    b = b != 0;
  }
  switch (op) {
    case hetcclLAnd:
      return a != 0 && b != 0;
    case hetcclLOr:
      return a != 0 || b != 0;
    case hetcclLXor:
      return (a != 0) != (b != 0);
    case hetcclBAnd:
      return a & b;
    case hetcclBOr:
      return a | b;
    default:
      return a ^ b;
  }
}

Value combine(DataType type, RedOp op, Value a, Value b) {
  switch (op) {
    case hetcclSum:
    case hetcclAvg:
      return {a.main + b.main, a.second + b.second};
    case hetcclProd:
      return {a.main * b.main, 0};
    case hetcclMin:
    case hetcclMinLoc:  // on equal values the lower rank, which comes first
      return b.main < a.main ? b : a;
    case hetcclMax:
    case hetcclMaxLoc:
      return b.main > a.main ? b : a;
    default:
      return {logical_or_bitwise(type, op, a.main, b.main), 0};
  }
}

}  // namespace

Pattern::Pattern(DataType type, std::vector<std::byte> period)
    : type_(type), bytes_(std::move(period)) {}

void Pattern::fill(void* destination, size_t count, uint64_t first) const {
  auto* to = static_cast<std::byte*>(destination);
  size_t size = size_of(type_), at = static_cast<size_t>(first % kPeriod);
  while (count > 0) {
    size_t run = std::min(count, kPeriod - at);
    std::memcpy(to, bytes_.data() + at * size, run * size);
    to += run * size;
    count -= run;
    at = 0;
  }
}

uint64_t Pattern::count_wrong(const void* data, size_t count, uint64_t first) const {
  const auto* from = static_cast<const std::byte*>(data);
  size_t size = size_of(type_), at = static_cast<size_t>(first % kPeriod);
  // Bytes of value and of index of a pair, which padding may part.
  size_t value = type_ == hetcclShortInt ? sizeof(short) : size, index = size;
  if (is_pair(type_)) index = type_ == hetcclDoubleInt || type_ == hetcclLongInt ? 8 : 4;
  if (is_pair(type_)) value = std::min(value, index);
  auto differs = [&](const std::byte* a, const std::byte* b) {
    return std::memcmp(a, b, value) != 0 ||
           (is_pair(type_) && std::memcmp(a + index, b + index, sizeof(int)) != 0);
  };
  uint64_t wrong = 0;
  while (count > 0) {
    size_t run = std::min(count, kPeriod - at);
    const std::byte* expected = bytes_.data() + at * size;
    if (std::memcmp(from, expected, run * size) != 0) {
      for (size_t i = 0; i < run; ++i) wrong += differs(from + i * size, expected + i * size);
    }
    from += run * size;
    count -= run;
    at = 0;
  }
  return wrong;
}

Pattern contribution(DataType type, RedOp op, int ranks, int rank) {
  size_t size = size_of(type);
  std::vector<std::byte> period(kPeriod * size);
  for (size_t i = 0; i < kPeriod; ++i) {
    store(type, term(type, op, ranks, rank, i), &period[i * size]);
  }
  return {type, std::move(period)};
}

Pattern reduced(DataType type, RedOp op, int ranks) { return reduced(type, op, ranks, ranks); }

Pattern reduced(DataType type, RedOp op, int ranks, int some) {
  size_t size = size_of(type);
  std::vector<std::byte> period(kPeriod * size);
  for (size_t i = 0; i < kPeriod; ++i) {
    Value result = term(type, op, ranks, 0, i);
    for (int rank = 1; rank < some; ++rank) {
      result = combine(type, op, result, term(type, op, ranks, rank, i));
    }
    if (op == hetcclAvg) result = {result.main / ranks, result.second / ranks};
    // A logical operator leaves one rank's value as it is, else it gives 0 or 1.
    store(type, result, &period[i * size]);
  }
  return {type, std::move(period)};
}

Pattern moved(DataType type, int rank) {
  std::vector<std::byte> period(kPeriod * size_of(type));
  for (size_t i = 0; i < period.size(); ++i) {
    uint64_t bits = hash(static_cast<uint64_t>(rank) + 77, i);
    period[i] = static_cast<std::byte>(type == hetcclBool ? bits % 2 : bits);
  }
  return {type, std::move(period)};
}

}  // namespace hetccl::bench

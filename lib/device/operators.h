// Operators on elements. As elements.h: C++17, no library, fit for a GPU's compiler.
//
// An operator is a struct with
//   Element      what the user's buffers hold
//   Accumulator  what contributions are joined in, and what unfinished results travel as
//   kFinish      when finish() does something that widen() and join() have not done already
//   widen(e)     element to accumulator
//   join(a, b)   a op b, a from the lower rank
//   finish(a, n) the result of n ranks as an element
#pragma once

#include "lib/device/elements.h"

namespace hetccl::device::HETCCL_KERNEL_NAMESPACE {

enum class Finish {
  kNothing,   // a joined accumulator and a lone element are results as they are
  kUnjoined,  // only a lone element needs finishing
  kAlways
};

#define HETCCL_OPERATION HETCCL_KERNEL_FUNCTION static inline

// Operators whose elements accumulate as they are.
template <class T>
struct InPlace {
  using Element = T;
  using Accumulator = T;
  HETCCL_OPERATION T widen(T x) { return x; }
};

// ---- Integers. Unsigned inside, at least 32 bits wide: wraps modulo 2^n, never undefined. ----

template <class T>
struct IntegerSum : InPlace<T> {
  static constexpr Finish kFinish = Finish::kNothing;
  HETCCL_OPERATION T join(T a, T b) { return static_cast<T>(0u + a + b); }
  HETCCL_OPERATION T finish(T x, int) { return x; }
};

template <class T>
struct IntegerProd : InPlace<T> {
  static constexpr Finish kFinish = Finish::kNothing;
  HETCCL_OPERATION T join(T a, T b) { return static_cast<T>(1u * a * b); }
  HETCCL_OPERATION T finish(T x, int) { return x; }
};

template <class T>
struct IntegerMin : InPlace<T> {
  static constexpr Finish kFinish = Finish::kNothing;
  HETCCL_OPERATION T join(T a, T b) { return b < a ? b : a; }
  HETCCL_OPERATION T finish(T x, int) { return x; }
};

template <class T>
struct IntegerMax : InPlace<T> {
  static constexpr Finish kFinish = Finish::kNothing;
  HETCCL_OPERATION T join(T a, T b) { return a < b ? b : a; }
  HETCCL_OPERATION T finish(T x, int) { return x; }
};

// The sum is exact in Wide for any number of ranks that fits an int; / truncates toward zero.
template <class T, class Wide>
struct IntegerAvg {
  using Element = T;
  using Accumulator = Wide;
  static constexpr Finish kFinish = Finish::kAlways;
  HETCCL_OPERATION Wide widen(T x) { return static_cast<Wide>(x); }
  HETCCL_OPERATION Wide join(Wide a, Wide b) { return a + b; }
  HETCCL_OPERATION T finish(Wide x, int ranks) { return static_cast<T>(x / ranks); }
};

struct BitAnd : InPlace<uint8_t> {
  static constexpr Finish kFinish = Finish::kNothing;
  HETCCL_OPERATION uint8_t join(uint8_t a, uint8_t b) { return a & b; }
  HETCCL_OPERATION uint8_t finish(uint8_t x, int) { return x; }
};

struct BitOr : InPlace<uint8_t> {
  static constexpr Finish kFinish = Finish::kNothing;
  HETCCL_OPERATION uint8_t join(uint8_t a, uint8_t b) { return a | b; }
  HETCCL_OPERATION uint8_t finish(uint8_t x, int) { return x; }
};

struct BitXor : InPlace<uint8_t> {
  static constexpr Finish kFinish = Finish::kNothing;
  HETCCL_OPERATION uint8_t join(uint8_t a, uint8_t b) { return a ^ b; }
  HETCCL_OPERATION uint8_t finish(uint8_t x, int) { return x; }
};

// ---- Truth values: any value but 0 is true, results are 0 or 1. ----

template <class T>
struct Logical : InPlace<T> {
  static constexpr Finish kFinish = Finish::kUnjoined;
  HETCCL_OPERATION T finish(T x, int) { return x != 0; }
};

template <class T>
struct LogicalAnd : Logical<T> {
  HETCCL_OPERATION T join(T a, T b) { return (a != 0) & (b != 0); }
};

template <class T>
struct LogicalOr : Logical<T> {
  HETCCL_OPERATION T join(T a, T b) { return (a | b) != 0; }
};

template <class T>
struct LogicalXor : Logical<T> {
  HETCCL_OPERATION T join(T a, T b) { return (a != 0) ^ (b != 0); }
};

// ---- float32 and float64 ----

template <class T>
HETCCL_KERNEL_FUNCTION inline T canonical(T x);
template <>
HETCCL_KERNEL_FUNCTION inline float canonical(float x) {
  return x != x ? bits_as<float>(Single::kNan) : x;
}
template <>
HETCCL_KERNEL_FUNCTION inline double canonical(double x) {
  return x != x ? bits_as<double>(Double::kNan) : x;
}

template <class T>
struct FloatSum : InPlace<T> {
  static constexpr Finish kFinish = Finish::kAlways;
  HETCCL_OPERATION T join(T a, T b) { return a + b; }
  HETCCL_OPERATION T finish(T x, int) { return canonical(x); }
};

template <class T>
struct FloatProd : InPlace<T> {
  static constexpr Finish kFinish = Finish::kAlways;
  HETCCL_OPERATION T join(T a, T b) { return a * b; }
  HETCCL_OPERATION T finish(T x, int) { return canonical(x); }
};

template <class T>
struct FloatAvg : InPlace<T> {
  static constexpr Finish kFinish = Finish::kAlways;
  HETCCL_OPERATION T join(T a, T b) { return a + b; }
  HETCCL_OPERATION T finish(T x, int ranks) { return canonical(x / static_cast<T>(ranks)); }
};

// IEEE 754-2019 minimum and maximum on bits: NaN wins, -0 is less than +0.
template <class Format>
struct FloatMin : InPlace<typename Format::Bits> {
  using Bits = typename Format::Bits;
  static constexpr Finish kFinish = Finish::kUnjoined;
  HETCCL_OPERATION Bits join(Bits a, Bits b) {
    const Bits least = Format::key(b) < Format::key(a) ? b : a;
    const bool nan = Format::is_nan(a) || Format::is_nan(b);
    return nan ? Format::kNan : least;
  }
  HETCCL_OPERATION Bits finish(Bits x, int) { return Format::is_nan(x) ? Format::kNan : x; }
};

template <class Format>
struct FloatMax : InPlace<typename Format::Bits> {
  using Bits = typename Format::Bits;
  static constexpr Finish kFinish = Finish::kUnjoined;
  HETCCL_OPERATION Bits join(Bits a, Bits b) {
    const Bits most = Format::key(a) < Format::key(b) ? b : a;
    const bool nan = Format::is_nan(a) || Format::is_nan(b);
    return nan ? Format::kNan : most;
  }
  HETCCL_OPERATION Bits finish(Bits x, int) { return Format::is_nan(x) ? Format::kNan : x; }
};

// ---- 16- and 8-bit floats: wide until the end, rounded once. encode() makes NaN canonical. ----

// Here join() and scale() also take vectors of accumulators.

template <class Format>
struct NarrowFloat {
  using Element = typename Format::Bits;
  using Accumulator = float;
  static constexpr Finish kFinish = Finish::kAlways;
  HETCCL_OPERATION float widen(Element x) { return decode<Format>(x); }
  HETCCL_OPERATION Element finish(float x, int) { return encode<Format>(x); }
  template <class V>
  HETCCL_OPERATION V scale(V x, int) {
    return x;
  }
};

template <class Format>
struct NarrowSum : NarrowFloat<Format> {
  template <class V>
  HETCCL_OPERATION V join(V a, V b) {
    return a + b;
  }
};

template <class Format>
struct NarrowProd : NarrowFloat<Format> {
  template <class V>
  HETCCL_OPERATION V join(V a, V b) {
    return a * b;
  }
};

// Divides in float64, so that the quotient is rounded by the conversion alone.
template <class Format, class Wide>
struct NarrowAvg {
  using Element = typename Format::Bits;
  using Accumulator = Wide;
  static constexpr Finish kFinish = Finish::kAlways;
  HETCCL_OPERATION Wide widen(Element x) { return decode<Format>(x); }
  template <class V>
  HETCCL_OPERATION V join(V a, V b) {
    return a + b;
  }
  HETCCL_OPERATION Element finish(Wide x, int ranks) {
    return encode<Format>(round_to_odd(static_cast<double>(x) / ranks));
  }
};

HETCCL_KERNEL_FUNCTION inline float before_encode(float x) { return x; }
HETCCL_KERNEL_FUNCTION inline float before_encode(double x) { return round_to_odd(x); }

// The same result where the number of ranks is a power of two: the product with its reciprocal is
// the exact quotient, since no sum of these formats comes near the accumulator's smallest numbers.
template <class Format, class Wide>
struct NarrowAvgOfPowerOfTwo : NarrowAvg<Format, Wide> {
  template <class V>
  HETCCL_OPERATION V scale(V x, int ranks) {
    return x * (Wide{1} / static_cast<Wide>(ranks));
  }
  HETCCL_OPERATION typename Format::Bits finish(Wide x, int ranks) {
    return encode<Format>(before_encode(scale(x, ranks)));
  }
};

// ---- Complex numbers. Sum and Avg are those of the parts. ----

template <class T>
struct Complex {
  T real, imaginary;
};

HETCCL_KERNEL_FUNCTION inline float negated(float x) {
  return bits_as<float>(bits_as<uint32_t>(x) ^ Single::kSign);
}
HETCCL_KERNEL_FUNCTION inline double negated(double x) {
  return bits_as<double>(bits_as<uint64_t>(x) ^ Double::kSign);
}

// Four products, without recovery of infinities. The difference is a sum with a flipped sign bit,
// which is the same number: GCC 12 turns products under alternating - and + into fused
// multiply-adds even where contraction is off.
template <class T>
struct ComplexProd : InPlace<Complex<T>> {
  static constexpr Finish kFinish = Finish::kAlways;
  HETCCL_OPERATION Complex<T> join(Complex<T> a, Complex<T> b) {
    return {a.real * b.real + negated(a.imaginary * b.imaginary),
            a.real * b.imaginary + a.imaginary * b.real};
  }
  HETCCL_OPERATION Complex<T> finish(Complex<T> x, int) {
    return {canonical(x.real), canonical(x.imaginary)};
  }
};

// ---- Value and index, laid out as C lays out struct { value; int; }. Padding is written as 0.
// ----

struct FloatIntPair {
  uint32_t value;
  int32_t index;
};
struct DoubleIntPair {
  uint64_t value;
  int32_t index;
  int32_t padding;
};
struct LongIntPair {
  int64_t value;
  int32_t index;
  int32_t padding;
};
struct ShortIntPair {
  int16_t value;
  int16_t padding;
  int32_t index;
};
struct TwoIntPair {
  int32_t value;
  int32_t index;
};

// How the values of a pair compare. Floats have the order of Min and Max.
template <class T>
struct IntegerOrder {
  HETCCL_OPERATION bool less(T a, T b) { return a < b; }
  HETCCL_OPERATION bool is_nan(T) { return false; }
  HETCCL_OPERATION T canonical_value(T x) { return x; }
};
template <class Format>
struct FloatOrder {
  using Bits = typename Format::Bits;
  HETCCL_OPERATION bool less(Bits a, Bits b) { return Format::key(a) < Format::key(b); }
  HETCCL_OPERATION bool is_nan(Bits x) { return Format::is_nan(x); }
  HETCCL_OPERATION Bits canonical_value(Bits x) { return is_nan(x) ? Format::kNan : x; }
};

// NaN wins; equal values, NaN among them, give the lowest index.
template <class Pair, class Order, bool kLeast>
struct Location : InPlace<Pair> {
  static constexpr Finish kFinish = Finish::kUnjoined;
  HETCCL_OPERATION Pair join(Pair a, Pair b) {
    const bool a_nan = Order::is_nan(a.value), b_nan = Order::is_nan(b.value);
    const bool a_less = Order::less(a.value, b.value), b_less = Order::less(b.value, a.value);
    const bool a_first = a_nan ? !b_nan : !b_nan && (kLeast ? a_less : b_less);
    const bool b_first = b_nan ? !a_nan : !a_nan && (kLeast ? b_less : a_less);
    const bool take_a = a_first || (!b_first && a.index <= b.index);
    return finish(take_a ? a : b, 1);
  }
  HETCCL_OPERATION Pair finish(Pair x, int) {
    Pair result = {};
    result.value = Order::canonical_value(x.value);
    result.index = x.index;
    return result;
  }
};

#undef HETCCL_OPERATION

}  // namespace hetccl::device::HETCCL_KERNEL_NAMESPACE

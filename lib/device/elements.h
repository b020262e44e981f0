// Element types that C++ lacks, and how they become numbers and back.
//
// Plain inline functions in C++17 without library containers or intrinsics, so that a compiler for
// a GPU can take this file as it is. They work on bits: the same bits come out for every
// instruction set, rounding is to nearest even, subnormals are kept, NaN results are the canonical
// quiet NaN. Each translation unit sets HETCCL_KERNEL_NAMESPACE, so that code compiled for one
// instruction set never stands in for another's at link time.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifndef HETCCL_KERNEL_NAMESPACE
#error "HETCCL_KERNEL_NAMESPACE names the instruction set that this file is compiled for"
#endif
// What a GPU's compiler wants in front of each function.
#ifndef HETCCL_KERNEL_FUNCTION
#define HETCCL_KERNEL_FUNCTION
#endif

namespace hetccl::device::HETCCL_KERNEL_NAMESPACE {

template <class To, class From>
HETCCL_KERNEL_FUNCTION inline To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof(to));
  return to;
}

// The layout of a binary float. kTop is the largest magnitude that is not NaN: infinity, or in e4m3
// the largest value.
template <class BitsType, class SignedType, int mantissa, int bias, unsigned long long top,
          unsigned long long nan>
struct FloatFormat {
  using Bits = BitsType;
  using Signed = SignedType;
  static constexpr int kWidth = 8 * sizeof(Bits);
  static constexpr int kMantissa = mantissa;
  static constexpr int kBias = bias;
  static constexpr Bits kTop = top;
  static constexpr Bits kNan = nan;
  static constexpr Bits kMagnitude = static_cast<Bits>(static_cast<Bits>(~Bits{0}) >> 1);
  static constexpr Bits kSign = static_cast<Bits>(~kMagnitude);

  HETCCL_KERNEL_FUNCTION static inline bool is_nan(Bits x) {
    return static_cast<Bits>(x & kMagnitude) > kTop;
  }
  // Ascending in the total order of the numbers, -0 before +0.
  HETCCL_KERNEL_FUNCTION static inline Signed key(Bits x) {
    Signed s = static_cast<Signed>(x);
    return static_cast<Signed>(s ^ ((s >> (kWidth - 1)) & static_cast<Signed>(kMagnitude)));
  }
};

using Half = FloatFormat<uint16_t, int16_t, 10, 15, 0x7c00, 0x7e00>;
using Brain = FloatFormat<uint16_t, int16_t, 7, 127, 0x7f80, 0x7fc0>;
using E4m3 = FloatFormat<uint8_t, int8_t, 3, 7, 0x7e, 0x7f>;
using E5m2 = FloatFormat<uint8_t, int8_t, 2, 15, 0x7c, 0x7e>;
using Single = FloatFormat<uint32_t, int32_t, 23, 127, 0x7f800000, 0x7fc00000>;
using Double =
    FloatFormat<uint64_t, int64_t, 52, 1023, 0x7ff0000000000000ull, 0x7ff8000000000000ull>;

template <class Format>
HETCCL_KERNEL_FUNCTION inline float decode(typename Format::Bits x) {
  const uint32_t sign = static_cast<uint32_t>(x & Format::kSign) << (32 - Format::kWidth);
  const uint32_t magnitude = x & Format::kMagnitude;
  if constexpr (Format::kBias == Single::kBias) {
    return bits_as<float>(sign | (magnitude << (Single::kMantissa - Format::kMantissa)));
  }
  constexpr int kShift = Single::kMantissa - Format::kMantissa;
  constexpr uint32_t kRebias = static_cast<uint32_t>(Single::kBias - Format::kBias) << 23;
  constexpr uint32_t kFirstNormal = uint32_t{1} << Format::kMantissa;
  // A subnormal is its mantissa in the place of the smallest normal's, less that smallest normal:
  // exact, and float32 holds every such value as a normal number.
  const uint32_t normal = (magnitude << kShift) + kRebias;
  const float subnormal =
      bits_as<float>(normal + (1u << 23)) - bits_as<float>(kRebias + (1u << 23));
  uint32_t bits = magnitude < kFirstNormal ? bits_as<uint32_t>(subnormal) : normal;
  constexpr bool kHasInfinity = (Format::kTop & (kFirstNormal - 1)) == 0;
  if constexpr (kHasInfinity) {
    bits = magnitude >= Format::kTop ? normal + kRebias : bits;
  } else {
    bits = magnitude > Format::kTop ? Single::kNan : bits;
  }
  return bits_as<float>(sign | bits);
}

// Rounds to nearest even. What is too large becomes infinity, or NaN in e4m3, which has none: the
// OCP conversion without saturation.
template <class Format>
HETCCL_KERNEL_FUNCTION inline typename Format::Bits encode(float value) {
  using Bits = typename Format::Bits;
  const uint32_t x = bits_as<uint32_t>(value);
  const uint32_t magnitude = x & Single::kMagnitude;
  const uint32_t sign = (x >> (32 - Format::kWidth)) & Format::kSign;
  constexpr int kShift = Single::kMantissa - Format::kMantissa;
  const uint32_t half = ((1u << (kShift - 1)) - 1) + ((magnitude >> kShift) & 1);
  if constexpr (Format::kBias == Single::kBias) {
    const uint32_t rounded = (magnitude + half) >> kShift;
    return static_cast<Bits>(magnitude > Single::kTop ? Format::kNan : sign | rounded);
  }
  constexpr uint32_t kRebias = static_cast<uint32_t>(Single::kBias - Format::kBias) << 23;
  const uint32_t normal = (magnitude - kRebias + half) >> kShift;
  // Adding a power of two whose last place is the format's smallest step rounds a subnormal. What
  // is larger than a subnormal gives nonsense here, which the choice below leaves unused.
  constexpr uint32_t kAnchor = static_cast<uint32_t>(Single::kBias - Format::kBias + 1 + kShift)
                               << 23;
  const uint32_t subnormal =
      bits_as<uint32_t>(bits_as<float>(magnitude) + bits_as<float>(kAnchor)) - kAnchor;
  constexpr uint32_t kSmallestNormal = kRebias + (1u << 23);
  uint32_t result = magnitude < kSmallestNormal ? subnormal : normal;
  constexpr bool kHasInfinity = (Format::kTop & ((1u << Format::kMantissa) - 1)) == 0;
  if constexpr (kHasInfinity) {
    result = result < Format::kTop ? result : Format::kTop;
    return static_cast<Bits>(magnitude > Single::kTop ? Format::kNan : sign | result);
  }
  return static_cast<Bits>(result > Format::kTop ? Format::kNan : sign | result);
}

// float64 to float32 by rounding to odd: an inexact result ends in 1, so that it is never mistaken
// for a tie, and rounding it again to a narrower format is rounding the float64 once.
HETCCL_KERNEL_FUNCTION inline float round_to_odd(double value) {
  const float nearest = static_cast<float>(value);
  const double back = static_cast<double>(nearest);
  const uint32_t bits = bits_as<uint32_t>(nearest);
  // Magnitudes compare like their bits.
  const uint64_t wanted = bits_as<uint64_t>(value) & Double::kMagnitude;
  const uint64_t got = bits_as<uint64_t>(back) & Double::kMagnitude;
  const uint32_t toward = wanted > got ? 1u : ~0u;
  const bool adjust = wanted != got && (bits & 1) == 0 && wanted <= Double::kTop;
  return bits_as<float>(adjust ? bits + toward : bits);
}

}  // namespace hetccl::device::HETCCL_KERNEL_NAMESPACE

// The 16-bit floats some lanes at a time: the same bits as decode() and encode() of elements.h,
// several times as fast as what compilers make of those. Host only; empty where the instruction set
// of this translation unit has nothing to offer.
#pragma once

#include "lib/device/operators.h"

#if defined(__AVX512F__) || defined(__F16C__)
#define HETCCL_LANES 1
#include <immintrin.h>
#endif

namespace hetccl::device::HETCCL_KERNEL_NAMESPACE {

// Does the loops of loops.h as far as whole vectors go; returns how far that is.
struct NoLanes {
  static size_t widen(void*, const void*, size_t) { return 0; }
  static size_t widen_two(void*, const void*, const void*, size_t) { return 0; }
  static size_t join_narrow(void*, const void*, size_t) { return 0; }
  static size_t finish(void*, const void*, size_t, int) { return 0; }
  static size_t finish_two(void*, const void*, const void*, size_t, int) { return 0; }
};

template <class Op>
struct Lanes : NoLanes {};

#ifdef HETCCL_LANES

#if defined(__AVX512F__)

using Vector = __m512;
// GCC 12 warns of uninitialised variables inside its own unmasked conversions; masked ones compile
// alike.
constexpr __mmask16 kAllLanes = 0xffff;

struct HalfLanes {
  static Vector get(const void* from) {
    return _mm512_maskz_cvtph_ps(kAllLanes, _mm256_loadu_si256(static_cast<const __m256i*>(from)));
  }
  static void put(void* to, Vector x) {
    const Vector nan = _mm512_castsi512_ps(_mm512_set1_epi32(Single::kNan));
    x = _mm512_mask_mov_ps(x, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), nan);
    constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    _mm256_storeu_si256(static_cast<__m256i*>(to), _mm512_maskz_cvtps_ph(kAllLanes, x, kNearest));
  }
};

struct BrainLanes {
  static Vector get(const void* from) {
    const __m256i narrow = _mm256_loadu_si256(static_cast<const __m256i*>(from));
    const __m512i wide = _mm512_maskz_cvtepu16_epi32(kAllLanes, narrow);
    return _mm512_castsi512_ps(_mm512_maskz_slli_epi32(kAllLanes, wide, 16));
  }
  static void put(void* to, Vector x) {
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i odd =
        _mm512_and_si512(_mm512_maskz_srli_epi32(kAllLanes, bits, 16), _mm512_set1_epi32(1));
    const __m512i sum = _mm512_add_epi32(_mm512_add_epi32(bits, odd), _mm512_set1_epi32(0x7fff));
    const __m512i rounded = _mm512_mask_mov_epi32(_mm512_maskz_srli_epi32(kAllLanes, sum, 16),
                                                  _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q),
                                                  _mm512_set1_epi32(Brain::kNan));
    _mm256_storeu_si256(static_cast<__m256i*>(to), _mm512_maskz_cvtepi32_epi16(kAllLanes, rounded));
  }
};

#else

using Vector = __m256;

struct HalfLanes {
  static Vector get(const void* from) {
    return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(from)));
  }
  static void put(void* to, Vector x) {
    const Vector nan = _mm256_castsi256_ps(_mm256_set1_epi32(Single::kNan));
    x = _mm256_blendv_ps(x, nan, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    _mm_storeu_si128(static_cast<__m128i*>(to), _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
  }
};

struct BrainLanes {
  static Vector get(const void* from) {
    const __m128i narrow = _mm_loadu_si128(static_cast<const __m128i*>(from));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(narrow), 16));
  }
  static void put(void* to, Vector x) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i sum = _mm256_add_epi32(_mm256_add_epi32(bits, odd), _mm256_set1_epi32(0x7fff));
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    const __m256i rounded =
        _mm256_blendv_epi8(_mm256_srli_epi32(sum, 16), _mm256_set1_epi32(Brain::kNan), is_nan);
    _mm_storeu_si128(
        static_cast<__m128i*>(to),
        _mm_packus_epi32(_mm256_castsi256_si128(rounded), _mm256_extracti128_si256(rounded, 1)));
  }
};

#endif

constexpr size_t kLanes = sizeof(Vector) / sizeof(float);

// Format: HalfLanes or BrainLanes.
template <class Op, class Format>
struct LanesIn : NoLanes {
  static Vector tile_at(const float* tile, size_t i) {
    Vector x;
    __builtin_memcpy(&x, tile + i, sizeof(x));
    return x;
  }
  static void put_tile(float* tile, size_t i, Vector x) {
    __builtin_memcpy(tile + i, &x, sizeof(x));
  }
  static Vector in(const void* from, size_t i) {
    return Format::get(static_cast<const uint16_t*>(from) + i);
  }

  static size_t widen(float* tile, const void* from, size_t count) {
    size_t i = 0;
    for (; i + kLanes <= count; i += kLanes) put_tile(tile, i, in(from, i));
    return i;
  }
  static size_t widen_two(float* tile, const void* a, const void* b, size_t count) {
    size_t i = 0;
    for (; i + kLanes <= count; i += kLanes) put_tile(tile, i, Op::join(in(a, i), in(b, i)));
    return i;
  }
  static size_t join_narrow(float* tile, const void* from, size_t count) {
    size_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      put_tile(tile, i, Op::join(tile_at(tile, i), in(from, i)));
    }
    return i;
  }
};

template <class Op, class Format>
struct LanesInAndOut : LanesIn<Op, Format> {
  using LanesIn<Op, Format>::in;
  using LanesIn<Op, Format>::tile_at;

  static size_t finish(void* to, const float* tile, size_t count, int ranks) {
    size_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      Format::put(static_cast<uint16_t*>(to) + i, Op::scale(tile_at(tile, i), ranks));
    }
    return i;
  }
  static size_t finish_two(void* to, const void* a, const void* b, size_t count, int ranks) {
    size_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      const Vector x = Op::join(in(a, i), in(b, i));
      Format::put(static_cast<uint16_t*>(to) + i, Op::scale(x, ranks));
    }
    return i;
  }
};

template <>
struct Lanes<NarrowSum<Half>> : LanesInAndOut<NarrowSum<Half>, HalfLanes> {};
template <>
struct Lanes<NarrowProd<Half>> : LanesInAndOut<NarrowProd<Half>, HalfLanes> {};
template <>
struct Lanes<NarrowAvg<Half, float>> : LanesIn<NarrowAvg<Half, float>, HalfLanes> {};
template <>
struct Lanes<NarrowAvgOfPowerOfTwo<Half, float>>
    : LanesInAndOut<NarrowAvgOfPowerOfTwo<Half, float>, HalfLanes> {};
template <>
struct Lanes<NarrowSum<Brain>> : LanesInAndOut<NarrowSum<Brain>, BrainLanes> {};
template <>
struct Lanes<NarrowProd<Brain>> : LanesInAndOut<NarrowProd<Brain>, BrainLanes> {};

#endif  // HETCCL_LANES

}  // namespace hetccl::device::HETCCL_KERNEL_NAMESPACE

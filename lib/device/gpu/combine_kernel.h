// The kernel that combines arrays, for any operator of operators.h, and what the host must know to
// launch it.
//
// A thread takes packs of 16 bytes of elements: the same elements of all sources, joins them from
// the left to the right, writes them, and goes on at the grid's stride. All that it reads of a
// piece it reads before it writes that piece, and no other thread touches the piece: so the
// destination may be one of the sources, and threads need not wait for each other.
//
// What differs between calls (wide or narrow, finished or not, aligned or not) is a branch that all
// threads take alike, and no kernel of its own: binaries stay small.
#pragma once

#include "lib/device/gpu/compiler.h"
// The compiler first: it defines what these are compiled with.
#include "lib/device/kernels.h"
#include "lib/device/operators.h"

namespace hetccl::device::HETCCL_KERNEL_NAMESPACE {

constexpr unsigned kMostSources = 64;  // of one launch: a bit each in the masks
constexpr unsigned kThreads = 512;
constexpr unsigned kPackBytes = 16;

// Passed by value, so that a launch needs no memory of its own.
struct CombineParameters {
  void* destination;
  size_t count;
  uint64_t wide;       // source s holds accumulators: bit s
  uint64_t unaligned;  // source s is not aligned for packs that begin at `head`: bit s
  uint32_t head;       // elements ahead of the first pack
  uint32_t source_count;
  int32_t ranks;
  bool finalize;
  bool wide_destination;
  bool unaligned_destination;
  const void* sources[kMostSources];
};

using CombineKernel = void (*)(CombineParameters);

// A kernel, as the host sees it. Sizes are of the kernel's own elements.
struct GpuKernel {
  CombineKernel run = nullptr;
  uint8_t element = 0;  // bytes
  uint8_t element_alignment = 0;
  uint8_t accumulator = 0;
  uint8_t accumulator_alignment = 0;
  unsigned units = 1;  // kernel elements in one element of the type
};

// One group of types each; an empty kernel for what the group does not know.
GpuKernel integer_kernel(hetcclDataType_t type, hetcclRedOp_t op);
GpuKernel float_kernel(hetcclDataType_t type, hetcclRedOp_t op);
GpuKernel narrow_float_kernel(hetcclDataType_t type, hetcclRedOp_t op);
GpuKernel other_kernel(hetcclDataType_t type, hetcclRedOp_t op);

// ---- Memory ----

// What one instruction moves. Buffers are of any type.
template <class Bits, int kCount = 1>
struct alignas(sizeof(Bits) * kCount) [[gnu::may_alias]] Word {
  Bits bits[kCount];
};
using Quad = Word<uint32_t, 4>;

// Larger accumulators than 8 bytes need no more than 8 bytes of alignment.
template <class T>
constexpr size_t kAlignment = alignof(T) < 8 ? alignof(T) : 8;

template <size_t alignment>
struct Aligned;
template <>
struct Aligned<1> {
  using Type = Word<uint8_t>;
};
template <>
struct Aligned<2> {
  using Type = Word<uint16_t>;
};
template <>
struct Aligned<4> {
  using Type = Word<uint32_t>;
};
template <>
struct Aligned<8> {
  using Type = Word<uint64_t>;
};

HETCCL_KERNEL_FUNCTION inline const char* at(const void* base, size_t bytes) {
  return static_cast<const char*>(base) + bytes;
}
HETCCL_KERNEL_FUNCTION inline const Quad* quads_at(const void* base, size_t bytes) {
  accesses(at(base, bytes), sizeof(Quad));
  return reinterpret_cast<const Quad*>(at(base, bytes));
}
HETCCL_KERNEL_FUNCTION inline Quad* quads_at(void* base, size_t bytes) {
  return const_cast<Quad*>(quads_at(static_cast<const void*>(base), bytes));
}

// A value by words of its alignment.
template <class W, class T>
HETCCL_KERNEL_FUNCTION inline void load_words(const void* from, T* value) {
  accesses(from, sizeof(W));
  W words[sizeof(T) / sizeof(W)];
  HETCCL_UNROLL
  for (size_t i = 0; i < sizeof(T) / sizeof(W); ++i) words[i] = static_cast<const W*>(from)[i];
  __builtin_memcpy(value, words, sizeof(T));
}

template <class W, class T>
HETCCL_KERNEL_FUNCTION inline void store_words(void* to, const T& value) {
  accesses(to, sizeof(W));
  W words[sizeof(T) / sizeof(W)];
  __builtin_memcpy(words, &value, sizeof(T));
  HETCCL_UNROLL
  for (size_t i = 0; i < sizeof(T) / sizeof(W); ++i) static_cast<W*>(to)[i] = words[i];
}

template <class T>
HETCCL_KERNEL_FUNCTION inline T load(const void* base, size_t i) {
  using W = typename Aligned<kAlignment<T>>::Type;
  T value;
  load_words<W>(at(base, i * sizeof(T)), &value);
  return value;
}

template <class T>
HETCCL_KERNEL_FUNCTION inline void store(void* base, size_t i, T value) {
  using W = typename Aligned<kAlignment<T>>::Type;
  store_words<W>(static_cast<char*>(base) + i * sizeof(T), value);
}

template <class T, int kCount>
struct Pack {
  static constexpr int kQuads = kCount * sizeof(T) / kPackBytes;
  T lanes[kCount];
};

// Lanes by shifts and in words of 32 bits: compilers leave arrays that are copied as bytes in the
// thread's memory. What is smaller than a word is an integer.
template <class T, int kCount>
HETCCL_KERNEL_FUNCTION inline Pack<T, kCount> unpack(const Quad (&quads)[Pack<T, kCount>::kQuads]) {
  Pack<T, kCount> pack;
  HETCCL_UNROLL
  for (int k = 0; k < kCount; ++k) {
    const int byte = k * sizeof(T);
    const Quad& quad = quads[byte / kPackBytes];
    const int w = byte % kPackBytes / 4;
    if constexpr (sizeof(T) < 4) {
      pack.lanes[k] = static_cast<T>(quad.bits[w] >> (byte % 4 * 8));
    } else if constexpr (sizeof(T) == 4) {
      pack.lanes[k] = bits_as<T>(quad.bits[w]);
    } else if constexpr (sizeof(T) == 8) {
      pack.lanes[k] = bits_as<T>(uint64_t{quad.bits[w + 1]} << 32 | quad.bits[w]);
    } else {
      pack.lanes[k] = bits_as<T>(quad);
    }
  }
  return pack;
}

template <class T, int kCount>
HETCCL_KERNEL_FUNCTION inline void repack(const Pack<T, kCount>& pack,
                                          Quad (&quads)[Pack<T, kCount>::kQuads]) {
  HETCCL_UNROLL
  for (int k = 0; k < kCount; ++k) {
    const int byte = k * sizeof(T);
    Quad& quad = quads[byte / kPackBytes];
    const int w = byte % kPackBytes / 4;
    if constexpr (sizeof(T) < 4) {
      constexpr uint32_t kMask = (uint32_t{1} << 8 * sizeof(T)) - 1;
      const uint32_t bits = (static_cast<uint32_t>(pack.lanes[k]) & kMask) << (byte % 4 * 8);
      quad.bits[w] = byte % 4 == 0 ? bits : quad.bits[w] | bits;
    } else if constexpr (sizeof(T) == 4) {
      quad.bits[w] = bits_as<uint32_t>(pack.lanes[k]);
    } else if constexpr (sizeof(T) == 8) {
      const auto bits = bits_as<uint64_t>(pack.lanes[k]);
      quad.bits[w] = static_cast<uint32_t>(bits);
      quad.bits[w + 1] = static_cast<uint32_t>(bits >> 32);
    } else {
      quad = bits_as<Quad>(pack.lanes[k]);
    }
  }
}

// Elements [i, i + kCount).
template <class T, int kCount>
HETCCL_KERNEL_FUNCTION inline Pack<T, kCount> load_pack(const void* base, size_t i, bool aligned) {
  if (aligned) {
    Quad quads[Pack<T, kCount>::kQuads];
    HETCCL_UNROLL
    for (int q = 0; q < Pack<T, kCount>::kQuads; ++q) {
      quads[q] = quads_at(base, i * sizeof(T))[q];
    }
    return unpack<T, kCount>(quads);
  }
  Pack<T, kCount> pack;
  HETCCL_UNROLL
  for (int k = 0; k < kCount; ++k) pack.lanes[k] = load<T>(base, i + k);
  return pack;
}

template <class T, int kCount>
HETCCL_KERNEL_FUNCTION inline void store_pack(void* base, size_t i, const Pack<T, kCount>& pack,
                                              bool aligned) {
  if (aligned) {
    Quad quads[Pack<T, kCount>::kQuads];
    repack(pack, quads);
    HETCCL_UNROLL
    for (int q = 0; q < Pack<T, kCount>::kQuads; ++q) {
      quads_at(base, i * sizeof(T))[q] = quads[q];
    }
  } else {
    HETCCL_UNROLL
    for (int k = 0; k < kCount; ++k) store<T>(base, i + k, pack.lanes[k]);
  }
}

// ---- An operator over packs ----

template <class Op>
struct Packed {
  using E = typename Op::Element;
  using A = typename Op::Accumulator;
  static constexpr int kLanes = kPackBytes / sizeof(E);
  // Loads in flight hide the memory's latency; many elements at a time cost registers and code.
  static constexpr int kPacks = kLanes <= 4 ? 4 : kLanes <= 8 ? 2 : 1;
  using Narrow = Pack<E, kLanes>;
  using Wide = Pack<A, kLanes>;
  static_assert(sizeof(Narrow) == kPackBytes && sizeof(Wide) % kPackBytes == 0);

  HETCCL_KERNEL_FUNCTION static Wide widen(const Narrow& x) {
    Wide result;
    HETCCL_UNROLL
    for (int k = 0; k < kLanes; ++k) result.lanes[k] = Op::widen(x.lanes[k]);
    return result;
  }

  HETCCL_KERNEL_FUNCTION static void join(Wide* sum, const Wide& x) {
    HETCCL_UNROLL
    for (int k = 0; k < kLanes; ++k) sum->lanes[k] = Op::join(sum->lanes[k], x.lanes[k]);
  }

  HETCCL_KERNEL_FUNCTION static void write(const CombineParameters& p, size_t i, const Wide& sum,
                                           bool aligned) {
    if (p.finalize) {
      Narrow result;
      HETCCL_UNROLL
      for (int k = 0; k < kLanes; ++k) result.lanes[k] = Op::finish(sum.lanes[k], p.ranks);
      store_pack(p.destination, i, result, aligned);
    } else {
      store_pack(p.destination, i, sum, aligned);
    }
  }

  // One element.
  HETCCL_KERNEL_FUNCTION static A element(const CombineParameters& p, unsigned s, size_t i) {
    return (p.wide >> s & 1) != 0 ? load<A>(p.sources[s], i) : Op::widen(load<E>(p.sources[s], i));
  }
  HETCCL_KERNEL_FUNCTION static void one(const CombineParameters& p, size_t i) {
    A sum = element(p, 0, i);
    HETCCL_KEEP_LOOP
    for (unsigned s = 1; s < p.source_count; ++s) sum = Op::join(sum, element(p, s, i));
    if (p.finalize) {
      store<E>(p.destination, i, Op::finish(sum, p.ranks));
    } else {
      store<A>(p.destination, i, sum);
    }
  }

  // One pack, from sources of any kind.
  HETCCL_KERNEL_FUNCTION static void pack(const CombineParameters& p, size_t i) {
    Wide sum = {};
    HETCCL_KEEP_LOOP
    for (unsigned s = 0; s < p.source_count; ++s) {
      const bool aligned = (p.unaligned >> s & 1) == 0;
      const Wide x = (p.wide >> s & 1) != 0 ? load_pack<A, kLanes>(p.sources[s], i, aligned)
                                            : widen(load_pack<E, kLanes>(p.sources[s], i, aligned));
      if (s == 0) {
        sum = x;
      } else {
        join(&sum, x);
      }
    }
    write(p, i, sum, !p.unaligned_destination);
  }

  // A pack of a source whose elements are narrow and aligned. It stays as it is until it is needed:
  // unpacked, small elements take a register each.
  HETCCL_KERNEL_FUNCTION static Quad quad(const CombineParameters& p, unsigned s, size_t i) {
    return *quads_at(p.sources[s], i * sizeof(E));
  }
  HETCCL_KERNEL_FUNCTION static Wide widen(const Quad& x) {
    const Quad quads[1] = {x};
    return widen(unpack<E, kLanes>(quads));
  }

  // kPacks packs at a distance of `stride` elements, all narrow and aligned. Two sources at a time.
  HETCCL_KERNEL_FUNCTION static void packs(const CombineParameters& p, size_t i, size_t stride) {
    Wide sums[kPacks];
    Quad a[kPacks], b[kPacks];
    HETCCL_UNROLL
    for (int k = 0; k < kPacks; ++k) a[k] = quad(p, 0, i + k * stride);
    unsigned s = 1;
    if (p.source_count % 2 == 0) {
      HETCCL_UNROLL
      for (int k = 0; k < kPacks; ++k) b[k] = quad(p, 1, i + k * stride);
      s = 2;
    }
    HETCCL_UNROLL
    for (int k = 0; k < kPacks; ++k) {
      sums[k] = widen(a[k]);
      if (s == 2) join(&sums[k], widen(b[k]));
    }
    HETCCL_KEEP_LOOP
    for (; s < p.source_count; s += 2) {
      HETCCL_UNROLL
      for (int k = 0; k < kPacks; ++k) a[k] = quad(p, s, i + k * stride);
      HETCCL_UNROLL
      for (int k = 0; k < kPacks; ++k) b[k] = quad(p, s + 1, i + k * stride);
      HETCCL_UNROLL
      for (int k = 0; k < kPacks; ++k) {
        join(&sums[k], widen(a[k]));
        join(&sums[k], widen(b[k]));
      }
    }
    HETCCL_UNROLL
    for (int k = 0; k < kPacks; ++k) write(p, i + k * stride, sums[k], true);
  }
};

template <class Op>
HETCCL_GPU_KERNEL(kThreads)
combine(HETCCL_GPU_PARAMETER CombineParameters p) {
  using P = Packed<Op>;
  const size_t threads = static_cast<size_t>(gridDim.x) * blockDim.x;
  const size_t thread = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const size_t packs = (p.count - p.head) / P::kLanes;
  const size_t tail = p.head + packs * P::kLanes;
  const size_t stride = threads * P::kLanes;

  size_t pack = thread;
  if (p.wide == 0 && p.unaligned == 0 && !p.unaligned_destination) {
    HETCCL_KEEP_LOOP
    for (; pack + (P::kPacks - 1) * threads < packs; pack += P::kPacks * threads) {
      P::packs(p, p.head + pack * P::kLanes, stride);
    }
  }
  HETCCL_KEEP_LOOP
  for (; pack < packs; pack += threads) P::pack(p, p.head + pack * P::kLanes);

  // What lies ahead of the packs and behind them, an element a thread.
  HETCCL_KEEP_LOOP
  for (size_t i = thread; i < p.head + (p.count - tail); i += threads) {
    P::one(p, i < p.head ? i : tail + (i - p.head));
  }
}

template <class Op>
GpuKernel kernel(unsigned units = 1) {
  using E = typename Op::Element;
  using A = typename Op::Accumulator;
  return {combine<Op>, sizeof(E), kAlignment<E>, sizeof(A), kAlignment<A>, units};
}

}  // namespace hetccl::device::HETCCL_KERNEL_NAMESPACE

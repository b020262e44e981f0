// One operator over arrays, for the host. Written once, compiled once per instruction set; the
// compiler vectorises the innermost loops.
//
// Where elements accumulate as they are, up to four sources are combined in one pass over memory.
// Otherwise, and for more sources, the work goes tile by tile: a tile of accumulators stays in the
// first-level cache while the sources pass by, and each piece of the destination is written once,
// after all sources of that piece have been read. So the destination may be one of the sources.
#pragma once

#include "lib/device/kernels.h"
#include "lib/device/lanes.h"
#include "lib/device/operators.h"

// Iterations touch the same index of all arrays: even where the destination is a source, no
// iteration depends on another.
#if defined(__clang__)
#define HETCCL_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define HETCCL_INDEPENDENT _Pragma("GCC ivdep")
#endif

namespace hetccl::device::HETCCL_KERNEL_NAMESPACE {

// Buffers have the alignment of the user's type, which may be less than that of ours, and any type.
template <class T>
struct __attribute__((packed, may_alias)) Unaligned {
  T value;
};

template <class T>
inline T get(const void* from, size_t i) {
  return static_cast<const Unaligned<T>*>(from)[i].value;
}

template <class T>
inline void put(void* to, size_t i, T value) {
  static_cast<Unaligned<T>*>(to)[i].value = value;
}

inline const void* at(const void* base, size_t bytes) {
  return static_cast<const char*>(base) + bytes;
}
inline void* at(void* base, size_t bytes) { return static_cast<char*>(base) + bytes; }

inline void move(void* to, const void* from, size_t bytes) {
  if (to != from) __builtin_memcpy(to, from, bytes);
}

constexpr size_t kTileBytes = 4096;

// ---- Elements that accumulate as they are ----

template <class Op, int kSources, bool kFinish>
void pass(void* to, const void* const* from, size_t count, int ranks) {
  using T = typename Op::Element;
  static_assert(kSources >= 1 && kSources <= 4);
  const void* const a = from[0];
  const void* const b = kSources > 1 ? from[1] : nullptr;
  const void* const c = kSources > 2 ? from[2] : nullptr;
  const void* const d = kSources > 3 ? from[3] : nullptr;
  HETCCL_INDEPENDENT
  for (size_t i = 0; i < count; ++i) {
    T x = get<T>(a, i);
    if constexpr (kSources > 1) x = Op::join(x, get<T>(b, i));
    if constexpr (kSources > 2) x = Op::join(x, get<T>(c, i));
    if constexpr (kSources > 3) x = Op::join(x, get<T>(d, i));
    if constexpr (kFinish) x = Op::finish(x, ranks);
    put<T>(to, i, x);
  }
}

template <class Op>
void pass_of(int sources, bool finish, void* to, const void* const* from, size_t count, int ranks) {
  constexpr bool kAlways = Op::kFinish == Finish::kAlways;
  constexpr bool kEver = Op::kFinish != Finish::kNothing;
  if (sources == 1) {
    if (kEver && finish) return pass<Op, 1, kEver>(to, from, count, ranks);
    return move(to, from[0], count * sizeof(typename Op::Element));
  }
  if (kAlways && finish) {
    if (sources == 2) return pass<Op, 2, kAlways>(to, from, count, ranks);
    if (sources == 3) return pass<Op, 3, kAlways>(to, from, count, ranks);
    return pass<Op, 4, kAlways>(to, from, count, ranks);
  }
  if (sources == 2) return pass<Op, 2, false>(to, from, count, ranks);
  if (sources == 3) return pass<Op, 3, false>(to, from, count, ranks);
  return pass<Op, 4, false>(to, from, count, ranks);
}

template <class Op>
void run_same(const KernelCall& call) {
  using T = typename Op::Element;
  const void* from[4];
  if (call.source_count <= 4) {
    for (size_t s = 0; s < call.source_count; ++s) from[s] = call.sources[s].data;
    return pass_of<Op>(static_cast<int>(call.source_count), call.finalize, call.destination, from,
                       call.count, call.ranks);
  }
  constexpr size_t kTile = kTileBytes / sizeof(T);
  alignas(64) unsigned char tile[kTileBytes];
  for (size_t begin = 0; begin < call.count; begin += kTile) {
    const size_t n = call.count - begin < kTile ? call.count - begin : kTile;
    int pending = 0;
    for (size_t s = 0; s < call.source_count; ++s) {
      from[pending++] = at(call.sources[s].data, begin * sizeof(T));
      const bool last = s + 1 == call.source_count;
      if (pending < 4 && !last) continue;
      void* to = last ? at(call.destination, begin * sizeof(T)) : tile;
      pass_of<Op>(pending, last && call.finalize, to, from, n, call.ranks);
      from[0] = tile;
      pending = 1;
    }
  }
}

// ---- Elements that accumulate in a wider type ----

template <class Op>
struct Wide {
  using E = typename Op::Element;
  using A = typename Op::Accumulator;
  static constexpr size_t kTile = kTileBytes / sizeof(A);

  static void widen(A* tile, const void* from, size_t count) {
    size_t i = Lanes<Op>::widen(tile, from, count);
    HETCCL_INDEPENDENT
    for (; i < count; ++i) tile[i] = Op::widen(get<E>(from, i));
  }
  static void widen_two(A* tile, const void* a, const void* b, size_t count) {
    size_t i = Lanes<Op>::widen_two(tile, a, b, count);
    HETCCL_INDEPENDENT
    for (; i < count; ++i) {
      tile[i] = Op::join(Op::widen(get<E>(a, i)), Op::widen(get<E>(b, i)));
    }
  }
  static void join_narrow(A* tile, const void* from, size_t count) {
    size_t i = Lanes<Op>::join_narrow(tile, from, count);
    HETCCL_INDEPENDENT
    for (; i < count; ++i) tile[i] = Op::join(tile[i], Op::widen(get<E>(from, i)));
  }
  static void join_wide(A* tile, const void* from, size_t count) {
    HETCCL_INDEPENDENT
    for (size_t i = 0; i < count; ++i) tile[i] = Op::join(tile[i], get<A>(from, i));
  }
  static void finish(void* to, const A* tile, size_t count, int ranks) {
    size_t i = Lanes<Op>::finish(to, tile, count, ranks);
    HETCCL_INDEPENDENT
    for (; i < count; ++i) put<E>(to, i, Op::finish(tile[i], ranks));
  }
  static void finish_two(void* to, const void* a, const void* b, size_t count, int ranks) {
    size_t i = Lanes<Op>::finish_two(to, a, b, count, ranks);
    HETCCL_INDEPENDENT
    for (; i < count; ++i) {
      const A sum = Op::join(Op::widen(get<E>(a, i)), Op::widen(get<E>(b, i)));
      put<E>(to, i, Op::finish(sum, ranks));
    }
  }

  static const void* piece(const KernelSource& source, size_t begin) {
    return at(source.data, begin * (source.wide ? sizeof(A) : sizeof(E)));
  }

  // All sources joined in `tile`.
  static void gather(A* tile, const KernelCall& call, size_t begin, size_t n) {
    const KernelSource* const sources = call.sources;
    const bool two = call.source_count > 1 && !sources[0].wide && !sources[1].wide;
    if (two) {
      widen_two(tile, piece(sources[0], begin), piece(sources[1], begin), n);
    } else if (sources[0].wide) {
      move(tile, piece(sources[0], begin), n * sizeof(A));
    } else {
      widen(tile, piece(sources[0], begin), n);
    }
    for (size_t s = two ? 2 : 1; s < call.source_count; ++s) {
      const void* const from = piece(sources[s], begin);
      sources[s].wide ? join_wide(tile, from, n) : join_narrow(tile, from, n);
    }
  }

  static void run(const KernelCall& call) {
    const KernelSource* const sources = call.sources;
    if (call.source_count == 1 && !call.finalize && sources[0].wide == call.wide) {
      return move(call.destination, sources[0].data,
                  call.count * (call.wide ? sizeof(A) : sizeof(E)));
    }
    if (call.source_count == 2 && call.finalize && !sources[0].wide && !sources[1].wide) {
      return finish_two(call.destination, sources[0].data, sources[1].data, call.count, call.ranks);
    }
    alignas(64) A tile[kTile];
    for (size_t begin = 0; begin < call.count; begin += kTile) {
      const size_t n = call.count - begin < kTile ? call.count - begin : kTile;
      gather(tile, call, begin, n);
      if (call.finalize) {
        finish(at(call.destination, begin * sizeof(E)), tile, n, call.ranks);
      } else {
        move(at(call.destination, begin * sizeof(A)), tile, n * sizeof(A));
      }
    }
  }
};

template <class Op>
constexpr Kernel same(unsigned units = 1) {
  return {run_same<Op>, units};
}

template <class Op>
constexpr Kernel wide() {
  return {Wide<Op>::run, 1};
}

template <class Format, class Accumulator>
void run_average(const KernelCall& call) {
  if ((call.ranks & (call.ranks - 1)) == 0) {
    return Wide<NarrowAvgOfPowerOfTwo<Format, Accumulator>>::run(call);
  }
  Wide<NarrowAvg<Format, Accumulator>>::run(call);
}

}  // namespace hetccl::device::HETCCL_KERNEL_NAMESPACE

// From a call to kernels: which kernel, on how many blocks, where packs begin, and what to do with
// more sources than one launch takes. No state.
#pragma once

#include "lib/device/gpu/combine_kernel.h"
#include "lib/device/gpu/launch.h"

namespace hetccl::device::HETCCL_KERNEL_NAMESPACE {

// More sources go by pieces of the arrays, so that scratch memory is bounded.
constexpr size_t kMostScratch = size_t{8} << 20;

inline GpuKernel find_kernel(hetcclDataType_t type, hetcclRedOp_t op) {
  constexpr GpuKernel (*kGroups[])(hetcclDataType_t, hetcclRedOp_t) = {
      integer_kernel, float_kernel, narrow_float_kernel, other_kernel};
  for (auto* find : kGroups) {
    const GpuKernel found = find(type, op);
    if (found.run != nullptr) return found;
  }
  return {};
}

// A call in elements of its kernel.
struct Work {
  GpuKernel kernel;
  KernelCall call;
  int max_blocks;
  void* stream;
};

inline Work work_of(const Launch& launch) {
  Work work = {find_kernel(launch.type, launch.op), launch.call, launch.max_blocks, launch.stream};
  KernelCall& call = work.call;
  if (work.kernel.run == nullptr) return work;
  call.count *= work.kernel.units;
  const bool same = work.kernel.element == work.kernel.accumulator;
  if (call.source_count == 1 && !call.finalize && (same || call.sources[0].wide == call.wide)) {
    // A copy, and any operator of bytes copies a lone source.
    call.count *= call.wide ? work.kernel.accumulator : work.kernel.element;
    work.kernel = find_kernel(hetcclByte, hetcclBXor);
  }
  return work;
}

// Elements of one piece of a call of many sources.
inline size_t piece_of(const Work& work) {
  const size_t most = kMostScratch / work.kernel.accumulator;
  return work.call.count < most ? work.call.count : most;
}

// Whether a buffer is aligned for packs that begin at element `i`.
inline bool fits(const void* base, size_t bytes, size_t i) {
  return (reinterpret_cast<uintptr_t>(base) + i * bytes) % kPackBytes == 0;
}

// Chooses where packs begin, so that as many buffers as can be are aligned, and notes the others.
inline void align(const GpuKernel& kernel, CombineParameters* p) {
  const size_t lanes = kPackBytes / kernel.element;
  const auto size = [&](bool wide) { return wide ? kernel.accumulator : kernel.element; };
  unsigned most = 0;
  for (size_t head = 0; head < lanes && head <= p->count; ++head) {
    const bool to_fits = fits(p->destination, size(p->wide_destination), head);
    unsigned count = to_fits;
    uint64_t unaligned = 0;
    for (unsigned s = 0; s < p->source_count; ++s) {
      const bool from_fits = fits(p->sources[s], size(p->wide >> s & 1), head);
      count += from_fits;
      unaligned |= uint64_t{!from_fits} << s;
    }
    if (head != 0 && count <= most) continue;
    most = count;
    p->head = static_cast<uint32_t>(head);
    p->unaligned = unaligned;
    p->unaligned_destination = !to_fits;
    if (count == p->source_count + 1) return;
  }
}

// A call of at most kMostSources sources.
inline int launch_one(const Work& work, const KernelCall& call) {
  const GpuKernel& kernel = work.kernel;
  // A GPU faults on what is not aligned, and its fault ends everything of the process on it.
  const auto aligned = [&](const void* base, bool wide) {
    const size_t alignment = wide ? kernel.accumulator_alignment : kernel.element_alignment;
    return reinterpret_cast<uintptr_t>(base) % alignment == 0;
  };
  CombineParameters p = {};
  p.destination = call.destination;
  p.count = call.count;
  p.source_count = static_cast<uint32_t>(call.source_count);
  p.ranks = call.ranks;
  p.finalize = call.finalize;
  const bool widens = kernel.element != kernel.accumulator;
  p.wide_destination = widens && !call.finalize;
  if (!aligned(call.destination, p.wide_destination)) return kInvalidValue;
  for (size_t s = 0; s < call.source_count; ++s) {
    const bool wide = widens && call.sources[s].wide;
    if (!aligned(call.sources[s].data, wide)) return kInvalidValue;
    p.sources[s] = call.sources[s].data;
    p.wide |= uint64_t{wide} << s;
  }
  align(kernel, &p);

  const size_t lanes = kPackBytes / kernel.element;
  const unsigned threads = block_threads(kThreads);
  const size_t of_block = threads * lanes;  // small calls are spread, since they wait for memory
  const size_t wanted = (call.count + of_block - 1) / of_block;
  const size_t most = work.max_blocks < 1 ? 1 : static_cast<size_t>(work.max_blocks);
  return start_kernel(kernel.run, static_cast<unsigned>(wanted < most ? wanted : most), threads, &p,
                      work.stream);
}

// Elements [begin, begin + count) of a source of a call.
inline KernelSource part_of(const GpuKernel& kernel, const KernelSource& source, size_t begin) {
  const size_t bytes = source.wide ? kernel.accumulator : kernel.element;
  return {static_cast<const char*>(source.data) + begin * bytes, source.wide};
}

// All sources of one piece: as many as a launch takes, then further ones joined to what is in
// `scratch`. The destination, which may be a source, is written last.
inline int launch_piece(const Work& work, size_t begin, size_t count, void* scratch) {
  const KernelCall& call = work.call;
  KernelSource sources[kMostSources];
  size_t taken = 0, pending = 0;
  while (taken < call.source_count) {
    while (pending < kMostSources && taken < call.source_count) {
      sources[pending++] = part_of(work.kernel, call.sources[taken++], begin);
    }
    KernelCall some = {scratch, sources, pending, count, call.ranks, true, false};
    if (taken == call.source_count) {
      const KernelSource to =
          part_of(work.kernel, {call.destination, call.wide || !call.finalize}, begin);
      some.destination = const_cast<void*>(to.data);
      some.wide = call.wide;
      some.finalize = call.finalize;
    }
    const int error = launch_one(work, some);
    if (error != kSuccess) return error;
    sources[0] = {scratch, true};
    pending = 1;
  }
  return kSuccess;
}

}  // namespace hetccl::device::HETCCL_KERNEL_NAMESPACE

namespace hetccl::device {

size_t scratch_bytes(const Launch& launch) {
  using namespace HETCCL_KERNEL_NAMESPACE;
  const Work work = work_of(launch);
  if (work.kernel.run == nullptr || work.call.source_count <= kMostSources) return 0;
  return piece_of(work) * work.kernel.accumulator;
}

int launch_combine(const Launch& launch) {
  using namespace HETCCL_KERNEL_NAMESPACE;
  const Work work = work_of(launch);
  if (work.kernel.run == nullptr || work.call.source_count == 0) return kInvalidValue;
  if (work.call.count == 0) return kSuccess;
  if (work.call.source_count <= kMostSources) return launch_one(work, work.call);
  if (launch.scratch == nullptr) return kInvalidValue;
  const size_t piece = piece_of(work);
  for (size_t begin = 0; begin < work.call.count; begin += piece) {
    const size_t rest = work.call.count - begin;
    const int error = launch_piece(work, begin, rest < piece ? rest : piece, launch.scratch);
    if (error != kSuccess) return error;
  }
  return kSuccess;
}

int load_kernels() {
  using namespace HETCCL_KERNEL_NAMESPACE;
  for (int type = 0; type < hetcclNumTypes; ++type) {
    for (int op = 0; op < hetcclNumOps; ++op) {
      const GpuKernel found =
          find_kernel(static_cast<hetcclDataType_t>(type), static_cast<hetcclRedOp_t>(op));
      const int error = found.run == nullptr ? kSuccess : load_kernel(found.run);
      if (error != kSuccess) return error;
    }
  }
  return kSuccess;
}

}  // namespace hetccl::device

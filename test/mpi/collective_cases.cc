#include "test/mpi/collective_cases.h"

namespace hetccl::test {

using coll::Collective;

void CollectiveCases::run_case(Collective collective, size_t count) {
  const auto n = static_cast<size_t>(ranks);
  const auto me = static_cast<size_t>(rank);
  switch (collective) {
    case Collective::kAllReduce:
      check(
          {count, count, 0, 0, 0, true, true}, [&](size_t i) { return sum(i); },
          [&](const void* s, void* r, hetcclStream_t t) {
            return hetcclAllReduce(s, r, count, hetcclFloat32, hetcclSum, comm, t);
          },
          count);
      break;
    case Collective::kReduce:
      for (int root : {0, ranks - 1}) {
        check(
            {count, count, 0, 0, 0, true, rank == root}, [&](size_t i) { return sum(i); },
            [&](const void* s, void* r, hetcclStream_t t) {
              return hetcclReduce(s, r, count, hetcclFloat32, hetcclSum, root, comm, t);
            },
            count);
      }
      break;
    case Collective::kBroadcast:
      for (int root : {0, ranks / 2}) {
        check(
            {count, count, 0, 0, 0, rank == root, true}, [&](size_t i) { return value(root, i); },
            [&](const void* s, void* r, hetcclStream_t t) {
              return hetcclBroadcast(s, r, count, hetcclFloat32, root, comm, t);
            },
            count);
      }
      break;
    case Collective::kAllGather:
      check(
          {count, count * n, 0, me * count, 0, true, true},
          [&](size_t i) { return value(static_cast<int>(i / count), i % count); },
          [&](const void* s, void* r, hetcclStream_t t) {
            return hetcclAllGather(s, r, count, hetcclFloat32, comm, t);
          },
          count);
      break;
    case Collective::kReduceScatter:
      check(
          {count * n, count, 0, 0, me * count, true, true},
          [&](size_t i) { return sum(me * count + i); },
          [&](const void* s, void* r, hetcclStream_t t) {
            return hetcclReduceScatter(s, r, count, hetcclFloat32, hetcclSum, comm, t);
          },
          count);
      break;
    case Collective::kAllToAll:
      check(
          {count * n, count * n, 0, 0, 0, true, true},
          [&](size_t i) { return value(static_cast<int>(i / count), me * count + i % count); },
          [&](const void* s, void* r, hetcclStream_t t) {
            return hetcclAllToAll(s, r, count, hetcclFloat32, comm, t);
          },
          count);
      break;
    case Collective::kGather:
      for (int root : {0, ranks / 2}) {
        check(
            {count, count * n, 0, rank == root ? me * count : 0, 0, true, rank == root},
            [&](size_t i) { return value(static_cast<int>(i / count), i % count); },
            [&](const void* s, void* r, hetcclStream_t t) {
              return hetcclGather(s, r, count, hetcclFloat32, root, comm, t);
            },
            count);
      }
      break;
    case Collective::kScatter:
      for (int root : {0, ranks / 2}) {
        const size_t own = rank == root ? me * count : 0;
        check(
            {rank == root ? count * n : 0, count, 0, 0, own, rank == root, true},
            [&](size_t i) { return value(root, me * count + i); },
            [&](const void* s, void* r, hetcclStream_t t) {
              return hetcclScatter(s, r, count, hetcclFloat32, root, comm, t);
            },
            count);
      }
      break;
    case Collective::kScan:
      check(
          {count, count, 0, 0, 0, true, true}, [&](size_t i) { return sum(i, rank + 1); },
          [&](const void* s, void* r, hetcclStream_t t) {
            return hetcclScan(s, r, count, hetcclFloat32, hetcclSum, comm, t);
          },
          count);
      break;
    case Collective::kExscan:
      check(
          {count, count, 0, 0, 0, true, rank > 0}, [&](size_t i) { return sum(i, rank); },
          [&](const void* s, void* r, hetcclStream_t t) {
            return hetcclExscan(s, r, count, hetcclFloat32, hetcclSum, comm, t);
          },
          count);
      break;
    case Collective::kBarrier:
      break;
  }
}

}  // namespace hetccl::test

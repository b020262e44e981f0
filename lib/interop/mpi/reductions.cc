// Collectives that combine: predefined types and operators only, so that buffers are dense. MPI
// demands the same type and operator of all ranks.
#include <cstring>

#include "lib/base/types.h"
#include "lib/interop/mpi/collectives.h"

namespace hetccl::mpi {
namespace {

Ask ask_reduction(int64_t count, MPI_Datatype datatype, MPI_Op op, int root, int size) {
  if (count < 0 || root < 0 || root >= size) return {Pass::kInvalid};
  const auto type = native_type(datatype);
  const auto with = native_op(op);
  if (!type || !with || !reduces(*type, *with)) return {Pass::kOperator};
  if (count == 0) return {Pass::kEmpty};
  return {Pass::kTaken, static_cast<size_t>(count) * size_of(*type)};
}

struct Reduction {
  hetcclDataType_t type;
  hetcclRedOp_t op;
  const void* send;
  void* recv;
};

// `in_place`: what MPI_IN_PLACE stands for. Bytes between value and index belong to the program:
// pairs that have some are combined elsewhere and copied field by field.
Reduction reduction(Job* job, const void* sendbuf, void* recvbuf, size_t count_written,
                    MPI_Datatype datatype, MPI_Op op) {
  Reduction r{*native_type(datatype), *native_op(op), sendbuf, recvbuf};
  if (sendbuf == MPI_IN_PLACE) r.send = recvbuf;
  if (has_gap(r.type) && count_written > 0) {
    r.recv = job->temporary(count_written * size_of(r.type));
    job->copy_at_end(recvbuf, r.recv, count_written, r.type);
  }
  return r;
}

}  // namespace

Ask ask(tag::Allreduce, const Channel& channel, const void*, void*, int count,
        MPI_Datatype datatype, MPI_Op op) {
  return ask_reduction(count, datatype, op, 0, channel.size());
}
hetcclResult_t issue(tag::Allreduce, Job& job, const void* sendbuf, void* recvbuf, int count,
                     MPI_Datatype datatype, MPI_Op op) {
  const auto n = static_cast<size_t>(count);
  const Reduction r = reduction(&job, sendbuf, recvbuf, n, datatype, op);
  return hetcclAllReduce(r.send, r.recv, n, r.type, r.op, job.comm(), job.stream());
}

Ask ask(tag::Reduce, const Channel& channel, const void*, void*, int count, MPI_Datatype datatype,
        MPI_Op op, int root) {
  return ask_reduction(count, datatype, op, root, channel.size());
}
hetcclResult_t issue(tag::Reduce, Job& job, const void* sendbuf, void* recvbuf, int count,
                     MPI_Datatype datatype, MPI_Op op, int root) {
  const auto n = static_cast<size_t>(count);
  const bool at_root = job.channel().rank() == root;
  const Reduction r =
      reduction(&job, sendbuf, at_root ? recvbuf : nullptr, at_root ? n : 0, datatype, op);
  return hetcclReduce(r.send, r.recv, n, r.type, r.op, root, job.comm(), job.stream());
}

Ask ask(tag::Scan, const Channel& channel, const void*, void*, int count, MPI_Datatype datatype,
        MPI_Op op) {
  return ask_reduction(count, datatype, op, 0, channel.size());
}
hetcclResult_t issue(tag::Scan, Job& job, const void* sendbuf, void* recvbuf, int count,
                     MPI_Datatype datatype, MPI_Op op) {
  const auto n = static_cast<size_t>(count);
  const Reduction r = reduction(&job, sendbuf, recvbuf, n, datatype, op);
  return hetcclScan(r.send, r.recv, n, r.type, r.op, job.comm(), job.stream());
}

Ask ask(tag::Exscan, const Channel& channel, const void*, void*, int count, MPI_Datatype datatype,
        MPI_Op op) {
  return ask_reduction(count, datatype, op, 0, channel.size());
}
hetcclResult_t issue(tag::Exscan, Job& job, const void* sendbuf, void* recvbuf, int count,
                     MPI_Datatype datatype, MPI_Op op) {
  const auto n = static_cast<size_t>(count);
  const bool first = job.channel().rank() == 0;  // it gets nothing
  const Reduction r = reduction(&job, sendbuf, recvbuf, first ? 0 : n, datatype, op);
  return hetcclExscan(r.send, r.recv, n, r.type, r.op, job.comm(), job.stream());
}

Ask ask(tag::Reduce_scatter_block, const Channel& channel, const void*, void*, int recvcount,
        MPI_Datatype datatype, MPI_Op op) {
  Ask asked = ask_reduction(recvcount, datatype, op, 0, channel.size());
  asked.bytes *= static_cast<size_t>(channel.size());
  return asked;
}

// MPI's in place: all of the input lies in recvbuf, and the result goes to its start; the rest
// stays as it is. Ours would leave it at the rank's own block.
hetcclResult_t issue(tag::Reduce_scatter_block, Job& job, const void* sendbuf, void* recvbuf,
                     int recvcount, MPI_Datatype datatype, MPI_Op op) {
  const auto n = static_cast<size_t>(recvcount);
  Reduction r = reduction(&job, sendbuf, recvbuf, n, datatype, op);
  if (sendbuf == MPI_IN_PLACE && r.recv == recvbuf) {
    r.recv = job.temporary(n * size_of(r.type));
    job.copy_at_end(recvbuf, r.recv, n, r.type);
  }
  return hetcclReduceScatter(r.send, r.recv, n, r.type, r.op, job.comm(), job.stream());
}

Ask ask(tag::Reduce_scatter, const Channel& channel, const void*, void*, const int* recvcounts,
        MPI_Datatype datatype, MPI_Op op) {
  int64_t total = 0;
  for (int i = 0; i < channel.size(); ++i) {
    if (recvcounts == nullptr || recvcounts[i] < 0) return {Pass::kInvalid};
    total += recvcounts[i];
  }
  return ask_reduction(total, datatype, op, 0, channel.size());
}
hetcclResult_t issue(tag::Reduce_scatter, Job& job, const void* sendbuf, void* recvbuf,
                     const int* recvcounts, MPI_Datatype datatype, MPI_Op op) {
  const auto size = static_cast<size_t>(job.channel().size());
  std::vector<size_t>& counts = *job.list(size);
  for (size_t i = 0; i < size; ++i) counts[i] = static_cast<size_t>(recvcounts[i]);
  const size_t mine = counts[static_cast<size_t>(job.channel().rank())];
  Reduction r = reduction(&job, sendbuf, recvbuf, mine, datatype, op);
  if (sendbuf == MPI_IN_PLACE && r.recv == recvbuf) {
    r.recv = job.temporary(mine * size_of(r.type));
    job.copy_at_end(recvbuf, r.recv, mine, r.type);
  }
  return hetcclReduceScatterv(r.send, r.recv, counts.data(), r.type, r.op, job.comm(),
                              job.stream());
}

Ask ask(tag::Barrier, const Channel&) { return {}; }
hetcclResult_t issue(tag::Barrier, Job& job) { return hetcclBarrier(job.comm(), job.stream()); }

}  // namespace hetccl::mpi

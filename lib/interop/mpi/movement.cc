// Collectives that only move: all in bytes, since MPI matches type signatures, not counts, so that
// one rank's 10 integers are another's 1 block of 40 bytes. Arguments that only the root needs are
// not looked at elsewhere.
#include "lib/interop/mpi/collectives.h"

namespace hetccl::mpi {
namespace {

// Bytes of `count` elements; nullopt where MPI must say what is wrong.
std::optional<size_t> bytes_of(int count, MPI_Datatype type) {
  if (count < 0) return std::nullopt;
  const auto shape = shape_of(type);
  if (!shape) return std::nullopt;
  return static_cast<size_t>(count) * shape->size;
}

// `blocks` of so many bytes.
Ask ask_bytes(std::optional<size_t> bytes, int blocks) {
  if (!bytes) return {Pass::kInvalid};
  if (*bytes == 0) return {Pass::kEmpty};
  return {Pass::kTaken, *bytes * static_cast<size_t>(blocks)};
}

bool is_root(const Channel& channel, int root) { return root >= 0 && root < channel.size(); }

// Lists are each rank's own: what is wrong with them is for MPI to say.
std::optional<size_t> total_of(const Channel& channel, const int* counts, const int* displs,
                               MPI_Datatype type) {
  if (counts == nullptr || displs == nullptr) return std::nullopt;
  size_t total = 0;
  for (int i = 0; i < channel.size(); ++i) {
    const auto bytes = bytes_of(counts[i], type);
    if (!bytes) return std::nullopt;
    total += *bytes;
  }
  return total;
}

Ask ask_lists(std::optional<size_t> bytes) {
  if (!bytes) return {Pass::kInvalid};
  return {Pass::kTaken, *bytes};
}

Buffer whole(const void* address, int64_t count, MPI_Datatype type) {
  return {const_cast<void*>(address), type, count, nullptr, nullptr};
}
Buffer listed(const void* address, const int* counts, const int* displs, MPI_Datatype type) {
  return {const_cast<void*>(address), type, 0, counts, displs};
}

constexpr hetcclResult_t kNotPacked = hetcclInternalError;

}  // namespace

Ask ask(tag::Bcast, const Channel& channel, void*, int count, MPI_Datatype datatype, int root) {
  if (!is_root(channel, root)) return {Pass::kInvalid};
  return ask_bytes(bytes_of(count, datatype), 1);
}
hetcclResult_t issue(tag::Bcast, Job& job, void* buffer, int count, MPI_Datatype datatype,
                     int root) {
  const bool at_root = job.channel().rank() == root;
  const Dense* const d =
      job.prepare(whole(buffer, count, datatype), at_root ? Access::kRead : Access::kWrite);
  if (d == nullptr) return kNotPacked;
  return hetcclBroadcast(d->address, d->address, *bytes_of(count, datatype), hetcclByte, root,
                         job.comm(), job.stream());
}

Ask ask(tag::Allgather, const Channel& channel, const void* sendbuf, int sendcount,
        MPI_Datatype sendtype, void*, int recvcount, MPI_Datatype recvtype) {
  if (sendbuf == MPI_IN_PLACE) return ask_bytes(bytes_of(recvcount, recvtype), channel.size());
  if (!bytes_of(recvcount, recvtype)) return {Pass::kInvalid};
  return ask_bytes(bytes_of(sendcount, sendtype), channel.size());
}
hetcclResult_t issue(tag::Allgather, Job& job, const void* sendbuf, int sendcount,
                     MPI_Datatype sendtype, void* recvbuf, int recvcount, MPI_Datatype recvtype) {
  const bool in_place = sendbuf == MPI_IN_PLACE;
  const size_t block = *bytes_of(recvcount, recvtype);
  const Dense* const out =
      job.prepare(whole(recvbuf, int64_t{recvcount} * job.channel().size(), recvtype),
                  in_place ? Access::kBoth : Access::kWrite);
  if (out == nullptr) return kNotPacked;
  const std::byte* mine = out->address + block * static_cast<size_t>(job.channel().rank());
  if (!in_place) {
    const Dense* const in = job.prepare(whole(sendbuf, sendcount, sendtype), Access::kRead);
    if (in == nullptr) return kNotPacked;
    mine = in->address;
  }
  return hetcclAllGather(mine, out->address, block, hetcclByte, job.comm(), job.stream());
}

Ask ask(tag::Allgatherv, const Channel& channel, const void* sendbuf, int sendcount,
        MPI_Datatype sendtype, void*, const int* recvcounts, const int* displs,
        MPI_Datatype recvtype) {
  if (sendbuf != MPI_IN_PLACE && !bytes_of(sendcount, sendtype)) return {Pass::kInvalid};
  return ask_lists(total_of(channel, recvcounts, displs, recvtype));
}
hetcclResult_t issue(tag::Allgatherv, Job& job, const void* sendbuf, int sendcount,
                     MPI_Datatype sendtype, void* recvbuf, const int* recvcounts, const int* displs,
                     MPI_Datatype recvtype) {
  const bool in_place = sendbuf == MPI_IN_PLACE;
  const auto me = static_cast<size_t>(job.channel().rank());
  const Dense* const out = job.prepare(listed(recvbuf, recvcounts, displs, recvtype),
                                       in_place ? Access::kBoth : Access::kWrite);
  if (out == nullptr) return kNotPacked;
  const std::byte* mine = out->address + out->displs[me];
  size_t bytes = out->counts[me];
  if (!in_place) {
    const Dense* const in = job.prepare(whole(sendbuf, sendcount, sendtype), Access::kRead);
    if (in == nullptr) return kNotPacked;
    mine = in->address;
    bytes = *bytes_of(sendcount, sendtype);
  }
  return hetcclAllGatherv(mine, bytes, out->address, out->counts.data(), out->displs.data(),
                          hetcclByte, job.comm(), job.stream());
}

Ask ask(tag::Alltoall, const Channel& channel, const void* sendbuf, int sendcount,
        MPI_Datatype sendtype, void*, int recvcount, MPI_Datatype recvtype) {
  if (sendbuf == MPI_IN_PLACE) return ask_bytes(bytes_of(recvcount, recvtype), channel.size());
  if (!bytes_of(recvcount, recvtype)) return {Pass::kInvalid};
  return ask_bytes(bytes_of(sendcount, sendtype), channel.size());
}
hetcclResult_t issue(tag::Alltoall, Job& job, const void* sendbuf, int sendcount,
                     MPI_Datatype sendtype, void* recvbuf, int recvcount, MPI_Datatype recvtype) {
  const bool in_place = sendbuf == MPI_IN_PLACE;
  const int64_t size = job.channel().size();
  const Dense* const out = job.prepare(whole(recvbuf, recvcount * size, recvtype),
                                       in_place ? Access::kBoth : Access::kWrite);
  if (out == nullptr) return kNotPacked;
  const Dense* in = out;
  if (!in_place) in = job.prepare(whole(sendbuf, sendcount * size, sendtype), Access::kRead);
  if (in == nullptr) return kNotPacked;
  return hetcclAllToAll(in->address, out->address, *bytes_of(recvcount, recvtype), hetcclByte,
                        job.comm(), job.stream());
}

Ask ask(tag::Alltoallv, const Channel& channel, const void* sendbuf, const int* sendcounts,
        const int* sdispls, MPI_Datatype sendtype, void*, const int* recvcounts, const int* rdispls,
        MPI_Datatype recvtype) {
  const auto received = total_of(channel, recvcounts, rdispls, recvtype);
  if (!received || sendbuf == MPI_IN_PLACE) return ask_lists(received);
  return ask_lists(total_of(channel, sendcounts, sdispls, sendtype));
}
hetcclResult_t issue(tag::Alltoallv, Job& job, const void* sendbuf, const int* sendcounts,
                     const int* sdispls, MPI_Datatype sendtype, void* recvbuf,
                     const int* recvcounts, const int* rdispls, MPI_Datatype recvtype) {
  const bool in_place = sendbuf == MPI_IN_PLACE;
  const Dense* const out = job.prepare(listed(recvbuf, recvcounts, rdispls, recvtype),
                                       in_place ? Access::kBoth : Access::kWrite);
  if (out == nullptr) return kNotPacked;
  const Dense* in = out;
  if (!in_place) in = job.prepare(listed(sendbuf, sendcounts, sdispls, sendtype), Access::kRead);
  if (in == nullptr) return kNotPacked;
  return hetcclAllToAllv(in->address, in->counts.data(), in->displs.data(), out->address,
                         out->counts.data(), out->displs.data(), hetcclByte, job.comm(),
                         job.stream());
}

Ask ask(tag::Gather, const Channel& channel, const void* sendbuf, int sendcount,
        MPI_Datatype sendtype, void*, int recvcount, MPI_Datatype recvtype, int root) {
  if (!is_root(channel, root)) return {Pass::kInvalid};
  if (channel.rank() != root) return ask_bytes(bytes_of(sendcount, sendtype), channel.size());
  if (sendbuf != MPI_IN_PLACE && !bytes_of(sendcount, sendtype)) return {Pass::kInvalid};
  return ask_bytes(bytes_of(recvcount, recvtype), channel.size());
}
hetcclResult_t issue(tag::Gather, Job& job, const void* sendbuf, int sendcount,
                     MPI_Datatype sendtype, void* recvbuf, int recvcount, MPI_Datatype recvtype,
                     int root) {
  const bool at_root = job.channel().rank() == root;
  const bool in_place = at_root && sendbuf == MPI_IN_PLACE;
  const size_t block = in_place ? *bytes_of(recvcount, recvtype) : *bytes_of(sendcount, sendtype);
  const Dense* out = nullptr;
  if (at_root) {
    out = job.prepare(whole(recvbuf, int64_t{recvcount} * job.channel().size(), recvtype),
                      in_place ? Access::kBoth : Access::kWrite);
    if (out == nullptr) return kNotPacked;
  }
  const std::byte* mine = in_place ? out->address + block * static_cast<size_t>(root) : nullptr;
  if (!in_place) {
    const Dense* const in = job.prepare(whole(sendbuf, sendcount, sendtype), Access::kRead);
    if (in == nullptr) return kNotPacked;
    mine = in->address;
  }
  return hetcclGather(mine, at_root ? out->address : nullptr, block, hetcclByte, root, job.comm(),
                      job.stream());
}

Ask ask(tag::Gatherv, const Channel& channel, const void* sendbuf, int sendcount,
        MPI_Datatype sendtype, void*, const int* recvcounts, const int* displs,
        MPI_Datatype recvtype, int root) {
  if (!is_root(channel, root)) return {Pass::kInvalid};
  if (channel.rank() != root) return ask_lists(bytes_of(sendcount, sendtype));
  if (sendbuf != MPI_IN_PLACE && !bytes_of(sendcount, sendtype)) return {Pass::kInvalid};
  return ask_lists(total_of(channel, recvcounts, displs, recvtype));
}
hetcclResult_t issue(tag::Gatherv, Job& job, const void* sendbuf, int sendcount,
                     MPI_Datatype sendtype, void* recvbuf, const int* recvcounts, const int* displs,
                     MPI_Datatype recvtype, int root) {
  const bool at_root = job.channel().rank() == root;
  const bool in_place = at_root && sendbuf == MPI_IN_PLACE;
  const Dense* out = nullptr;
  if (at_root) {
    out = job.prepare(listed(recvbuf, recvcounts, displs, recvtype),
                      in_place ? Access::kBoth : Access::kWrite);
    if (out == nullptr) return kNotPacked;
  }
  const std::byte* mine = nullptr;
  size_t bytes = 0;
  if (in_place) {
    mine = out->address + out->displs[static_cast<size_t>(root)];
    bytes = out->counts[static_cast<size_t>(root)];
  } else {
    const Dense* const in = job.prepare(whole(sendbuf, sendcount, sendtype), Access::kRead);
    if (in == nullptr) return kNotPacked;
    mine = in->address;
    bytes = *bytes_of(sendcount, sendtype);
  }
  return hetcclGatherv(
      mine, bytes, at_root ? out->address : nullptr, at_root ? out->counts.data() : nullptr,
      at_root ? out->displs.data() : nullptr, hetcclByte, root, job.comm(), job.stream());
}

Ask ask(tag::Scatter, const Channel& channel, const void*, int sendcount, MPI_Datatype sendtype,
        void* recvbuf, int recvcount, MPI_Datatype recvtype, int root) {
  if (!is_root(channel, root)) return {Pass::kInvalid};
  if (channel.rank() != root) return ask_bytes(bytes_of(recvcount, recvtype), channel.size());
  if (recvbuf != MPI_IN_PLACE && !bytes_of(recvcount, recvtype)) return {Pass::kInvalid};
  return ask_bytes(bytes_of(sendcount, sendtype), channel.size());
}
hetcclResult_t issue(tag::Scatter, Job& job, const void* sendbuf, int sendcount,
                     MPI_Datatype sendtype, void* recvbuf, int recvcount, MPI_Datatype recvtype,
                     int root) {
  const bool at_root = job.channel().rank() == root;
  const bool in_place = at_root && recvbuf == MPI_IN_PLACE;
  const size_t block = at_root ? *bytes_of(sendcount, sendtype) : *bytes_of(recvcount, recvtype);
  const Dense* in = nullptr;
  if (at_root) {
    in = job.prepare(whole(sendbuf, int64_t{sendcount} * job.channel().size(), sendtype),
                     Access::kRead);
    if (in == nullptr) return kNotPacked;
  }
  std::byte* mine = in_place ? in->address + block * static_cast<size_t>(root) : nullptr;
  if (!in_place) {
    const Dense* const out = job.prepare(whole(recvbuf, recvcount, recvtype), Access::kWrite);
    if (out == nullptr) return kNotPacked;
    mine = out->address;
  }
  return hetcclScatter(at_root ? in->address : nullptr, mine, block, hetcclByte, root, job.comm(),
                       job.stream());
}

Ask ask(tag::Scatterv, const Channel& channel, const void*, const int* sendcounts,
        const int* displs, MPI_Datatype sendtype, void* recvbuf, int recvcount,
        MPI_Datatype recvtype, int root) {
  if (!is_root(channel, root)) return {Pass::kInvalid};
  if (channel.rank() != root) return ask_lists(bytes_of(recvcount, recvtype));
  if (recvbuf != MPI_IN_PLACE && !bytes_of(recvcount, recvtype)) return {Pass::kInvalid};
  return ask_lists(total_of(channel, sendcounts, displs, sendtype));
}
hetcclResult_t issue(tag::Scatterv, Job& job, const void* sendbuf, const int* sendcounts,
                     const int* displs, MPI_Datatype sendtype, void* recvbuf, int recvcount,
                     MPI_Datatype recvtype, int root) {
  const bool at_root = job.channel().rank() == root;
  const bool in_place = at_root && recvbuf == MPI_IN_PLACE;
  const Dense* in = nullptr;
  if (at_root) {
    in = job.prepare(listed(sendbuf, sendcounts, displs, sendtype), Access::kRead);
    if (in == nullptr) return kNotPacked;
  }
  std::byte* mine = nullptr;
  size_t bytes = 0;
  if (in_place) {
    mine = in->address + in->displs[static_cast<size_t>(root)];
    bytes = in->counts[static_cast<size_t>(root)];
  } else {
    const Dense* const out = job.prepare(whole(recvbuf, recvcount, recvtype), Access::kWrite);
    if (out == nullptr) return kNotPacked;
    mine = out->address;
    bytes = *bytes_of(recvcount, recvtype);
  }
  return hetcclScatterv(at_root ? in->address : nullptr, at_root ? in->counts.data() : nullptr,
                        at_root ? in->displs.data() : nullptr, mine, bytes, hetcclByte, root,
                        job.comm(), job.stream());
}

}  // namespace hetccl::mpi

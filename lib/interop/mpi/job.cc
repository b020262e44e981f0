#include "lib/interop/mpi/job.h"

#include <algorithm>
#include <climits>
#include <cstring>

#include "lib/base/types.h"

namespace hetccl::mpi {
namespace {

// MPI_Pack counts its bytes in an int.
constexpr size_t kMostPacked = size_t{1} << 30;

int alone(const void* mine, void* all, size_t bytes, void*) {
  std::memcpy(all, mine, bytes);
  return 0;
}

// A communicator of this process alone: its broadcast copies whatever memory it is given.
hetcclComm_t own_communicator() {
  static const hetcclComm_t made = [] {
    hetcclComm_t comm = nullptr;
    hetcclCommInitOob(&comm, 1, 0, alone, nullptr, nullptr);
    return comm;
  }();
  return made;
}

// Bytes from the buffer's address to where `count` elements begin and end.
struct Span {
  MPI_Aint low, high;
};
Span span_of(const Shape& shape, int64_t count) {
  const MPI_Aint last = (count - 1) * shape.extent;
  return {shape.true_lb + std::min<MPI_Aint>(0, last),
          shape.true_lb + shape.true_extent + std::max<MPI_Aint>(0, last)};
}

bool pack_some(std::byte* address, int count, MPI_Datatype type, std::byte* dense, int bytes,
               bool pack) {
  int position = 0;
  const int rc = pack ? PMPI_Pack(address, count, type, dense, bytes, &position, MPI_COMM_SELF)
                      : PMPI_Unpack(dense, bytes, &position, address, count, type, MPI_COMM_SELF);
  return rc == MPI_SUCCESS && position == bytes;
}

// One element that is too large for MPI_Pack goes as a message to oneself.
bool move_large(std::byte* address, MPI_Datatype type, std::byte* dense, size_t bytes, bool pack) {
  constexpr int kTag = 0;
  const auto wholes = static_cast<int>(bytes / kMostPacked);
  const auto rest = static_cast<int>(bytes % kMostPacked);
  MPI_Datatype parts[2] = {MPI_DATATYPE_NULL, MPI_BYTE}, as_bytes = MPI_DATATYPE_NULL;
  int lengths[2] = {wholes, rest};
  MPI_Aint offsets[2] = {0, static_cast<MPI_Aint>(bytes) - rest};
  PMPI_Type_contiguous(static_cast<int>(kMostPacked), MPI_BYTE, &parts[0]);
  PMPI_Type_create_struct(2, lengths, offsets, parts, &as_bytes);
  PMPI_Type_commit(&as_bytes);
  MPI_Comm alone_comm = MPI_COMM_NULL;
  bool good = PMPI_Comm_dup(MPI_COMM_SELF, &alone_comm) == MPI_SUCCESS;
  void* const from = pack ? address : dense;
  void* const to = pack ? dense : address;
  good =
      good && PMPI_Sendrecv(from, 1, pack ? type : as_bytes, 0, kTag, to, 1, pack ? as_bytes : type,
                            0, kTag, alone_comm, MPI_STATUS_IGNORE) == MPI_SUCCESS;
  if (alone_comm != MPI_COMM_NULL) PMPI_Comm_free(&alone_comm);
  PMPI_Type_free(&as_bytes);
  PMPI_Type_free(&parts[0]);
  return good;
}

// MPICH does not pack from MPI_BOTTOM, which is its null pointer: the same elements, seen from
// elsewhere.
bool pack_from_bottom(int count, MPI_Datatype type, std::byte* dense, int bytes, bool pack) {
  std::byte here;
  MPI_Aint address = 0;
  MPI_Datatype shifted = MPI_DATATYPE_NULL;
  PMPI_Get_address(&here, &address);
  address = -address;
  if (PMPI_Type_create_hindexed(1, &count, &address, type, &shifted) != MPI_SUCCESS) return false;
  PMPI_Type_commit(&shifted);
  const bool good = pack_some(&here, 1, shifted, dense, bytes, pack);
  PMPI_Type_free(&shifted);
  return good;
}

bool move_elements(std::byte* address, int64_t count, MPI_Datatype type, const Shape& shape,
                   std::byte* dense, bool pack) {
  if (shape.size > kMostPacked) {
    for (int64_t i = 0; i < count; ++i) {
      if (!move_large(address + i * shape.extent, type, dense + static_cast<size_t>(i) * shape.size,
                      shape.size, pack)) {
        return false;
      }
    }
    return true;
  }
  const auto most = static_cast<int64_t>(kMostPacked / shape.size);
  for (int64_t done = 0; done < count; done += most) {
    const auto some = static_cast<int>(std::min(most, count - done));
    const auto bytes = static_cast<int>(static_cast<size_t>(some) * shape.size);
    std::byte* const from = address + done * shape.extent;
    std::byte* const to = dense + static_cast<size_t>(done) * shape.size;
    const bool good = from == nullptr ? pack_from_bottom(some, type, to, bytes, pack)
                                      : pack_some(from, some, type, to, bytes, pack);
    if (!good) return false;
  }
  return true;
}

}  // namespace

hetcclResult_t copy_memory(void* to, const void* from, size_t bytes, bool devices) {
  if (!devices) {
    std::memcpy(to, from, bytes);
    return hetcclSuccess;
  }
  const hetcclComm_t comm = own_communicator();
  if (comm == nullptr) return hetcclInternalError;
  return hetcclBroadcast(from, to, bytes, hetcclByte, 0, comm, nullptr);
}

Job::~Job() {
  for (Unpacking& u : unpack_) {
    if (u.own_type) PMPI_Type_free(&u.buffer.type);
  }
}

std::byte* Job::temporary(size_t bytes) {
  temporaries_.push_back(std::make_unique_for_overwrite<std::byte[]>(std::max<size_t>(bytes, 1)));
  return temporaries_.back().get();
}

std::vector<size_t>* Job::list(size_t n) {
  lists_.push_back(std::make_unique<std::vector<size_t>>(n));
  return lists_.back().get();
}

void Job::copy_at_end(void* to, const void* from, size_t count, hetcclDataType_t type) {
  copy_.push_back({to, from, count, type});
}

// Where blocks lie as they are sent, only the arithmetic is done. Displacements are made to start
// at the lowest block: MPI's may be negative.
const Dense* Job::prepare(const Buffer& buffer, Access access) {
  const std::optional<Shape> shape = shape_of(buffer.type);
  if (!shape) return nullptr;
  prepared_.push_back(std::make_unique<Dense>());
  Dense* const dense = prepared_.back().get();
  const auto n = buffer.counts == nullptr ? size_t{0} : static_cast<size_t>(channel_->size());
  size_t total = 0;
  MPI_Aint lowest = 0;
  bool any = false;
  for (size_t i = 0; i < n; ++i) {
    dense->counts.push_back(static_cast<size_t>(buffer.counts[i]) * shape->size);
    dense->displs.push_back(total);  // as packed
    total += dense->counts[i];
    if (dense->counts[i] == 0) continue;
    const MPI_Aint at = buffer.displs[i] * shape->extent;
    lowest = any ? std::min(lowest, at) : at;
    any = true;
  }
  if (n == 0) total = static_cast<size_t>(buffer.count) * shape->size;
  if (shape->dense || total == 0) {
    dense->address = static_cast<std::byte*>(buffer.address);
    if (any) dense->address += lowest;
    for (size_t i = 0; i < n; ++i) {
      const MPI_Aint at = dense->counts[i] == 0 ? lowest : buffer.displs[i] * shape->extent;
      dense->displs[i] = static_cast<size_t>(at - lowest);
    }
    return dense;
  }
  dense->address = temporary(total);
  if (access != Access::kWrite && !move_blocks(buffer, *dense, true)) {
    trouble_ = "MPI_Pack refused the data type";
    return nullptr;
  }
  if (access != Access::kRead) {
    Unpacking u{buffer, *dense, false};
    // The program may free its type while the call is under way.
    if (stream_ != nullptr) {
      if (PMPI_Type_dup(buffer.type, &u.buffer.type) != MPI_SUCCESS) {
        trouble_ = "MPI_Type_dup refused the data type";
        return nullptr;
      }
      u.own_type = true;
    }
    unpack_.push_back(std::move(u));
  }
  return dense;
}

// Elements of a device's memory pass through the host as a whole span, gaps included.
bool Job::move_block(void* address, int64_t count, MPI_Datatype type, std::byte* dense, bool pack) {
  if (count == 0) return true;
  const Shape shape = *shape_of(type);
  auto* const bytes = static_cast<std::byte*>(address);
  if (!channel_->devices()) return move_elements(bytes, count, type, shape, dense, pack);
  const Span span = span_of(shape, count);
  const auto length = static_cast<size_t>(span.high - span.low);
  const auto host = std::make_unique_for_overwrite<std::byte[]>(length);
  if (copy_memory(host.get(), bytes + span.low, length, true) != hetcclSuccess) return false;
  if (!move_elements(host.get() - span.low, count, type, shape, dense, pack)) return false;
  return pack || copy_memory(bytes + span.low, host.get(), length, true) == hetcclSuccess;
}

bool Job::move_blocks(const Buffer& buffer, const Dense& dense, bool pack) {
  auto* const address = static_cast<std::byte*>(buffer.address);
  if (buffer.counts == nullptr) {
    return move_block(address, buffer.count, buffer.type, dense.address, pack);
  }
  const MPI_Aint extent = shape_of(buffer.type)->extent;
  for (size_t i = 0; i < dense.counts.size(); ++i) {
    if (!move_block(address + buffer.displs[i] * extent, buffer.counts[i], buffer.type,
                    dense.address + dense.displs[i], pack)) {
      return false;
    }
  }
  return true;
}

hetcclResult_t Job::copy_back(const Copying& c) {
  if (!has_gap(c.type)) {
    return copy_memory(c.to, c.from, c.count * size_of(c.type), channel_->devices());
  }
  if (!channel_->devices()) {
    copy_pairs(c.to, c.from, c.count, c.type);
    return hetcclSuccess;
  }
  const size_t bytes = c.count * size_of(c.type);
  const auto host = std::make_unique_for_overwrite<std::byte[]>(bytes);
  const hetcclResult_t read = copy_memory(host.get(), c.to, bytes, true);
  if (read != hetcclSuccess) return read;
  copy_pairs(host.get(), c.from, c.count, c.type);
  return copy_memory(c.to, host.get(), bytes, true);
}

int Job::finish(hetcclResult_t result) {
  if (result != hetcclSuccess) {
    return channel_->raise(result, trouble_ != nullptr ? trouble_ : hetcclGetLastError(comm()));
  }
  for (const Unpacking& u : unpack_) {
    if (!move_blocks(u.buffer, u.dense, false)) {
      return channel_->raise(hetcclInternalError, "MPI_Unpack failed");
    }
  }
  for (const Copying& c : copy_) {
    const hetcclResult_t copied = copy_back(c);
    if (copied != hetcclSuccess) return channel_->raise(copied, hetcclGetLastError(nullptr));
  }
  return MPI_SUCCESS;
}

}  // namespace hetccl::mpi

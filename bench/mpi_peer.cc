#include "bench/mpi_peer.h"

#include <mpi.h>

#include <climits>
#include <vector>

namespace hetccl::bench {
namespace {

MPI_Datatype mpi_type(DataType type) {
  switch (type) {
    case hetcclInt8:
      return MPI_INT8_T;
    case hetcclUint8:
      return MPI_UINT8_T;
    case hetcclInt16:
      return MPI_INT16_T;
    case hetcclUint16:
      return MPI_UINT16_T;
    case hetcclInt32:
      return MPI_INT32_T;
    case hetcclUint32:
      return MPI_UINT32_T;
    case hetcclInt64:
      return MPI_INT64_T;
    case hetcclUint64:
      return MPI_UINT64_T;
    case hetcclFloat32:
      return MPI_FLOAT;
    case hetcclFloat64:
      return MPI_DOUBLE;
    case hetcclComplex64:
      return MPI_C_FLOAT_COMPLEX;
    case hetcclComplex128:
      return MPI_C_DOUBLE_COMPLEX;
    case hetcclBool:
      return MPI_C_BOOL;
    case hetcclByte:
      return MPI_BYTE;
    case hetcclFloatInt:
      return MPI_FLOAT_INT;
    case hetcclDoubleInt:
      return MPI_DOUBLE_INT;
    case hetcclLongInt:
      return MPI_LONG_INT;
    case hetcclShortInt:
      return MPI_SHORT_INT;
    case hetcclTwoInt:
      return MPI_2INT;
    default:
      return MPI_DATATYPE_NULL;
  }
}

MPI_Op mpi_op(RedOp op) {
  switch (op) {
    case hetcclSum:
      return MPI_SUM;
    case hetcclProd:
      return MPI_PROD;
    case hetcclMax:
      return MPI_MAX;
    case hetcclMin:
      return MPI_MIN;
    case hetcclLAnd:
      return MPI_LAND;
    case hetcclLOr:
      return MPI_LOR;
    case hetcclLXor:
      return MPI_LXOR;
    case hetcclBAnd:
      return MPI_BAND;
    case hetcclBOr:
      return MPI_BOR;
    case hetcclBXor:
      return MPI_BXOR;
    case hetcclMinLoc:
      return MPI_MINLOC;
    case hetcclMaxLoc:
      return MPI_MAXLOC;
    default:
      return MPI_OP_NULL;
  }
}

// Movement of a type that MPI does not know is movement of its bytes.
struct Units {
  MPI_Datatype type;
  size_t count;
};
Units units(Kind kind, DataType type, size_t count) {
  if (reduces(kind)) return {mpi_type(type), count};
  return {MPI_BYTE, count * size_of(type)};
}

// MPI's bool has no minimum.
bool combines(DataType type, RedOp op) {
  return !(type == hetcclBool && (op == hetcclMin || op == hetcclMax)) &&
         !(type == hetcclBool && op >= hetcclBAnd);
}

// A call's blocks in MPI's units.
struct Lists {
  Lists(Kind kind, DataType type, const Call::Blocks& blocks) {
    for (size_t r = 0; r < blocks.counts.size(); ++r) {
      counts.push_back(static_cast<int>(units(kind, type, blocks.counts[r]).count));
      displacements.push_back(static_cast<int>(units(kind, type, blocks.displacements[r]).count));
    }
  }
  std::vector<int> counts, displacements;
};

int run_with_counts(const Call& call, const void* send, void* recv, MPI_Datatype type) {
  MPI_Comm world = MPI_COMM_WORLD;
  const Lists sent(call.kind(), call.type(), call.sent());
  const Lists got(call.kind(), call.type(), call.received());
  const int *out = sent.counts.data(), *out_at = sent.displacements.data();
  const int *in = got.counts.data(), *in_at = got.displacements.data();
  switch (call.kind()) {
    case Kind::kReduceScatterv:
      return MPI_Reduce_scatter(send, recv, out, type, mpi_op(call.op()), world);
    case Kind::kAllGatherv:
      return MPI_Allgatherv(send, out[0], type, recv, in, in_at, type, world);
    case Kind::kAllToAllv:
      return MPI_Alltoallv(send, out, out_at, type, recv, in, in_at, type, world);
    case Kind::kGatherv:
      return MPI_Gatherv(send, out[0], type, recv, in, in_at, type, call.root(), world);
    case Kind::kScatterv:
      return MPI_Scatterv(send, out, out_at, type, recv, in[0], type, call.root(), world);
    default:
      return MPI_ERR_INTERN;
  }
}

// MPI_IN_PLACE stands for the buffer that the library takes as part of the other one.
struct Places {
  explicit Places(const Call& call) : send(call.send()), recv(call.recv()) {
    if (!call.in_place()) return;
    recv = call.base();
    switch (call.kind()) {
      case Kind::kReduce:  // in place means something at the root only
      case Kind::kGather:
      case Kind::kGatherv:
        if (call.at_root()) send = MPI_IN_PLACE;
        break;
      case Kind::kScatter:
      case Kind::kScatterv:
        if (call.at_root()) recv = MPI_IN_PLACE;
        break;
      default:
        send = MPI_IN_PLACE;
    }
  }
  const void* send;
  void* recv;
};

}  // namespace

std::string mpi_lacks(Kind kind, DataType type, RedOp op, const Shape& shape) {
  if (kind == Kind::kBarrier) return "";
  if (reduces(kind)) {
    if (mpi_type(type) == MPI_DATATYPE_NULL) {
      return "MPI has no data type " + std::string(name_of(type));
    }
    if (mpi_op(op) == MPI_OP_NULL || !combines(type, op)) {
      return "MPI has no operator " + std::string(name_of(op)) + " for " +
             std::string(name_of(type));
    }
  }
  const size_t largest = has_counts(kind) ? shape.bytes / size_of(type) : shape.count;
  if (units(kind, type, largest).count > INT_MAX) return "the count is beyond MPI's int";
  return "";
}

bool run_mpi(const Call& call) {
  auto [type, units_count] = units(call.kind(), call.type(), call.shape().count);
  int count = static_cast<int>(units_count), root = call.root();
  auto [send, recv] = Places(call);
  MPI_Comm world = MPI_COMM_WORLD;
  switch (call.kind()) {
    case Kind::kAllReduce:
      return MPI_Allreduce(send, recv, count, type, mpi_op(call.op()), world) == MPI_SUCCESS;
    case Kind::kReduce:
      return MPI_Reduce(send, recv, count, type, mpi_op(call.op()), root, world) == MPI_SUCCESS;
    case Kind::kReduceScatter:
      return MPI_Reduce_scatter_block(send, recv, count, type, mpi_op(call.op()), world) ==
             MPI_SUCCESS;
    case Kind::kBroadcast:
      // MPI has one buffer only, which at the root is the sender's.
      return MPI_Bcast(call.at_root() ? const_cast<std::byte*>(call.send()) : call.recv(), count,
                       type, root, world) == MPI_SUCCESS;
    case Kind::kAllGather:
      return MPI_Allgather(send, count, type, recv, count, type, world) == MPI_SUCCESS;
    case Kind::kAllToAll:
      return MPI_Alltoall(send, count, type, recv, count, type, world) == MPI_SUCCESS;
    case Kind::kGather:
      return MPI_Gather(send, count, type, recv, count, type, root, world) == MPI_SUCCESS;
    case Kind::kScatter:
      return MPI_Scatter(send, count, type, recv, count, type, root, world) == MPI_SUCCESS;
    case Kind::kScan:
      return MPI_Scan(send, recv, count, type, mpi_op(call.op()), world) == MPI_SUCCESS;
    case Kind::kExscan:
      return MPI_Exscan(send, recv, count, type, mpi_op(call.op()), world) == MPI_SUCCESS;
    case Kind::kBarrier:
      return MPI_Barrier(world) == MPI_SUCCESS;
    default:
      return run_with_counts(call, send, recv, type) == MPI_SUCCESS;
  }
}

const std::byte* mpi_result(const Call& call) {
  if (call.kind() == Kind::kBroadcast && call.at_root()) return call.send();
  const bool at_start = call.kind() == Kind::kReduceScatter || call.kind() == Kind::kReduceScatterv;
  return call.in_place() && at_start ? call.base() : call.recv();
}

}  // namespace hetccl::bench

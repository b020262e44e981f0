// What our library makes of MPI's data types and operators. Any thread, while MPI runs.
#pragma once

#include <hetccl/hetccl.h>
#include <mpi.h>

#include <cstddef>
#include <optional>

namespace hetccl::mpi {

// Predefined data types of which reductions are ours. Handles of derived types and of predefined
// ones that we do not know (long double, pairs of Fortran reals) have none.
std::optional<hetcclDataType_t> native_type(MPI_Datatype type);
std::optional<hetcclRedOp_t> native_op(MPI_Op op);

// Whether our library combines elements of `type` by `op` as MPI would.
bool reduces(hetcclDataType_t type, hetcclRedOp_t op);

// Whether a pair type has bytes that belong neither to the value nor to the index.
bool has_gap(hetcclDataType_t type);
// Copies `count` pairs of such a type without the bytes between.
void copy_pairs(void* to, const void* from, size_t count, hetcclDataType_t type);

struct Shape {
  size_t size = 0;  // bytes of data in one element
  MPI_Aint extent = 0;
  MPI_Aint true_lb = 0;
  MPI_Aint true_extent = 0;
  // The bytes of `count` elements lie one after the other, in the order of the type map, so that
  // they are sent as they are.
  bool dense = false;
};
// nullopt: `type` is the null type.
std::optional<Shape> shape_of(MPI_Datatype type);

}  // namespace hetccl::mpi

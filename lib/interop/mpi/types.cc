#include "lib/interop/mpi/types.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "lib/base/types.h"

namespace hetccl::mpi {
namespace {

enum class Kind { kSigned, kUnsigned, kFloat, kComplex, kBool, kByte, kPair };

struct Known {
  MPI_Datatype handle;
  hetcclDataType_t type;
};

// Types of Fortran and of C have the size that the compilers gave them.
std::optional<hetcclDataType_t> by_size(Kind kind, int size) {
  switch (kind) {
    case Kind::kSigned:
      if (size == 1) return hetcclInt8;
      if (size == 2) return hetcclInt16;
      if (size == 4) return hetcclInt32;
      if (size == 8) return hetcclInt64;
      break;
    case Kind::kUnsigned:
      if (size == 1) return hetcclUint8;
      if (size == 2) return hetcclUint16;
      if (size == 4) return hetcclUint32;
      if (size == 8) return hetcclUint64;
      break;
    case Kind::kFloat:
      if (size == 4) return hetcclFloat32;
      if (size == 8) return hetcclFloat64;
      break;
    case Kind::kComplex:
      if (size == 8) return hetcclComplex64;
      if (size == 16) return hetcclComplex128;
      break;
    case Kind::kBool:
      if (size == 1) return hetcclBool;
      break;
    case Kind::kByte:
      if (size == 1) return hetcclByte;
      break;
    case Kind::kPair:
      break;
  }
  return std::nullopt;
}

struct Named {
  MPI_Datatype handle;
  Kind kind;
};

// LOGICAL is a C integer of its size that is 0 or 1 in gfortran and in MPI's own operators, so the
// logical operators of integers serve it.
std::vector<Named> named_types() {
  return {
      {MPI_SIGNED_CHAR, Kind::kSigned},
      {MPI_SHORT, Kind::kSigned},
      {MPI_INT, Kind::kSigned},
      {MPI_LONG, Kind::kSigned},
      {MPI_LONG_LONG, Kind::kSigned},
      {MPI_INT8_T, Kind::kSigned},
      {MPI_INT16_T, Kind::kSigned},
      {MPI_INT32_T, Kind::kSigned},
      {MPI_INT64_T, Kind::kSigned},
      {MPI_AINT, Kind::kSigned},
      {MPI_OFFSET, Kind::kSigned},
      {MPI_COUNT, Kind::kSigned},
      {MPI_INTEGER, Kind::kSigned},
      {MPI_INTEGER1, Kind::kSigned},
      {MPI_INTEGER2, Kind::kSigned},
      {MPI_INTEGER4, Kind::kSigned},
      {MPI_INTEGER8, Kind::kSigned},
      {MPI_LOGICAL, Kind::kSigned},
      {MPI_UNSIGNED_CHAR, Kind::kUnsigned},
      {MPI_UNSIGNED_SHORT, Kind::kUnsigned},
      {MPI_UNSIGNED, Kind::kUnsigned},
      {MPI_UNSIGNED_LONG, Kind::kUnsigned},
      {MPI_UNSIGNED_LONG_LONG, Kind::kUnsigned},
      {MPI_UINT8_T, Kind::kUnsigned},
      {MPI_UINT16_T, Kind::kUnsigned},
      {MPI_UINT32_T, Kind::kUnsigned},
      {MPI_UINT64_T, Kind::kUnsigned},
      {MPI_FLOAT, Kind::kFloat},
      {MPI_DOUBLE, Kind::kFloat},
      {MPI_REAL, Kind::kFloat},
      {MPI_REAL4, Kind::kFloat},
      {MPI_REAL8, Kind::kFloat},
      {MPI_DOUBLE_PRECISION, Kind::kFloat},
      {MPI_C_FLOAT_COMPLEX, Kind::kComplex},
      {MPI_C_DOUBLE_COMPLEX, Kind::kComplex},
      {MPI_CXX_FLOAT_COMPLEX, Kind::kComplex},
      {MPI_CXX_DOUBLE_COMPLEX, Kind::kComplex},
      {MPI_COMPLEX, Kind::kComplex},
      {MPI_DOUBLE_COMPLEX, Kind::kComplex},
      {MPI_COMPLEX8, Kind::kComplex},
      {MPI_COMPLEX16, Kind::kComplex},
      {MPI_C_BOOL, Kind::kBool},
      {MPI_CXX_BOOL, Kind::kBool},
      {MPI_BYTE, Kind::kByte},
  };
}

bool is_before(const Known& a, const Known& b) {
  return std::less<MPI_Datatype>()(a.handle, b.handle);
}

// Handles are addresses or numbers known at run time only; an MPI library without Fortran has null
// handles for its types.
std::vector<Known> known_types() {
  std::vector<Known> known;
  for (const Named& named : named_types()) {
    int size = 0;
    if (named.handle == MPI_DATATYPE_NULL) continue;
    if (PMPI_Type_size(named.handle, &size) != MPI_SUCCESS) continue;
    if (const auto type = by_size(named.kind, size)) known.push_back({named.handle, *type});
  }
  const auto pair = [&](MPI_Datatype handle, hetcclDataType_t type) {
    if (handle != MPI_DATATYPE_NULL) known.push_back({handle, type});
  };
  pair(MPI_FLOAT_INT, hetcclFloatInt);
  pair(MPI_DOUBLE_INT, hetcclDoubleInt);
  pair(MPI_LONG_INT, hetcclLongInt);
  pair(MPI_SHORT_INT, hetcclShortInt);
  pair(MPI_2INT, hetcclTwoInt);
  int size = 0;
  if (MPI_2INTEGER != MPI_DATATYPE_NULL && PMPI_Type_size(MPI_2INTEGER, &size) == MPI_SUCCESS &&
      size == 2 * static_cast<int>(sizeof(int))) {
    pair(MPI_2INTEGER, hetcclTwoInt);
  }
  std::sort(known.begin(), known.end(), is_before);
  return known;
}

template <typename Value, typename Index>
struct Pair {
  Value value;
  Index index;
};

template <typename P>
void copy_fields(void* to, const void* from, size_t count) {
  auto* const out = static_cast<P*>(to);
  const auto* const in = static_cast<const P*>(from);
  for (size_t i = 0; i < count; ++i) {
    out[i].value = in[i].value;
    out[i].index = in[i].index;
  }
}

}  // namespace

std::optional<hetcclDataType_t> native_type(MPI_Datatype type) {
  static const std::vector<Known> known = known_types();
  const auto found = std::lower_bound(known.begin(), known.end(), Known{type, {}}, is_before);
  if (found == known.end() || found->handle != type) return std::nullopt;
  return found->type;
}

std::optional<hetcclRedOp_t> native_op(MPI_Op op) {
  if (op == MPI_SUM) return hetcclSum;
  if (op == MPI_MAX) return hetcclMax;
  if (op == MPI_MIN) return hetcclMin;
  if (op == MPI_PROD) return hetcclProd;
  if (op == MPI_LAND) return hetcclLAnd;
  if (op == MPI_LOR) return hetcclLOr;
  if (op == MPI_LXOR) return hetcclLXor;
  if (op == MPI_BAND) return hetcclBAnd;
  if (op == MPI_BOR) return hetcclBOr;
  if (op == MPI_BXOR) return hetcclBXor;
  if (op == MPI_MINLOC) return hetcclMinLoc;
  if (op == MPI_MAXLOC) return hetcclMaxLoc;
  return std::nullopt;
}

bool reduces(hetcclDataType_t type, hetcclRedOp_t op) { return supports(type, op); }

bool has_gap(hetcclDataType_t type) {
  return type == hetcclDoubleInt || type == hetcclLongInt || type == hetcclShortInt;
}

void copy_pairs(void* to, const void* from, size_t count, hetcclDataType_t type) {
  if (type == hetcclDoubleInt) return copy_fields<Pair<double, int>>(to, from, count);
  if (type == hetcclLongInt) return copy_fields<Pair<long, int>>(to, from, count);
  if (type == hetcclShortInt) return copy_fields<Pair<short, int>>(to, from, count);
  std::memcpy(to, from, count * size_of(type));
}

}  // namespace hetccl::mpi

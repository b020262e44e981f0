// The shape of a data type: whether its bytes lie as they are sent. A derived type is taken apart
// once; the answer is kept with it as an attribute. What is in doubt counts as not dense.
#include <cstdint>
#include <vector>

#include "lib/base/types.h"
#include "lib/interop/mpi/types.h"

namespace hetccl::mpi {
namespace {

bool is_dense(MPI_Datatype type);

bool is_dense_named(MPI_Datatype type) {
  MPI_Count size = 0, lb = 0, extent = 0, true_lb = 0, true_extent = 0;
  if (PMPI_Type_size_x(type, &size) != MPI_SUCCESS) return false;
  if (PMPI_Type_get_extent_x(type, &lb, &extent) != MPI_SUCCESS) return false;
  if (PMPI_Type_get_true_extent_x(type, &true_lb, &true_extent) != MPI_SUCCESS) return false;
  return lb == 0 && true_lb == 0 && size == extent && size == true_extent;
}

MPI_Aint bytes_of(MPI_Datatype type) {
  MPI_Count size = 0;
  return PMPI_Type_size_x(type, &size) == MPI_SUCCESS ? static_cast<MPI_Aint>(size) : -1;
}

// How a derived type was made.
struct Contents {
  int combiner = 0;
  std::vector<int> integers;
  std::vector<MPI_Aint> addresses;
  std::vector<MPI_Datatype> types;

  bool read(MPI_Datatype type) {
    int n_integers = 0, n_addresses = 0, n_types = 0;
    if (PMPI_Type_get_envelope(type, &n_integers, &n_addresses, &n_types, &combiner) !=
        MPI_SUCCESS) {
      return false;
    }
    if (combiner == MPI_COMBINER_NAMED || n_types == 0) return true;
    integers.resize(static_cast<size_t>(n_integers));
    addresses.resize(static_cast<size_t>(n_addresses));
    types.resize(static_cast<size_t>(n_types));
    return PMPI_Type_get_contents(type, n_integers, n_addresses, n_types, integers.data(),
                                  addresses.data(), types.data()) == MPI_SUCCESS;
  }
  // What is got is a reference of its own, unless the type is predefined.
  ~Contents() {
    for (MPI_Datatype& type : types) {
      int i = 0, a = 0, t = 0, how = MPI_COMBINER_NAMED;
      if (PMPI_Type_get_envelope(type, &i, &a, &t, &how) != MPI_SUCCESS) continue;
      if (how == MPI_COMBINER_NAMED || how == MPI_COMBINER_F90_REAL ||
          how == MPI_COMBINER_F90_COMPLEX || how == MPI_COMBINER_F90_INTEGER) {
        continue;
      }
      PMPI_Type_free(&type);
    }
  }
};

// Blocks one after the other from offset 0, each of length[i] elements of types[i], or types[0].
bool in_sequence(const Contents& c, const int* length, const std::vector<MPI_Aint>& offsets) {
  MPI_Aint reached = 0;
  for (size_t i = 0; i < offsets.size(); ++i) {
    const MPI_Datatype type = c.types.size() == 1 ? c.types[0] : c.types[i];
    if (length[i] == 0) continue;
    if (offsets[i] != reached || !is_dense(type)) return false;
    reached += length[i] * bytes_of(type);
  }
  return true;
}

bool is_dense_subarray(const Contents& c) {
  const auto dims = static_cast<size_t>(c.integers[0]);
  for (size_t d = 0; d < dims; ++d) {
    const int size = c.integers[1 + d], part = c.integers[1 + dims + d];
    if (size != part) return false;
  }
  return is_dense(c.types[0]);
}

bool is_dense_derived(const Contents& c) {
  const auto& n = c.integers;
  const auto old_bytes = c.types.empty() ? 0 : bytes_of(c.types[0]);
  std::vector<MPI_Aint> offsets;
  switch (c.combiner) {
    case MPI_COMBINER_DUP:
    case MPI_COMBINER_CONTIGUOUS:
      return is_dense(c.types[0]);
    case MPI_COMBINER_VECTOR:
      return (n[0] <= 1 || n[1] == n[2]) && is_dense(c.types[0]);
    case MPI_COMBINER_HVECTOR:
      return (n[0] <= 1 || c.addresses[0] == n[1] * old_bytes) && is_dense(c.types[0]);
    case MPI_COMBINER_RESIZED:
      return c.addresses[0] == 0 && c.addresses[1] == old_bytes && is_dense(c.types[0]);
    case MPI_COMBINER_SUBARRAY:
      return is_dense_subarray(c);
    case MPI_COMBINER_INDEXED:
      for (int i = 0; i < n[0]; ++i) {
        offsets.push_back(n[static_cast<size_t>(1 + n[0] + i)] * old_bytes);
      }
      return in_sequence(c, n.data() + 1, offsets);
    case MPI_COMBINER_HINDEXED:
    case MPI_COMBINER_STRUCT:
      return in_sequence(c, n.data() + 1, c.addresses);
    default:
      return false;
  }
}

bool is_dense(MPI_Datatype type) {
  Contents contents;
  if (!contents.read(type)) return false;
  if (contents.combiner == MPI_COMBINER_NAMED) return is_dense_named(type);
  if (contents.types.empty()) return false;
  // The extent may have been set apart from the data by a marker of old MPI.
  return is_dense_derived(contents) && is_dense_named(type);
}

int density_keyval() {
  static const int made = [] {
    int keyval = MPI_KEYVAL_INVALID;
    PMPI_Type_create_keyval(MPI_TYPE_NULL_COPY_FN, MPI_TYPE_NULL_DELETE_FN, &keyval, nullptr);
    return keyval;
  }();
  return made;
}

bool is_dense_cached(MPI_Datatype type) {
  static char yes, no;
  void* known = nullptr;
  int found = 0;
  const int keyval = density_keyval();
  if (PMPI_Type_get_attr(type, keyval, &known, &found) == MPI_SUCCESS && found) {
    return known == &yes;
  }
  const bool dense = is_dense(type);
  PMPI_Type_set_attr(type, keyval, dense ? &yes : &no);
  return dense;
}

}  // namespace

std::optional<Shape> shape_of(MPI_Datatype type) {
  if (type == MPI_DATATYPE_NULL) return std::nullopt;
  Shape shape;
  if (const auto native = native_type(type); native && !has_gap(*native)) {
    shape.size = size_of(*native);
    shape.extent = shape.true_extent = static_cast<MPI_Aint>(shape.size);
    shape.dense = true;
    return shape;
  }
  MPI_Count size = 0;
  MPI_Aint lb = 0;
  if (PMPI_Type_size_x(type, &size) != MPI_SUCCESS) return std::nullopt;
  shape.size = static_cast<size_t>(size);
  PMPI_Type_get_extent(type, &lb, &shape.extent);
  PMPI_Type_get_true_extent(type, &shape.true_lb, &shape.true_extent);
  shape.dense = is_dense_cached(type);
  return shape;
}

}  // namespace hetccl::mpi

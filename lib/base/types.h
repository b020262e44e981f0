// What the library knows of data types and reduction operators, one row each. Constant data.
#pragma once

#include <hetccl/hetccl.h>

#include <cstddef>
#include <string_view>

namespace hetccl {

using DataType = hetcclDataType_t;
using RedOp = hetcclRedOp_t;

bool is_valid(DataType type);
// Built-in operators only.
bool is_builtin(RedOp op);

size_t size_of(DataType type);  // bytes of one element in the user's buffers
size_t alignment_of(DataType type);
std::string_view name_of(DataType type);  // "float32"; as hetccl_perf -d takes it
std::string_view name_of(RedOp op);       // "sum"
// Also takes nccl-tests' spellings ("float", "half", "double"). False: unknown.
bool parse_type(std::string_view name, DataType* type);
bool parse_op(std::string_view name, RedOp* op);

// Whether the operator is defined for the type (doc/semantics.md has the table).
bool supports(DataType type, RedOp op);

// Bytes of one partial result: the type in which contributions to `op` accumulate, and in which
// unfinished sums travel. float32 for the 16- and 8-bit floats (float64 for the average of
// bfloat16, whose sum can leave float32's range), 64 or 128 bits for the average of integers;
// otherwise the element itself.
size_t accumulator_size(DataType type, RedOp op);

// True where the bits of the result do not depend on the order of reduction.
bool order_free(DataType type, RedOp op);

}  // namespace hetccl

// What a combine must give, computed one element at a time and by other means than the kernels:
// 16- and 8-bit floats by tables of all their values, integers in 128 bits, minima by comparison of
// numbers. Written for clarity; slow.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "lib/device/device.h"

namespace hetccl::device::reference {

using Bytes = std::vector<uint8_t>;

struct Input {
  Bytes data;
  bool wide;
};

// The destination's bytes. `wide` as in Combine.
Bytes combine(const Reduction& reduction, const std::vector<Input>& inputs, bool wide,
              bool finalize, size_t count);

// Elements of `type` (wide: accumulators of `op`) with special values, small numbers and any bits.
Bytes random_data(DataType type, RedOp op, bool wide, size_t count, std::mt19937_64& random);

// Equal bits; where `any_nan`, one NaN is as good as another, since an unfinished result's payload
// is nobody's promise. On a difference: a text that names the first element.
std::string difference(const Reduction& reduction, const Bytes& expected, const uint8_t* actual,
                       bool wide, bool any_nan);

// Values of the 16- and 8-bit floats.
bool is_narrow_float(DataType type);
double value_of(DataType type, uint32_t bits);
// To nearest even. `value` is not rounded before.
uint32_t nearest(DataType type, double value);

}  // namespace hetccl::device::reference

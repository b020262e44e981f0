// A device runs copies and reductions on memory of its kind. Issue order is program order; the
// host device completes each call before it returns.
#pragma once

#include <cstddef>
#include <span>

#include "lib/base/status.h"
#include "lib/base/types.h"

namespace hetccl::device {

class CustomOperator;

// What is reduced, fixed for a whole operation.
struct Reduction {
  DataType type;
  RedOp op;
  int ranks;  // contributions to the whole result: the divisor of an average
  const CustomOperator* custom = nullptr;  // instead of `op`; on the host only
};

// One input of a combine. Narrow: elements of the data type. Wide: accumulators (partials).
struct Source {
  const void* data;
  bool wide;
};

// destination[i] = sources[0][i] op sources[1][i] op ..., left to right, i < count.
// The destination may be one of the sources exactly (same address, same width), or overlap none.
// finalize: turn the accumulated value into a result: divide (average), make NaN canonical, round
// once to the element type. Without finalize the destination keeps the accumulator (wide), except
// where accumulator and element are the same type.
struct Combine {
  void* destination;
  bool wide;  // destination holds accumulators; never together with finalize unless the
              // accumulator is the element type
  bool finalize;
  std::span<const Source> sources;  // at least one
  size_t count;                     // elements
};

class Device;

// An operator made at run time. Where its accumulator is the element type, Source::wide still tells
// partials from contributions.
class CustomOperator {
 public:
  virtual ~CustomOperator() = default;
  // As Device::combine. `host` is there for what is built in.
  virtual void combine(Device* host, const Reduction& reduction, const Combine& what) const = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual void copy(void* destination, const void* source, size_t bytes) = 0;
  virtual void combine(const Reduction& reduction, const Combine& what) = 0;
  virtual const char* description() const = 0;  // "host avx512"
};

// The processor's own. `isa`: "auto" or one of host_isas(); an unknown or missing one is an error
// that lists what this processor has.
Result<Device*> host_device(std::string_view isa);
std::span<const char* const> host_isas();  // compiled in and supported here, best first

}  // namespace hetccl::device

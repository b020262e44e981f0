// Reduction operators made at run time, by a communicator's order of creation: a sum of scaled
// contributions, and functions of the user's. They combine on the host whatever the memory.
//
// Contributions are told from partial results by Source::wide, for every type (run/program.h,
// Shape::marks_partials): a contribution is scaled where it is combined first, and once.
//
// Thread rule: operators are immutable. Operators: the communicator's mutex is held.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "lib/base/status.h"
#include "lib/base/types.h"
#include "lib/device/device.h"

namespace hetccl {

class MadeOperator : public device::CustomOperator {
 public:
  virtual bool serves(DataType type) const = 0;
  virtual size_t accumulator_bytes(DataType type) const = 0;
  // Whether contributions must be combined in the order of ranks.
  virtual bool needs_rank_order(DataType type, bool reproducible) const = 0;
  virtual uint64_t hash() const = 0;     // of what all ranks must have given alike
  virtual std::string text() const = 0;  // "premulsum of float32 by 0.25"
};

// `scalar` is one element of `type`. hetcclInvalidArgument: a type that has no sum and product.
Result<std::shared_ptr<const MadeOperator>> make_premulsum(const void* scalar, DataType type);

using UserFunction = void (*)(const void* in, void* inout, size_t count, DataType type,
                              void* context);
Result<std::shared_ptr<const MadeOperator>> make_user_operator(UserFunction function, void* context,
                                                               bool commutative);

class Operators {
 public:
  Result<RedOp> add(std::shared_ptr<const MadeOperator> made);
  Status remove(RedOp op);
  // nullptr: built in, or unknown. check() tells which.
  std::shared_ptr<const MadeOperator> find(RedOp op) const;
  // Whether `op` is an operator of this communicator, built in or made, that serves the type.
  Status check(RedOp op, DataType type) const;

 private:
  std::map<RedOp, std::shared_ptr<const MadeOperator>> made_;
  int64_t next_ = hetcclNumOps;  // handles are never used again
};

}  // namespace hetccl

#include "lib/operators.h"

#include <algorithm>
#include <array>
#include <complex>
#include <cstring>
#include <vector>

#include "lib/base/hash.h"
#include "lib/device/floating_point.h"

namespace hetccl {
namespace {

using device::Combine;
using device::Device;
using device::Reduction;
using device::Source;

// Combined at a time: what is needed on the way lies on the stack and stays in the first cache.
constexpr size_t kBlockBytes = 4096;
struct alignas(64) Block {
  std::byte bytes[kBlockBytes];
};

size_t width_of(bool wide, size_t element, size_t accumulator) {
  return wide ? accumulator : element;
}

// ---- a sum of scaled contributions

template <typename T>
void scale(std::byte* data, size_t count, const std::byte* scalar) {
  T factor;
  std::memcpy(&factor, scalar, sizeof(T));
  T* const values = reinterpret_cast<T*>(data);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<T>(values[i] * factor);
}

// Wraps modulo 2^n. Types below int are promoted to one that overflows, so products are unsigned.
template <typename T>
void scale_integers(std::byte* data, size_t count, const std::byte* scalar) {
  T factor;
  std::memcpy(&factor, scalar, sizeof(T));
  T* const values = reinterpret_cast<T*>(data);
  for (size_t i = 0; i < count; ++i) {
    values[i] = static_cast<T>(static_cast<uint64_t>(values[i]) * static_cast<uint64_t>(factor));
  }
}

// Four products, no recovery of infinities.
template <typename T>
void scale_complex(std::byte* data, size_t count, const std::byte* scalar) {
  T factor[2];
  std::memcpy(factor, scalar, sizeof factor);
  T* const v = reinterpret_cast<T*>(data);
  for (size_t i = 0; i < count; ++i) {
    const T real = v[2 * i] * factor[0] - v[2 * i + 1] * factor[1];
    const T imaginary = v[2 * i] * factor[1] + v[2 * i + 1] * factor[0];
    v[2 * i] = real;
    v[2 * i + 1] = imaginary;
  }
}

// On accumulators. nullptr: the type has no sum.
using Scale = void (*)(std::byte* data, size_t count, const std::byte* scalar);
Scale scale_for(DataType type) {
  switch (type) {
    case hetcclInt8:
    case hetcclUint8:
      return scale_integers<uint8_t>;
    case hetcclInt16:
    case hetcclUint16:
      return scale_integers<uint16_t>;
    case hetcclInt32:
    case hetcclUint32:
      return scale_integers<uint32_t>;
    case hetcclInt64:
    case hetcclUint64:
      return scale_integers<uint64_t>;
    case hetcclFloat16:
    case hetcclBfloat16:
    case hetcclFloat8e4m3:
    case hetcclFloat8e5m2:
    case hetcclFloat32:
      return scale<float>;
    case hetcclFloat64:
      return scale<double>;
    case hetcclComplex64:
      return scale_complex<float>;
    case hetcclComplex128:
      return scale_complex<double>;
    default:
      return nullptr;
  }
}

class PreMulSum final : public MadeOperator {
 public:
  PreMulSum(const void* scalar, DataType type, Scale scale)
      : type_(type),
        scale_(scale),
        element_(size_of(type)),
        sum_(accumulator_size(type, hetcclSum)) {
    std::memcpy(given_.data(), scalar, element_);
    scalar_ = given_;
    if (sum_ == element_) return;
    Device* const host = *device::host_device("portable");
    const Source source{given_.data(), false};
    host->combine({type_, hetcclSum, 1}, {scalar_.data(), true, false, {&source, 1}, 1});
  }

  bool serves(DataType type) const override { return type == type_; }
  size_t accumulator_bytes(DataType) const override { return sum_; }
  bool needs_rank_order(DataType type, bool reproducible) const override {
    return reproducible && !order_free(type, hetcclSum);
  }
  uint64_t hash() const override {
    uint64_t low, high;
    std::memcpy(&low, given_.data(), 8);
    std::memcpy(&high, given_.data() + 8, 8);
    return hash_mix(hash_mix(static_cast<uint64_t>(type_) + 1, low), high);
  }
  std::string text() const override {
    std::string bytes;
    for (size_t i = element_; i-- > 0;) {
      constexpr char kDigits[] = "0123456789abcdef";
      bytes += kDigits[std::to_integer<unsigned>(given_[i]) >> 4];
      bytes += kDigits[std::to_integer<unsigned>(given_[i]) & 15];
    }
    return "premulsum of " + std::string(name_of(type_)) + " by 0x" + bytes;
  }

  void combine(Device* host, const Reduction& reduction, const Combine& what) const override {
    const device::DefaultFloatingPoint mode;
    const Reduction sum{type_, hetcclSum, reduction.ranks};
    const size_t step = kBlockBytes / sum_;
    Block total, next;
    for (size_t at = 0; at < what.count; at += step) {
      const size_t count = std::min(step, what.count - at);
      load(host, sum, what.sources[0], at, count, total.bytes);
      for (size_t s = 1; s < what.sources.size(); ++s) {
        load(host, sum, what.sources[s], at, count, next.bytes);
        const Source both[] = {{total.bytes, true}, {next.bytes, true}};
        host->combine(sum, {total.bytes, true, false, both, count});
      }
      const Source result{total.bytes, true};
      std::byte* const to =
          static_cast<std::byte*>(what.destination) + at * width_of(what.wide, element_, sum_);
      host->combine(sum, {to, what.wide, what.finalize, {&result, 1}, count});
    }
  }

 private:
  // Accumulators of one source: a contribution scaled, a partial as it is.
  void load(Device* host, const Reduction& sum, const Source& source, size_t at, size_t count,
            std::byte* to) const {
    const auto* from =
        static_cast<const std::byte*>(source.data) + at * width_of(source.wide, element_, sum_);
    if (source.wide || sum_ == element_) {
      std::memcpy(to, from, count * sum_);
    } else {
      const Source narrow{from, false};
      host->combine(sum, {to, true, false, {&narrow, 1}, count});
    }
    if (!source.wide) scale_(to, count, scalar_.data());
  }

  const DataType type_;
  const Scale scale_;
  const size_t element_, sum_;          // bytes of one
  std::array<std::byte, 16> given_{};   // the scalar as an element,
  std::array<std::byte, 16> scalar_{};  // and as an accumulator
};

// ---- functions of the user's

class UserOperator final : public MadeOperator {
 public:
  UserOperator(UserFunction function, void* context, bool commutative)
      : function_(function), context_(context), commutative_(commutative) {}

  bool serves(DataType) const override { return true; }
  size_t accumulator_bytes(DataType type) const override { return size_of(type); }
  bool needs_rank_order(DataType, bool reproducible) const override {
    return !commutative_ || reproducible;
  }
  uint64_t hash() const override { return commutative_ ? 0x75736572 : 0x7573657b; }
  std::string text() const override {
    return commutative_ ? "of the user's, commutative" : "of the user's, in the order of ranks";
  }

  // The function is given blocks of this library's, never the caller's buffers, so that it does not
  // matter which of the sources the destination is.
  void combine(Device*, const Reduction& reduction, const Combine& what) const override {
    const size_t width = size_of(reduction.type);
    const size_t step = kBlockBytes / width;
    Block blocks[2];
    for (size_t at = 0; at < what.count; at += step) {
      const size_t count = std::min(step, what.count - at);
      std::byte* lower = blocks[0].bytes;
      std::byte* upper = blocks[1].bytes;
      std::memcpy(lower, source(what, 0) + at * width, count * width);
      for (size_t s = 1; s < what.sources.size(); ++s) {
        std::memcpy(upper, source(what, s) + at * width, count * width);
        function_(lower, upper, count, reduction.type, context_);
        std::swap(lower, upper);
      }
      std::memcpy(static_cast<std::byte*>(what.destination) + at * width, lower, count * width);
    }
  }

 private:
  static const std::byte* source(const Combine& what, size_t s) {
    return static_cast<const std::byte*>(what.sources[s].data);
  }

  const UserFunction function_;
  void* const context_;
  const bool commutative_;
};

}  // namespace

Result<std::shared_ptr<const MadeOperator>> make_premulsum(const void* scalar, DataType type) {
  if (scalar == nullptr) return invalid_argument("premulsum: the scalar is NULL");
  if (!is_valid(type)) {
    return invalid_argument("premulsum: unknown data type " + std::to_string(type));
  }
  const Scale scale = scale_for(type);
  if (scale == nullptr) {
    return invalid_argument("premulsum is not defined for type " + std::string(name_of(type)) +
                            ", which has no sum and product");
  }
  return std::shared_ptr<const MadeOperator>(std::make_shared<PreMulSum>(scalar, type, scale));
}

Result<std::shared_ptr<const MadeOperator>> make_user_operator(UserFunction function, void* context,
                                                               bool commutative) {
  if (function == nullptr) return invalid_argument("the operator's function is NULL");
  return std::shared_ptr<const MadeOperator>(
      std::make_shared<UserOperator>(function, context, commutative));
}

Result<RedOp> Operators::add(std::shared_ptr<const MadeOperator> made) {
  if (next_ > hetcclRedOpMaxValue) {
    return invalid_usage("the communicator has made 2^31 operators, and handles are not reused");
  }
  const auto op = static_cast<RedOp>(next_++);
  made_[op] = std::move(made);
  return op;
}

Status Operators::remove(RedOp op) {
  if (is_builtin(op)) {
    return invalid_argument("operator " + std::string(name_of(op)) +
                            " is built in and cannot be destroyed");
  }
  if (made_.erase(op) == 0) {
    return invalid_argument("operator " + std::to_string(op) +
                            " was not made in this communicator, or has been destroyed");
  }
  return {};
}

std::shared_ptr<const MadeOperator> Operators::find(RedOp op) const {
  const auto found = made_.find(op);
  return found == made_.end() ? nullptr : found->second;
}

Status Operators::check(RedOp op, DataType type) const {
  if (is_builtin(op)) {
    if (supports(type, op)) return {};
    return invalid_argument("operator " + std::string(name_of(op)) + " is not defined for type " +
                            std::string(name_of(type)));
  }
  const auto made = find(op);
  if (made == nullptr) {
    return invalid_argument("unknown operator " + std::to_string(op) +
                            ": neither built in nor a live one made in this communicator");
  }
  if (made->serves(type)) return {};
  return invalid_argument("operator " + std::to_string(op) + ", " + made->text() +
                          ", is not defined for type " + std::string(name_of(type)));
}

}  // namespace hetccl

#include "test/device/reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

namespace hetccl::device::reference {
namespace {

__extension__ typedef __int128 Int128;

template <typename T>
T load(const uint8_t* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <typename T>
void store(uint8_t* to, T value) {
  std::memcpy(to, &value, sizeof(T));
}

// ---- 16- and 8-bit floats ----

struct Narrow {
  int exponent_bits, mantissa_bits, bias;
  bool has_infinity;
  uint32_t nan;
};

Narrow narrow(DataType type) {
  switch (type) {
    case hetcclFloat16:
      return {5, 10, 15, true, 0x7e00};
    case hetcclBfloat16:
      return {8, 7, 127, true, 0x7fc0};
    case hetcclFloat8e4m3:
      return {4, 3, 7, false, 0x7f};
    default:
      return {5, 2, 15, true, 0x7e};
  }
}

// All finite magnitudes, ascending; the index is the bits.
const std::vector<double>& magnitudes(DataType type) {
  static const auto make = [](DataType t) {
    std::vector<double> all;
    for (uint32_t bits = 0; std::isfinite(value_of(t, bits)); ++bits) {
      all.push_back(value_of(t, bits));
    }
    return all;
  };
  static const std::vector<double> half = make(hetcclFloat16), brain = make(hetcclBfloat16),
                                   e4m3 = make(hetcclFloat8e4m3), e5m2 = make(hetcclFloat8e5m2);
  return type == hetcclFloat16      ? half
         : type == hetcclBfloat16   ? brain
         : type == hetcclFloat8e4m3 ? e4m3
                                    : e5m2;
}

// ---- One element, by kind of type ----

template <typename T>
T canonical(T x) {
  return std::isnan(x) ? std::numeric_limits<T>::quiet_NaN() : x;
}

template <typename T>
T minimum(T a, T b, bool least) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
  if (a == b) return std::signbit(a) == least ? a : b;
  return (a < b) == least ? a : b;
}

template <typename T>
T wrap(RedOp op, T a, T b) {
  using U = std::make_unsigned_t<T>;
  const Int128 x = a, y = b;
  switch (op) {
    case hetcclSum:
      return static_cast<T>(static_cast<U>(x + y));
    case hetcclProd:
      return static_cast<T>(
          static_cast<U>(static_cast<unsigned __int128>(x) * static_cast<unsigned __int128>(y)));
    case hetcclMin:
      return std::min(a, b);
    case hetcclMax:
      return std::max(a, b);
    case hetcclLAnd:
      return a && b;
    case hetcclLOr:
      return a || b;
    case hetcclLXor:
      return !a != !b;
    case hetcclBAnd:
      return a & b;
    case hetcclBOr:
      return a | b;
    default:
      return a ^ b;
  }
}

bool is_logical(RedOp op) { return op == hetcclLAnd || op == hetcclLOr || op == hetcclLXor; }

using Each = std::vector<std::pair<const uint8_t*, bool>>;  // one element of each input; wide?

struct Job {
  Reduction reduction;
  bool finalize;
};

template <typename T>
void integer(const Job& job, const Each& in, uint8_t* out) {
  const RedOp op = job.reduction.op;
  if (op == hetcclAvg) {
    using Wide = std::conditional_t<sizeof(T) == 8, Int128, int64_t>;
    Wide sum = 0;
    for (auto [p, wide] : in) sum += wide ? load<Wide>(p) : Wide{load<T>(p)};
    if (!job.finalize) return store(out, sum);
    return store(out, static_cast<T>(sum / job.reduction.ranks));
  }
  T x = load<T>(in[0].first);
  for (size_t i = 1; i < in.size(); ++i) x = wrap(op, x, load<T>(in[i].first));
  if (job.finalize && is_logical(op)) x = x != 0;
  store(out, x);
}

template <typename T>
void real(const Job& job, const Each& in, uint8_t* out) {
  const RedOp op = job.reduction.op;
  T x = load<T>(in[0].first);
  for (size_t i = 1; i < in.size(); ++i) {
    const T y = load<T>(in[i].first);
    if (op == hetcclProd) {
      x = x * y;
    } else if (op == hetcclMin || op == hetcclMax) {
      x = minimum(x, y, op == hetcclMin);
    } else {
      x = x + y;
    }
  }
  if (job.finalize && op == hetcclAvg) x = x / static_cast<T>(job.reduction.ranks);
  if (!job.finalize && in.size() == 1)
    std::memcpy(out, in[0].first, sizeof(T));
  else
    store(out, job.finalize ? canonical(x) : x);
}

template <typename T>
void complex(const Job& job, const Each& in, uint8_t* out) {
  T re = load<T>(in[0].first), im = load<T>(in[0].first + sizeof(T));
  for (size_t i = 1; i < in.size(); ++i) {
    const T c = load<T>(in[i].first), d = load<T>(in[i].first + sizeof(T));
    if (job.reduction.op == hetcclProd) {
      const T ac = re * c, bd = im * d, ad = re * d, bc = im * c;
      re = ac - bd;
      im = ad + bc;
    } else {
      re = re + c;
      im = im + d;
    }
  }
  if (job.finalize && job.reduction.op == hetcclAvg) {
    re /= static_cast<T>(job.reduction.ranks);
    im /= static_cast<T>(job.reduction.ranks);
  }
  store(out, job.finalize ? canonical(re) : re);
  store(out + sizeof(T), job.finalize ? canonical(im) : im);
}

uint32_t bits_of(DataType type, const uint8_t* p) {
  return size_of(type) == 2 ? load<uint16_t>(p) : *p;
}

void put_bits(DataType type, uint8_t* p, uint32_t bits) {
  size_of(type) == 2 ? store(p, static_cast<uint16_t>(bits)) : store(p, static_cast<uint8_t>(bits));
}

template <typename Wide>
void narrow_mean(const Job& job, const Each& in, uint8_t* out) {
  const auto [type, op, ranks, custom] = job.reduction;
  const auto each = [&, t = type](size_t i) {
    return in[i].second ? load<Wide>(in[i].first)
                        : static_cast<Wide>(value_of(t, bits_of(t, in[i].first)));
  };
  Wide x = each(0);
  for (size_t i = 1; i < in.size(); ++i) x = op == hetcclProd ? x * each(i) : x + each(i);
  if (!job.finalize) return store(out, x);
  const double result = op == hetcclAvg ? static_cast<double>(x) / ranks : static_cast<double>(x);
  put_bits(type, out, nearest(type, result));
}

void narrow_order(const Job& job, const Each& in, uint8_t* out) {
  const auto [type, op, ranks, custom] = job.reduction;
  uint32_t best = bits_of(type, in[0].first);
  for (size_t i = 1; i < in.size(); ++i) {
    const uint32_t other = bits_of(type, in[i].first);
    best = nearest(type, minimum(value_of(type, best), value_of(type, other), op == hetcclMin));
  }
  const bool canonical = job.finalize && std::isnan(value_of(type, best));
  put_bits(type, out, canonical ? narrow(type).nan : best);
}

void narrow_float(const Job& job, const Each& in, uint8_t* out) {
  const RedOp op = job.reduction.op;
  if (op == hetcclMin || op == hetcclMax) return narrow_order(job, in, out);
  if (op == hetcclAvg && job.reduction.type == hetcclBfloat16) {
    return narrow_mean<double>(job, in, out);
  }
  narrow_mean<float>(job, in, out);
}

template <typename Value>
bool is_nan(Value x) {
  if constexpr (std::is_floating_point_v<Value>) return std::isnan(x);
  return false;
}

// Float values of pairs have the order of minimum(), -0 before +0.
template <typename Value>
bool before(Value a, Value b, bool least) {
  if (is_nan(a) || is_nan(b)) return is_nan(a) && !is_nan(b);
  if constexpr (std::is_floating_point_v<Value>) {
    if (a == b) return std::signbit(a) != std::signbit(b) && std::signbit(a) == least;
  }
  return least ? a < b : b < a;
}

template <typename Value>
void location(const Job& job, const Each& in, uint8_t* out) {
  struct Pair {
    Value value;
    int index;
  };
  const bool least = job.reduction.op == hetcclMinLoc;
  if (in.size() == 1 && !job.finalize) return (void)std::memcpy(out, in[0].first, sizeof(Pair));
  Pair best = load<Pair>(in[0].first);
  for (size_t i = 1; i < in.size(); ++i) {
    const Pair other = load<Pair>(in[i].first);
    const bool tie =
        !before(best.value, other.value, least) && !before(other.value, best.value, least);
    if (before(other.value, best.value, least) || (tie && other.index < best.index)) best = other;
  }
  if constexpr (std::is_floating_point_v<Value>) best.value = canonical(best.value);
  std::memset(out, 0, sizeof(Pair));
  store(out + offsetof(Pair, value), best.value);
  store(out + offsetof(Pair, index), best.index);
}

void boolean(const Job& job, const Each& in, uint8_t* out) {
  const RedOp op = job.reduction.op;
  if (in.size() == 1 && !job.finalize) return store(out, *in[0].first);
  bool x = *in[0].first != 0;
  for (size_t i = 1; i < in.size(); ++i) {
    const bool y = *in[i].first != 0;
    if (op == hetcclLAnd || op == hetcclBAnd || op == hetcclMin) {
      x = x && y;
    } else if (op == hetcclLOr || op == hetcclBOr || op == hetcclMax) {
      x = x || y;
    } else {
      x = x != y;
    }
  }
  store(out, static_cast<uint8_t>(x));
}

using OneElement = void (*)(const Job&, const Each&, uint8_t*);

OneElement one_element(DataType type) {
  static constexpr OneElement kByType[hetcclNumTypes] = {
      integer<int8_t>,   integer<uint8_t>, integer<int32_t>, integer<uint32_t>, integer<int64_t>,
      integer<uint64_t>, narrow_float,     real<float>,      real<double>,      narrow_float,
      narrow_float,      narrow_float,     integer<int16_t>, integer<uint16_t>, complex<float>,
      complex<double>,   boolean,          integer<uint8_t>, location<float>,   location<double>,
      location<long>,    location<short>,  location<int>};
  return kByType[type];
}

// The float that a destination or an input holds; 0 bytes: none.
size_t float_bytes(DataType type, RedOp op, bool wide) {
  switch (type) {
    case hetcclFloat32:
    case hetcclComplex64:
    case hetcclFloatInt:
      return 4;
    case hetcclFloat64:
    case hetcclComplex128:
    case hetcclDoubleInt:
      return 8;
    default:
      return is_narrow_float(type) && wide && accumulator_size(type, op) > size_of(type)
                 ? accumulator_size(type, op)
                 : 0;
  }
}

template <typename T>
T special(uint64_t choice) {
  using Limits = std::numeric_limits<T>;
  const T all[] = {T(0),
                   -T(0),
                   T(1),
                   -T(1),
                   Limits::max(),
                   Limits::lowest(),
                   Limits::infinity(),
                   -Limits::infinity(),
                   Limits::quiet_NaN(),
                   Limits::denorm_min(),
                   Limits::min(),
                   T(65504)};
  return all[choice % std::size(all)];
}

template <typename T>
void fill_floats(Bytes& data, size_t stride, std::mt19937_64& random) {
  for (size_t at = 0; at + sizeof(T) <= data.size(); at += stride) {
    const uint64_t choice = random() % 8;
    if (choice == 0) store(&data[at], special<T>(random()));
    // Numbers of like magnitude, so that sums round.
    if (choice > 1)
      store(&data[at], static_cast<T>(static_cast<int64_t>(random() % 200001) - 100000) / 1024);
  }
}

}  // namespace

bool is_narrow_float(DataType type) {
  return type == hetcclFloat16 || type == hetcclBfloat16 || type == hetcclFloat8e4m3 ||
         type == hetcclFloat8e5m2;
}

double value_of(DataType type, uint32_t bits) {
  const Narrow n = narrow(type);
  const int exponent = (bits >> n.mantissa_bits) & ((1 << n.exponent_bits) - 1);
  const int mantissa = bits & ((1 << n.mantissa_bits) - 1);
  const bool negative = (bits >> (n.exponent_bits + n.mantissa_bits)) & 1;
  const bool top = exponent == (1 << n.exponent_bits) - 1;
  double magnitude;
  if (top && n.has_infinity) {
    magnitude = mantissa == 0 ? INFINITY : NAN;
  } else if (top && mantissa == (1 << n.mantissa_bits) - 1) {
    magnitude = NAN;
  } else if (exponent == 0) {
    magnitude = std::ldexp(mantissa, 1 - n.bias - n.mantissa_bits);
  } else {
    magnitude = std::ldexp((1 << n.mantissa_bits) + mantissa, exponent - n.bias - n.mantissa_bits);
  }
  return negative ? -magnitude : magnitude;
}

uint32_t nearest(DataType type, double value) {
  const Narrow n = narrow(type);
  if (std::isnan(value)) return n.nan;
  const uint32_t sign = std::signbit(value) ? 1u << (n.exponent_bits + n.mantissa_bits) : 0;
  const std::vector<double>& all = magnitudes(type);
  const double x = std::fabs(value);
  const size_t last = all.size() - 1;
  const double step = all[last] - all[last - 1];
  // From half a step past the largest value on; the largest is odd where infinity follows.
  const double limit = all[last] + step / 2;
  if (x > limit || (x == limit && n.has_infinity)) {
    return n.has_infinity ? sign | static_cast<uint32_t>(last + 1) : n.nan;
  }
  const size_t above = std::lower_bound(all.begin(), all.end(), x) - all.begin();
  if (above > last) return sign | static_cast<uint32_t>(last);
  if (above == 0 || all[above] == x) return sign | static_cast<uint32_t>(above);
  const double up = all[above] - x, down = x - all[above - 1];
  const bool take_up = up < down || (up == down && above % 2 == 0);
  return sign | static_cast<uint32_t>(take_up ? above : above - 1);
}

Bytes combine(const Reduction& reduction, const std::vector<Input>& inputs, bool wide,
              bool finalize, size_t count) {
  const size_t element = size_of(reduction.type);
  const size_t accumulator = accumulator_size(reduction.type, reduction.op);
  const size_t out = wide ? accumulator : element;
  if (inputs.size() == 1 && !finalize && inputs[0].wide == wide) return inputs[0].data;
  Bytes result(count * out);
  const OneElement one = one_element(reduction.type);
  Each each(inputs.size());
  for (size_t i = 0; i < count; ++i) {
    for (size_t s = 0; s < inputs.size(); ++s) {
      const size_t size = inputs[s].wide ? accumulator : element;
      each[s] = {inputs[s].data.data() + i * size, inputs[s].wide};
    }
    one({reduction, finalize}, each, result.data() + i * out);
  }
  return result;
}

Bytes random_data(DataType type, RedOp op, bool wide, size_t count, std::mt19937_64& random) {
  const size_t accumulator = accumulator_size(type, op);
  const size_t size = wide ? accumulator : size_of(type);
  Bytes data(count * size);
  for (size_t at = 0; at < data.size(); at += sizeof(uint64_t)) {
    const uint64_t bits = random();
    std::memcpy(&data[at], &bits, std::min(sizeof(bits), data.size() - at));
  }
  const bool pair = supports(type, hetcclMinLoc);
  const size_t bytes = float_bytes(type, op, wide);
  if (bytes == 4) fill_floats<float>(data, pair ? size : 4, random);
  if (bytes == 8) fill_floats<double>(data, pair ? size : 8, random);
  // Partial sums of integers as they occur: what many elements can add up to.
  if (wide && op == hetcclAvg && size > size_of(type) && bytes == 0) {
    for (size_t i = 0; i < count; ++i) {
      const int64_t value = static_cast<int64_t>(random()) >> 20;
      if (size == 8) store(&data[i * 8], value);
      if (size == 16) store(&data[i * 16], static_cast<Int128>(value) << 40);
    }
  }
  // Ties of pairs and truth values are rare among random bits.
  for (size_t i = 0; pair && i < count; ++i) {
    if (random() % 2) std::memset(&data[i * size], 0, size);
    if (random() % 2) data[i * size + size / 2] = static_cast<uint8_t>(random() % 3);
  }
  for (uint8_t& byte : data) {
    if (type == hetcclBool && random() % 2) byte = 0;
  }
  return data;
}

std::string difference(const Reduction& reduction, const Bytes& expected, const uint8_t* actual,
                       bool wide, bool any_nan) {
  const size_t size =
      wide ? accumulator_size(reduction.type, reduction.op) : size_of(reduction.type);
  const size_t bytes = float_bytes(reduction.type, reduction.op, wide);
  if (expected.empty() || std::memcmp(expected.data(), actual, expected.size()) == 0) return "";
  const size_t step = any_nan && bytes != 0 ? bytes : size;
  for (size_t at = 0; at < expected.size(); at += step) {
    if (std::memcmp(&expected[at], actual + at, step) == 0) continue;
    if (any_nan && bytes == 4 && std::isnan(load<float>(&expected[at])) &&
        std::isnan(load<float>(actual + at))) {
      continue;
    }
    if (any_nan && bytes == 8 && std::isnan(load<double>(&expected[at])) &&
        std::isnan(load<double>(actual + at))) {
      continue;
    }
    std::string text = "element " + std::to_string(at / size) + ": expected";
    char hex[4];
    for (size_t i = 0; i < step; ++i)
      text += (std::snprintf(hex, 4, " %02x", expected[at + i]), hex);
    text += ", got";
    for (size_t i = 0; i < step; ++i) text += (std::snprintf(hex, 4, " %02x", actual[at + i]), hex);
    return text;
  }
  return "";
}

}  // namespace hetccl::device::reference

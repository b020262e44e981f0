#include "bench/size.h"

#include <cmath>
#include <cstdlib>

namespace hetccl::bench {
namespace {

int suffix_shift(char suffix) {
  switch (suffix) {
    case 'k':
    case 'K':
      return 10;
    case 'm':
    case 'M':
      return 20;
    case 'g':
    case 'G':
      return 30;
    case 't':
    case 'T':
      return 40;
    default:
      return -1;
  }
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

bool parse_size(std::string_view text, uint64_t* bytes, std::string* why) {
  auto refuse = [&](const char* reason) {
    *why = "'" + std::string(text) + "' is not a size (" + reason +
           "); allowed: bytes, with K, M, G or T for powers of 1024, such as 64k or 1.5G";
    return false;
  };
  size_t at = 0;
  long double value = 0;
  while (at < text.size() && is_digit(text[at])) value = value * 10 + (text[at++] - '0');
  if (at == 0) return refuse("it does not begin with a digit");
  if (at < text.size() && text[at] == '.') {
    size_t point = at++;
    long double weight = 0.1L;
    for (; at < text.size() && is_digit(text[at]); weight /= 10) {
      value += weight * (text[at++] - '0');
    }
    if (at == point + 1) return refuse("nothing follows the point");
  }
  if (at < text.size()) {
    int shift = suffix_shift(text[at++]);
    if (shift < 0) return refuse("unknown suffix");
    value = std::ldexp(value, shift);
  }
  if (at != text.size()) return refuse("something follows the suffix");
  // Fractions such as 1.1G come to whole bytes only nearly: the nearest byte is meant. Less than a
  // byte is a mistake.
  if (value >= 9223372036854775808.0L) return refuse("too large");
  long double nearest = std::round(value);
  if (value != 0 && nearest == 0) return refuse("less than a byte");
  *bytes = static_cast<uint64_t>(nearest);
  return true;
}

std::vector<uint64_t> size_steps(uint64_t begin, uint64_t end, uint64_t factor,
                                 uint64_t increment) {
  std::vector<uint64_t> sizes;
  for (uint64_t size = begin;;) {
    sizes.push_back(size);
    if (increment != 0) {
      if (end - size < increment) break;
      size += increment;
    } else {
      // Zero would stay zero.
      if (size == 0 ? end == 0 : size > end / factor) break;
      size = size == 0 ? 1 : size * factor;
    }
  }
  return sizes;
}

}  // namespace hetccl::bench

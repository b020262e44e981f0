// One mixing step of a 64-bit hash, equal on all machines: ranks compare what comes of it.
#pragma once

#include <cstdint>

namespace hetccl {

inline uint64_t hash_mix(uint64_t hash, uint64_t value) {
  hash ^= value + 0x9E3779B97F4A7C15ull + (hash << 6) + (hash >> 2);
  hash *= 0xBF58476D1CE4E5B9ull;
  return hash ^ (hash >> 31);
}

}  // namespace hetccl

// Sizes as people type them: "8", "64k", "1.5G". Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hetccl::bench {

// Binary suffixes K, M, G and T in either case, a fraction where it comes to whole bytes. On
// failure `why` says what is wrong with the text and what is allowed.
bool parse_size(std::string_view text, uint64_t* bytes, std::string* why);

// The sizes to measure, ascending: from `begin` to `end`, times `factor`, or plus `increment` where
// that is not 0. REQUIRES: begin <= end, factor >= 2.
std::vector<uint64_t> size_steps(uint64_t begin, uint64_t end, uint64_t factor, uint64_t increment);

}  // namespace hetccl::bench

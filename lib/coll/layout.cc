#include "lib/coll/layout.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numeric>

namespace hetccl::coll {
namespace {

// From this many granules a block, shares are whole granules: they then differ by under 2 %.
constexpr size_t kGranulesForAlignment = 64;

double usable(double weight) { return std::isfinite(weight) && weight > 0 ? weight : 0; }

std::vector<size_t> equal_shares(size_t units, int blocks) {
  std::vector<size_t> shares(blocks, units / blocks);
  for (size_t b = 0; b < units % blocks; ++b) ++shares[b];
  return shares;
}

// Shares that follow the weights and add up to `units`: each its whole part, and what is left to
// those with the largest remainders. Plain IEEE doubles, hence alike on every machine.
std::vector<size_t> weighted_shares(size_t units, std::span<const double> weights) {
  double sum = 0;
  for (double w : weights) sum += usable(w);
  const int blocks = static_cast<int>(weights.size());
  if (!(sum > 0) || !std::isfinite(sum)) return equal_shares(units, blocks);
  std::vector<size_t> shares(blocks);
  std::vector<double> remainders(blocks);
  size_t left = units;
  for (int b = 0; b < blocks; ++b) {
    const double exact = static_cast<double>(units) * (usable(weights[b]) / sum);
    const double whole = std::floor(exact);
    // Rounding can lift a huge share past what size_t holds, which a cast must not see.
    shares[b] = whole >= 0x1p63 ? left : std::min(left, static_cast<size_t>(whole));
    remainders[b] = exact - whole;
    left -= shares[b];
  }
  std::vector<int> order;
  for (int b = 0; b < blocks; ++b) {
    if (usable(weights[b]) > 0) order.push_back(b);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return remainders[a] > remainders[b]; });
  for (size_t i = 0; left > 0; ++i, --left) ++shares[order[i % order.size()]];
  return shares;
}

std::vector<size_t> running_sums(std::span<const size_t> counts) {
  std::vector<size_t> offsets(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), offsets.begin(), size_t{0});
  return offsets;
}

}  // namespace

Layout Layout::split(size_t count, int blocks, size_t granule, std::span<const double> weights) {
  assert(blocks > 0 && granule > 0);
  assert(weights.empty() || weights.size() == static_cast<size_t>(blocks));
  const bool aligned = count / granule / kGranulesForAlignment >= static_cast<size_t>(blocks);
  const size_t unit = aligned ? granule : 1;
  const size_t units = count / unit + (count % unit != 0);
  std::vector<size_t> shares =
      weights.empty() ? equal_shares(units, blocks) : weighted_shares(units, weights);
  size_t left = count;  // the last unit may be cut short
  for (size_t& share : shares) {
    share = share > left / unit ? left : share * unit;
    left -= share;
  }
  return from_counts(shares);
}

Layout Layout::from_counts(std::span<const size_t> counts) {
  Layout layout;
  layout.counts_.assign(counts.begin(), counts.end());
  layout.offsets_ = running_sums(counts);
  layout.total_ = counts.empty() ? 0 : layout.offsets_.back() + layout.counts_.back();
  return layout;
}

void Layout::set_compact(Buffer buffer, int own) {
  assert(own >= 0 && own < blocks());
  compact_buffer_ = buffer;
  compact_block_ = own;
}

void Layout::set_displacements(Buffer buffer, std::span<const size_t> displacements) {
  assert(displacements.size() == counts_.size());
  assert(buffer == Buffer::kInput || buffer == Buffer::kOutput);
  displaced_[buffer == Buffer::kOutput].assign(displacements.begin(), displacements.end());
}

void Layout::set_input_counts(std::span<const size_t> counts) {
  assert(counts.size() == counts_.size());
  input_counts_.assign(counts.begin(), counts.end());
}

Layout::Extent Layout::extent(Buffer buffer, int block) const {
  assert(block >= 0 && block < blocks());
  size_t offset = offsets_[block];
  const bool users = buffer == Buffer::kInput || buffer == Buffer::kOutput;
  if (compact_block_ == block && compact_buffer_ == buffer) {
    offset = 0;
  } else if (users && !displaced_[buffer == Buffer::kOutput].empty()) {
    offset = displaced_[buffer == Buffer::kOutput][block];
  }
  return {offset, count(buffer, block)};
}

}  // namespace hetccl::coll

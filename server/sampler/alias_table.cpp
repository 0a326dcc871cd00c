#include "server/sampler/alias_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "server/sampler/sampler.h"

namespace headrace::server::sampler {
namespace {

__extension__ using Wide = unsigned __int128;

constexpr std::uint64_t kFull = std::uint64_t{1} << 32;  // the size of a column

/// Integers in the ratio of the weights, scaled so that their sum is exactly count * kFull.
std::vector<std::uint64_t> shares(std::span<const double> weights, double largest) {
  constexpr int kBits = 62;
  std::vector<std::uint64_t> out(weights.size());
  Wide sum = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    out[i] = static_cast<std::uint64_t>(std::ldexp(weights[i] / largest, kBits));
    sum += out[i];
  }
  const std::uint64_t all = weights.size() * kFull;
  std::uint64_t given = 0;
  for (std::uint64_t& share : out) {
    share = static_cast<std::uint64_t>(Wide{share} * all / sum);
    given += share;
  }
  *std::max_element(out.begin(), out.end()) += all - given;
  return out;
}

}  // namespace

std::string_view fault_of_weight(double weight) {
  if (std::isnan(weight)) return "is not a number";
  if (weight < 0) return "is negative";
  return std::isinf(weight) ? "is infinite" : "";
}

Result<AliasTable> AliasTable::make(std::span<const double> weights) {
  if (weights.empty() || weights.size() > kMostSamples)
    return fail(ErrorCode::kConfigInvalid,
                fmt::format("{} weights: sampling by weight supports 1 to {}", weights.size(), kMostSamples));
  for (std::size_t i = 0; i < weights.size(); ++i)
    if (const auto fault = fault_of_weight(weights[i]); !fault.empty())
      return fail(ErrorCode::kConfigInvalid,
                  fmt::format("the weight of sample {} {}: {}", i, fault, weights[i]));
  const double largest = *std::max_element(weights.begin(), weights.end());
  if (largest == 0)
    return fail(
        ErrorCode::kConfigInvalid,
        fmt::format("the weights of all {} samples sum to zero: give one a larger weight", weights.size()));

  std::vector<std::uint64_t> left = shares(weights, largest);
  std::vector<Column> columns(left.size());
  std::vector<std::uint32_t> small, large;
  for (std::uint32_t i = 0; i < left.size(); ++i) {
    columns[i].alias = i;
    (left[i] < kFull ? small : large).push_back(i);
  }
  // Unfinished columns hold kFull each on average: if one holds less, another holds more.
  while (!small.empty()) {
    const std::uint32_t poor = small.back(), rich = large.back();
    small.pop_back();
    columns[poor] = {static_cast<std::uint32_t>(left[poor]), rich};
    left[rich] -= kFull - left[poor];
    if (left[rich] >= kFull) continue;
    large.pop_back();
    small.push_back(rich);
  }
  return AliasTable(std::move(columns));
}

std::uint32_t AliasTable::draw(Draws& draws) const {
  const std::uint32_t column = draws.below(static_cast<std::uint32_t>(columns_.size()));
  return draws.next_u32() < columns_[column].own ? column : columns_[column].alias;
}

}  // namespace headrace::server::sampler

// Samples drawn with replacement, each in proportion to its weight; and lists of samples.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "headrace/error.h"
#include "server/sampler/sampler.h"

namespace headrace::server::sampler {

/// `samples` >= 1 draws per epoch; weights[i] is sample i's. Replacements are drawn by weight as well.
/// Errors: AliasTable::make()'s.
Result<SamplerPtr> make_weighted(std::span<const double> weights, std::uint64_t samples, std::uint64_t seed);

/// The samples of a non-empty list, as often as they are in it, in its order or, if `shuffled`, in another
/// order each epoch. Replacements come from the list.
SamplerPtr make_listed(std::vector<std::uint64_t> list, bool shuffled, std::uint64_t seed);

}  // namespace headrace::server::sampler

// Samples drawn with replacement, each in proportion to its weight; and lists of samples.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "headrace/error.h"
#include "server/sampler/sampler.h"

namespace headrace::server::sampler {

/// `samples` >= 1 draws per epoch; weights[i] is sample i's. Substitutes are drawn by weight as well. Errors:
/// AliasTable::make()'s.
Result<SamplerPtr> make_weighted(std::span<const double> weights, std::uint64_t samples, std::uint64_t seed);

/// The samples of a list that is not empty, as often as they are in it, in its order or, `shuffled`, in
/// another one each epoch. Substitutes are from the list.
SamplerPtr make_listed(std::vector<std::uint64_t> list, bool shuffled, std::uint64_t seed);

}  // namespace headrace::server::sampler

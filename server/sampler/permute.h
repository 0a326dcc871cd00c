// Permutation::apply()'s loop, compiled for every instruction set that the compiler knows; draws::permuted()
// is the reference in plain C++.
#pragma once

#include <cstdint>
#include <span>

#include "clientlib/draws/permutation.h"

namespace headrace::server::sampler {

/// Permutes each value in place; each is below n.
void permute(const draws::Feistel& feistel, std::span<std::uint64_t> values);

}  // namespace headrace::server::sampler

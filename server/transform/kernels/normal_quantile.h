// The normal distribution, in arithmetic that is the same on every machine.
#pragma once

#include <cstdint>

namespace headrace::server::transform {

/// The standard normal distribution's quantile of (bits + 1/2) / 2^32, within 1e-15: Wichura's algorithm
/// AS 241 (Applied Statistics 37, 1988).
double normal_of(std::uint32_t bits);

}  // namespace headrace::server::transform

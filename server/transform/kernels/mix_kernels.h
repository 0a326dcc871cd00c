// own = partner * (1 - lambda) + own * lambda, for every instruction set that the compiler knows.
#pragma once

#include <cstddef>

#include "headrace/field.h"

namespace headrace::server::transform {

/// For `count` values of a float dtype. The shares are rounded to float32 before use, and the sum is not
/// fused, so the bits are the same on every machine and equal torch's `partner.mul_(1 - lambda).add_(own *
/// lambda)`.
void mix_values(DType dtype, double lambda, std::size_t count, std::byte* own, const std::byte* partner);

namespace scalar {
void mix_values(DType dtype, double lambda, std::size_t count, std::byte* own, const std::byte* partner);
}  // namespace scalar

}  // namespace headrace::server::transform

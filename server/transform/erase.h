// RandomErasing, in a row that is made.
#pragma once

#include "server/transform/geometry.h"
#include "server/transform/kernels.h"

namespace headrace::server::transform {

/// `step` is kErase, its rectangle within `size`. Random values are drawn in the order of torchvision's
/// tensor (channel, row, column), keyed by step.noise.
void erase(const Step& step, const RandomErasing& t, const PixelFormat& format, Size size, std::byte* out);

/// The standard normal distribution's quantile of (bits + 1/2) / 2^32, within 1e-15: Wichura's algorithm
/// AS 241 (Applied Statistics 37, 1988).
double normal_of(std::uint32_t bits);

}  // namespace headrace::server::transform

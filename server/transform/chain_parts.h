// A chain in two parts, with interleaved uint8 images between them. Each transform gives uint8 images, so the
// rows of both parts together equal the whole chain's bit for bit, wherever it is cut.
#pragma once

#include <cstddef>

#include "server/transform/plan.h"

namespace headrace::server::transform {

/// The first `count` transforms. It compiles if they end with images of one size.
PlanConfig first_part(const PlanConfig& chain, std::size_t count);
/// The transforms after them, and the chain's output; its input is images of `size`, as first_part() makes
/// them.
PlanConfig second_part(const PlanConfig& chain, std::size_t count, Size size);

/// How many transforms from the beginning give uint8 images of pixels, which others could share: all but
/// those that reduce channels, normalize or erase.
std::size_t shareable_transforms(const std::vector<Transform>& chain);

}  // namespace headrace::server::transform

// torchvision's list of augmentations, of which RandAugment and TrivialAugmentWide draw.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "server/described/codec.h"
#include "server/sampler/philox.h"
#include "server/transform/geometry.h"

namespace headrace::server::transform {

/// The largest magnitudes, in which the two differ.
struct Strength {
  double shear, translate_x, translate_y, rotate, enhance;
  int posterize;
};

/// Draws one operation and appends it to the step's. Without a `bin` of the magnitude, one of `bins` is
/// drawn.
void draw_augmentation(sampler::Draws& random, const Strength& most, std::int32_t bins,
                       std::optional<std::int32_t> bin, const Warp& warp, Step& step);

/// The operations by torchvision's names, with its magnitudes.
nlohmann::json describe_augmentations(std::string_view name, const Step& step);

/// One bin has no step between bins: torchvision divides by zero.
described::Codec<std::int32_t> magnitude_bins();

}  // namespace headrace::server::transform

// torchvision's list of augmentations, of which RandAugment and TrivialAugmentWide draw.
#pragma once

#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "server/described/described.h"
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

/// The arguments of both.
struct SpaceArguments {
  std::int32_t num_magnitude_bins = 31;
  Interpolation how = Interpolation::kNearest;
  std::array<std::uint8_t, 3> color{};

  static std::vector<described::Key<SpaceArguments>> keys();
  [[nodiscard]] Warp warp() const { return {how == Interpolation::kBilinear, color}; }
};

}  // namespace headrace::server::transform

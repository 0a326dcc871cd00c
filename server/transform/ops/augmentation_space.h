// torchvision's list of augmentations, from which RandAugment and TrivialAugmentWide draw.
#pragma once

#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "server/described/described.h"
#include "server/sampler/philox.h"
#include "server/transform/stages/step.h"

namespace headrace::server::transform {

/// The largest magnitudes, by which the two differ.
struct Strength {
  double shear, translate_x, translate_y, rotate, enhance;
  int posterize;
};

/// Draws one operation and appends it to the step's. Without `bin`, the magnitude is drawn from `bins`.
void draw_augmentation(sampler::Draws& random, const Strength& most, std::int32_t bins,
                       std::optional<std::int32_t> bin, const Warp& warp, Step& step);

/// The operations with torchvision's names and magnitudes.
nlohmann::json describe_augmentations(std::string_view name, const Step& step);

/// The arguments that both share.
struct SpaceArguments {
  std::int32_t num_magnitude_bins = 31;
  Interpolation how = Interpolation::kNearest;
  std::array<std::uint8_t, 3> color{};

  static std::vector<described::Key<SpaceArguments>> keys();
  [[nodiscard]] Warp warp() const { return {how == Interpolation::kBilinear, color}; }
};

}  // namespace headrace::server::transform

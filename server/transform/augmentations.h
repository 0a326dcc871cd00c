// Transforms that change colours. One struct each; members are the arguments of torchvision.transforms.v2's
// class of that name. Pixels are those of its PIL backend, bit for bit, unless the struct says otherwise;
// what is drawn is distributed as there.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "headrace/field.h"

namespace headrace::server::transform {

/// Both ends can be drawn.
struct Bounds {
  double low = 1, high = 1;
};

/// Factors drawn uniformly, applied in an order that is drawn, too. Without bounds, an adjustment is not
/// made.
struct ColorJitter {
  std::optional<Bounds> brightness, contrast, saturation;  ///< 0 <= low <= high
  std::optional<Bounds> hue;                               ///< of turns: -0.5 <= low <= high <= 0.5
  double p = 1;                                            ///< v2.RandomApply's around it
};
struct RandomGrayscale {
  double p = 0.1;
};

/// How pixels between pixels are made where a picture is sheared, moved or turned, and what is beyond its
/// edges.
struct Warp {
  bool bilinear = false;  ///< else nearest
  std::array<std::uint8_t, 3> fill{};
};
/// Operations that are drawn from torchvision's list, as there. A mask has the geometric ones among them,
/// nearest.
struct RandAugment {
  std::int32_t num_ops = 2, magnitude = 9, num_magnitude_bins = 31;
  Warp warp;
};
struct TrivialAugmentWide {
  std::int32_t num_magnitude_bins = 31;
  Warp warp;
};
/// Sides of the kernel are odd. Within 1 of torchvision, which sums in an order of its own.
struct GaussianBlur {
  std::int32_t kernel_width = 1, kernel_height = 1;
  Bounds sigma{0.1, 2.0};
  double p = 1;  ///< v2.RandomApply's around it
};
/// In the output, after normalize: so values are in the output's units, one or one per channel. `random`:
/// each value of the rectangle is drawn from the standard normal distribution.
struct RandomErasing {
  double p = 0.5;
  double scale_min = 0.02, scale_max = 0.33;
  double ratio_min = 0.3, ratio_max = 3.3;
  std::vector<double> value{0};
  bool random = false;
};

/// What is wrong with the arguments; empty: nothing.
std::string wrong_with(const ColorJitter& t);
std::string wrong_with(const RandAugment& t);
std::string wrong_with(const TrivialAugmentWide& t);
std::string wrong_with(const GaussianBlur& t);
/// `channels` of the output.
std::string wrong_with(const RandomErasing& t, DType dtype, std::size_t channels);

}  // namespace headrace::server::transform

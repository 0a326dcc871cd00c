// Transforms that change colours. One struct each; members are the arguments of torchvision.transforms.v2's
// class of that name. Pixels are those of its PIL backend, bit for bit, unless the struct says otherwise;
// what is drawn is distributed as there.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

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

/// What is wrong with the arguments; empty: nothing.
std::string wrong_with(const ColorJitter& t);
std::string wrong_with(const RandAugment& t);
std::string wrong_with(const TrivialAugmentWide& t);

}  // namespace headrace::server::transform

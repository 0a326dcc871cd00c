// A transform of a chain with its random parts drawn.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "server/decode/decoder.h"
#include "server/transform/kernels/image_types.h"
#include "server/transform/kernels/pixel_ops.h"

namespace headrace::server::transform {

/// One transform applied to one image, with its random parts drawn. Coordinates are those of the transform's
/// input, including padding.
struct Step {
  enum class Kind : std::uint8_t {
    kResize,
    kCrop,
    kHorizontalFlip,
    kVerticalFlip,
    kTurn,
    kPixels,
    kErase,
    kNone
  };
  Kind kind = Kind::kNone;
  std::size_t transform = 0;                              ///< index in the chain; kBefore
  std::int32_t left = 0, top = 0, right = 0, bottom = 0;  ///< kCrop: padding first
  PaddingMode mode = PaddingMode::kConstant;
  std::array<std::uint8_t, 3> fill{};
  decode::Rect crop;  ///< kCrop, in the padded image; kErase, in the output
  Size size;          ///< kResize
  Interpolation interpolation = Interpolation::kBilinear;
  std::int32_t turns = 0;    ///< kTurn: quarter turns, counter-clockwise
  std::vector<PixelOp> ops;  ///< kPixels
  std::uint64_t noise = 0;   ///< kErase: the key of random values

  static constexpr std::size_t kBefore = SIZE_MAX;  ///< PlanConfig::multiple and derived
};

}  // namespace headrace::server::transform

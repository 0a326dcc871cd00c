// Turns a chain of transforms, an image's size and a draw key into the few stages that make one row.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "clientlib/pixels/padding.h"
#include "server/decode/decoder.h"
#include "server/transform/pixel_ops.h"
#include "server/transform/plan.h"

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

/// Draws every transform for an image of this size into `steps`, whose memory is reused. Returns
/// RenderReport::base. Refuses what torchvision refuses (an image smaller than a random crop, a side of
/// zero), and a side longer than 2^28. Between two transforms, only the pixels that a stage passes on are
/// made, and only these are limited by max_pixels (Plan::render): a long thin image may be resized to more
/// than max_pixels if a crop follows.
decode::Decoded<Size> draw_steps(const PlanConfig& config, decode::ImageSize size, DrawKey key,
                                 std::vector<Step>& steps);

/// How many of the chain's first transforms draw nothing and only move or resample pixels.
std::size_t prefix_length(const PlanConfig& config);
/// draw_steps() in two parts: the steps before the chain with its first `count` <= prefix_length transforms;
/// then the other transforms, for the image that the first part makes.
decode::Decoded<Size> prefix_steps(const PlanConfig& config, std::size_t count, decode::ImageSize size,
                                   std::vector<Step>& steps);
decode::Decoded<void> steps_after(const PlanConfig& config, std::size_t count, decode::ImageSize size,
                                  DrawKey key, std::vector<Step>& steps);

/// The parameters in torchvision's terms: see Plan::parameters.
nlohmann::json parameters_of(const PlanConfig& config, const std::vector<Step>& steps);

/// Crop (with padding), then resize, then a window of the result, then flips and turns, then colours. Most
/// chains are one stage: leading crops become the decoder's region, crops after a resize become its window,
/// flips move to the end. A flip before a resize stays in order: Pillow's coefficients are not symmetric to
/// the last bit.
struct Stage {
  decode::ImageSize input;
  decode::Rect crop;    ///< of the input; reaches beyond it when padded
  bool padded = false;  ///< never together with `resized`
  PaddingMode mode = PaddingMode::kConstant;
  std::array<std::uint8_t, 3> fill{};
  bool resized = false;
  decode::ImageSize size;  ///< after the resize; the crop's if there is none
  Interpolation interpolation = Interpolation::kBilinear;
  decode::Rect window;                     ///< of `size`; all of it if there is no resize
  bool mirrored = false, flipped = false;  ///< left to right, top to bottom
  bool transposed = false;                 ///< rows become columns, after the flips
  std::vector<PixelOp> ops;                ///< on the output's pixels, last

  [[nodiscard]] decode::ImageSize output() const {
    return transposed ? decode::ImageSize{window.height, window.width}
                      : decode::ImageSize{window.width, window.height};
  }
};

/// Fills `stages`, whose memory is reused, with at least one.
void stages_of(const std::vector<Step>& steps, decode::ImageSize size, std::vector<Stage>& stages);

/// The order of a stage's resize passes.
bool vertical_first(const Stage& stage, ResizePasses passes);

using pixels::padded_index;

/// Whether the fill can be used in pictures of one channel.
inline bool is_gray(const std::uint8_t* rgb) {
  return rgb[0] == rgb[1] && rgb[1] == rgb[2];
}

}  // namespace headrace::server::transform

// The few stages that make one row, from its steps.
#pragma once

#include <array>
#include <boost/align/aligned_allocator.hpp>
#include <cstdint>
#include <span>
#include <vector>

#include "server/decode/decoder.h"
#include "server/transform/kernels/image_types.h"
#include "server/transform/kernels/pixel_ops.h"
#include "server/transform/stages/step.h"

namespace headrace::server::transform {

/// Crop (with padding), then resize, then a window of the result, then flips and turns, then colors. Most
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

/// The stages of one row, in a block aligned to 512 bytes, so that a short chain does not span two pages.
using Stages = std::vector<Stage, boost::alignment::aligned_allocator<Stage, 512>>;

/// Fills `stages`, whose memory is reused, with at least one.
void stages_of(const std::vector<Step>& steps, decode::ImageSize size, Stages& stages);

/// The order of a stage's resize passes.
bool vertical_first(const Stage& stage, ResizePasses passes);
/// Memory for the images between stages and between the passes of a resize; about.
std::size_t bytes_between(std::span<const Stage> stages, ResizePasses passes);

}  // namespace headrace::server::transform

// Words that plans, stages and kernels share: sizes, interpolations and outputs.
#pragma once

#include <cstdint>

#include "clientlib/pixels/padding.h"
#include "headrace/device_image.h"
#include "headrace/field.h"

namespace headrace::server::transform {

using pixels::padded_index;
using pixels::PaddingMode;
using pixels::PixelLayout;

enum class Interpolation : std::uint8_t { kBilinear, kBicubic, kNearest };

struct Size {
  std::int32_t height = 0, width = 0;
};

/// Longest side of a transform's result.
inline constexpr std::int32_t kLargestSide = 16'384;

struct Output {
  DType dtype = DType::kUInt8;  // uint8, float16, bfloat16, float32
  PixelLayout layout = PixelLayout::kNchw;
};

/// The order of a resize's two passes; each rounds to bytes, so results can differ by one. Pillow 13 does the
/// vertical pass first if the height shrinks by more than twice the pixels that the width shrinks by; before
/// version 13 the horizontal pass was always first.
enum class ResizePasses : std::uint8_t { kPillow13, kHorizontalFirst };

}  // namespace headrace::server::transform

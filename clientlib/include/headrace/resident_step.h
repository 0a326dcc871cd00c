// One random transform of pictures that are resident on a device. C++17, for CUDA's compiler.
#pragma once

#include <cstdint>

#include "headrace/row_steps.h"

namespace headrace {

inline constexpr std::int32_t kMaxResidentSteps = 8;
inline constexpr std::int32_t kMaxResidentSide = 4096;  ///< of pictures and of what a step makes

/// A transform of the chain, behind those that are done once, before the upload.
struct ResidentStep {
  enum class Kind : std::uint8_t { kCrop, kHorizontalFlip, kVerticalFlip, kTurn };
  Kind kind = Kind::kCrop;
  std::uint32_t stage = 0;             ///< its place in the chain: what draws are keyed by
  std::int32_t height = 0, width = 0;  ///< of what leaves it
  std::int32_t top = 0, left = 0;      ///< kCrop: of its first place; negative where the picture is padded
  std::int32_t rows = 1, columns = 1;  ///< kCrop: places down and across, of which one is drawn
  pixels::PaddingMode padding = pixels::PaddingMode::kConstant;
  std::uint8_t fill[3] = {0, 0, 0};  ///< kConstant; of uint8 pixels
  double p = 1;                      ///< of a flip
};

}  // namespace headrace

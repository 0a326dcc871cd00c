// Color arithmetic of libImaging, one pixel at a time. gpu/rows/colors.h computes the same bytes in floats.
#pragma once

#include <cstdint>

#include "clientlib/pixels/hd.h"

namespace headrace::pixels {

/// A pixel in PIL's mode "L" (gray).
inline std::uint8_t gray_of(std::uint32_t r, std::uint32_t g, std::uint32_t b) {
  return static_cast<std::uint8_t>((19595U * r + 38470U * g + 7471U * b + 0x8000U) >> 16);
}

/// BT.601's Y of 16 to 235, as MATLAB's rgb2ycbcr: 16 + (65.481 R + 128.553 G + 24.966 B) / 255, rounded to
/// the nearest (halves up), in integers.
HEADRACE_HD inline std::uint8_t luma_of(std::uint32_t r, std::uint32_t g, std::uint32_t b) {
  constexpr std::uint32_t kOne = 255'000;
  return static_cast<std::uint8_t>((65'481U * r + 128'553U * g + 24'966U * b + 16 * kOne + kOne / 2) / kOne);
}

/// libImaging's Blend.c: a + factor * (b - a), clamped to 0..255 and truncated to an integer, in single
/// precision without fused multiply-add.
inline std::uint8_t blend(std::uint8_t a, std::uint8_t b, float factor) {
  const float mixed = static_cast<float>(a) + factor * static_cast<float>(b - a);
  return static_cast<std::uint8_t>(mixed < 0.0F ? 0.0F : mixed > 255.0F ? 255.0F : mixed);
}

struct Rgb {
  std::uint8_t r = 0, g = 0, b = 0;
};

}  // namespace headrace::pixels

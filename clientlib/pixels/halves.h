// Converts float32 to and from the half types, as torch's casts do: rounds to nearest, ties to even; a value
// that is too large becomes infinite, NaN stays NaN. C++17, for CUDA's compiler.
#pragma once

#include <cstdint>
#include <cstring>

#include "clientlib/pixels/hd.h"

namespace headrace::pixels {

HEADRACE_HD inline std::uint32_t bits_of(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
HEADRACE_HD inline float float_of(std::uint32_t bits) {
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

HEADRACE_HD inline std::uint16_t half_of(float value) {
  const std::uint32_t bits = bits_of(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
  const std::uint32_t magnitude = bits & 0x7FFF'FFFFU;
  if (magnitude > 0x7F80'0000U) return static_cast<std::uint16_t>(sign | 0x7E00U);
  if (magnitude >= 0x477F'F000U) return static_cast<std::uint16_t>(sign | 0x7C00U);
  if (magnitude < 0x3880'0000U) {  // below 2^-14: a multiple of 2^-24. The sum rounds it, ties to even.
    const float rounded = float_of(magnitude) + 0.5F;
    return static_cast<std::uint16_t>(sign | (bits_of(rounded) - 0x3F00'0000U));
  }
  const std::uint32_t rounded = magnitude + 0x0FFFU + ((magnitude >> 13) & 1U);
  return static_cast<std::uint16_t>(sign | ((rounded - 0x3800'0000U) >> 13));
}

HEADRACE_HD inline std::uint16_t bfloat_of(float value) {
  const std::uint32_t bits = bits_of(value);
  if ((bits & 0x7FFF'FFFFU) > 0x7F80'0000U) return 0x7FC0U;
  return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}

inline float float_of_half(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000U) << 16;
  const std::uint32_t magnitude = half & 0x7FFFU;
  if (magnitude >= 0x7C00U) return float_of(sign | 0x7F80'0000U | (magnitude & 0x3FFU) << 13);
  // A float's exponent is larger by 112. Multiplication by 2^112 also corrects the exponent of subnormal
  // values.
  return float_of(sign | bits_of(float_of(magnitude << 13) * 0x1p112F));
}

inline float float_of_bfloat(std::uint16_t value) {
  return float_of(static_cast<std::uint32_t>(value) << 16);
}

}  // namespace headrace::pixels

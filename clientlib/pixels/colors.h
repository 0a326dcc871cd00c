// Color arithmetic of libImaging, one pixel at a time; the same bytes on host and device.
#pragma once

#include <cstdint>

#include "clientlib/pixels/hd.h"

namespace headrace::pixels {

/// A pixel in PIL's mode "L" (gray).
HEADRACE_HD inline std::uint8_t gray_of(std::uint32_t r, std::uint32_t g, std::uint32_t b) {
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
HEADRACE_HD inline std::uint8_t blend(std::uint8_t a, std::uint8_t b, float factor) {
  const float mixed = static_cast<float>(a) + factor * static_cast<float>(b - a);
  return static_cast<std::uint8_t>(mixed < 0.0F ? 0.0F : mixed > 255.0F ? 255.0F : mixed);
}

struct Rgb {
  std::uint8_t r = 0, g = 0, b = 0;
};

/// a / b in single precision. a, b and the quotient must be normal numbers or 0, and b not 0.
HEADRACE_HD inline float quotient(float a, float b) {
#ifdef __CUDA_ARCH__
  // The compiler's division also checks for special cases, and these checks cost more than the division.
  // `about` has a relative error below 2^-21 and the remainder is exact, so the value that is rounded differs
  // from the exact quotient by less than 2^-42 of it. For integers up to 255 and for sixths (shift_hue) no
  // quotient is that near to the middle between two floats.
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(b));
  const float about = a * inverse;
  return __fmaf_rn(__fmaf_rn(-about, b, a), inverse, about);
#else
  return a / b;
#endif
}

/// The integer part of 255 x, for 0 <= x <= 1.
HEADRACE_HD inline std::int32_t times_byte(float x) {
#ifdef __CUDA_ARCH__
  // Rounded once, towards zero, to a multiple of 1: the low bits of a float from 2^23 on are an integer.
  return static_cast<std::int32_t>(__float_as_uint(__fmaf_rz(x, 255.0F, 8388608.0F)) & 511U);
#else
  // The product in single precision may be rounded up to an integer above 255 x; the comparison with 256 x,
  // which is exact, detects that.
  const auto whole = static_cast<std::int32_t>(x * 255.0F);
  return x * 256.0F - static_cast<float>(whole) < x ? whole - 1 : whole;
#endif
}

/// libImaging's rgb2hsv and hsv2rgb (Convert.c) with `shift` added to H, modulo 256. They mix float and
/// double; this gives the same bytes in single precision and in integers.
///   RGB to HSV: the quotients are libImaging's own. The quotient of the smallest channel is 1, so h is a
/// single difference, rounded once.
///   HSV to RGB: in exact arithmetic no rounded value is a half, so a rounded quotient of integers is exact.
HEADRACE_HD inline Rgb shift_hue(Rgb pixel, std::uint8_t shift) {
  const std::int32_t r = pixel.r, g = pixel.g, b = pixel.b;
  const std::int32_t most = r > g ? (r > b ? r : b) : (g > b ? g : b);
  const std::int32_t least = r < g ? (r < b ? r : b) : (g < b ? g : b);
  const std::int32_t range = most - least;
  if (range == 0) return pixel;
  const std::int32_t s = times_byte(quotient(static_cast<float>(range), static_cast<float>(most)));

  const bool red = r == most, green = !red && g == most;
  const std::int32_t before = red ? b : green ? r : g, after = red ? g : green ? b : r;
  const float base = red ? 0.0F : green ? 2.0F : 4.0F;
  const bool rising = after == least;  // base + before / range - 1, else base + 1 - after / range
  const float part =
      quotient(static_cast<float>(most - (rising ? before : after)), static_cast<float>(range));
  const float sixths = rising ? base - 1.0F + part : base + 1.0F - part;
  float turns = quotient(sixths, 6.0F);
  if (sixths < 0.0F) turns = turns + 1.0F;
  if (turns >= 1.0F) turns = turns - 1.0F;
  const std::int32_t h = (times_byte(turns) + shift) & 255;

  // If s is 0, `low` and `middle` are `most`.
  const std::int32_t sector = h * 6 / 255;  // 0 to 6; 6 is the same as 0
  const std::int32_t rest = h * 6 - sector * 255;
  const std::int32_t low = (most * (255 - s) * 2 + 255) / 510;
  const std::int32_t weight = sector % 2 == 0 ? 255 - rest : rest;
  const std::int32_t middle = (most * (65'025 - s * weight) * 2 + 65'025) / 130'050;
  // Each constant says, for sectors 6 to 0 and in two bits each, which value the channel takes: `most` (0),
  // `middle` (1) or `low` (2). There are no branches, because the threads of a GPU would wait for each other.
  constexpr std::uint32_t kRed = 0b00'00'01'10'10'01'00, kGreen = 0b01'10'10'01'00'00'01,
                          kBlue = 0b10'01'00'00'01'10'10;
  const std::uint32_t values = static_cast<std::uint32_t>(most) | static_cast<std::uint32_t>(middle) << 8 |
                               static_cast<std::uint32_t>(low) << 16;
  const auto channel = [&](std::uint32_t which) {
    return static_cast<std::uint8_t>(values >> ((which >> (2 * sector) & 3U) * 8));
  };
  return {channel(kRed), channel(kGreen), channel(kBlue)};
}

}  // namespace headrace::pixels

// A color channel as a float, for arithmetic without conversions between integers and floats. The float,
// called lifted, is kLift + byte / 256: its low 8 bits are the byte, and the distance to the next float is 1
// / 256.
#pragma once

#include <cmath>
#include <cstdint>

#include "clientlib/pixels/halves.h"
#include "clientlib/pixels/hd.h"

namespace headrace::gpu {

inline constexpr float kLift = 32768;
inline constexpr std::uint32_t kLiftBits = 0x4700'0000U;  ///< the bits of kLift
inline constexpr float kByteStep = 1.0F / 256;            ///< the distance between neighboring bytes

struct LiftedRgb {
  float r, g, b;
};

HEADRACE_HD inline float lift(std::uint8_t byte) {
  return pixels::float_of(kLiftBits | byte);
}
/// Byte number `at` of a word, lifted.
HEADRACE_HD inline float lift_byte(std::uint32_t word, int at) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(__byte_perm(word, kLiftBits, 0x7540U | static_cast<unsigned>(at)));
#else
  return lift(static_cast<std::uint8_t>(word >> (8 * at)));
#endif
}
HEADRACE_HD inline std::uint8_t byte_of(float lifted) {
  return static_cast<std::uint8_t>(pixels::bits_of(lifted));
}
HEADRACE_HD inline std::uint8_t byte_of(std::uint8_t byte) {
  return byte;
}

/// byte / 256, exactly.
HEADRACE_HD inline float fraction_of(float lifted) {
  return lifted - kLift;
}
HEADRACE_HD inline float fraction_of(std::uint8_t byte) {
  return fraction_of(lift(byte));
}

/// a * b + c, rounded once.
HEADRACE_HD inline float multiply_add(float a, float b, float c) {
#ifdef __CUDA_ARCH__
  return __fmaf_rn(a, b, c);
#else
  return std::fmaf(a, b, c);
#endif
}

/// lifted + x, rounded down to a lifted byte. REQUIRES: 0 <= fraction_of(lifted) + x < 1.
HEADRACE_HD inline float add_down(float lifted, float x) {
#ifdef __CUDA_ARCH__
  return __fadd_rd(lifted, x);
#else
  return static_cast<float>(std::floor((double{lifted} + x) * 256) / 256);
#endif
}

HEADRACE_HD inline float min_of(float a, float b) {
#ifdef __CUDA_ARCH__
  return fminf(a, b);
#else
  return b < a ? b : a;
#endif
}
HEADRACE_HD inline float max_of(float a, float b) {
#ifdef __CUDA_ARCH__
  return fmaxf(a, b);
#else
  return b > a ? b : a;
#endif
}

/// Clamps x to 0..1; NaN gives 0.
HEADRACE_HD inline float saturated(float x) {
#ifdef __CUDA_ARCH__
  return __saturatef(x);  // free: a modifier of the instruction that computes x
#else
  return x > 0.0F ? min_of(x, 1.0F) : 0.0F;
#endif
}

/// Clamps x to what a byte can hold, 0 to 255 / 256.
HEADRACE_HD inline float clamped(float x) {
  return min_of(saturated(x), 255 * kByteStep);
}

/// Clamps x and truncates it to a lifted byte.
HEADRACE_HD inline float lift_clamped(float x) {
  return add_down(kLift, clamped(x));
}

}  // namespace headrace::gpu

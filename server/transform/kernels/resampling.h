// Pillow's resampling, one output sample at a time: libImaging's Resample.c and Geometry.c (nearest). Weights
// are computed in double, normalized, then rounded to 22-bit fixed point; sums, products and quotients of
// doubles are the same on every machine, so the weights are, too.
#pragma once

#include <cstdint>

namespace headrace::server::transform {

/// Fraction bits of a weight. Two bits below an int32's range remain for bicubic's overshoot, eight for the
/// pixel.
inline constexpr int kPrecisionBits = 22;
inline constexpr std::int32_t kHalfWeight = 1 << (kPrecisionBits - 1);

/// A sum of weights times bytes, which begins with kHalfWeight, as a byte.
inline std::uint8_t clipped_byte(std::int32_t sum) {
  const std::int32_t value = sum >> kPrecisionBits;
  return static_cast<std::uint8_t>(value < 0 ? 0 : value > 255 ? 255 : value);
}

inline std::int32_t truncated(double x) {
  return static_cast<std::int32_t>(x);
}

inline double filter_value(bool cubic, double x) {
  constexpr double a = -0.5;
  if (x < 0) x = -x;
  if (!cubic) return x < 1.0 ? 1.0 - x : 0.0;
  if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
  if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * a;
  return 0.0;
}

/// One axis of a resize from `in` to `out` samples, bilinear or bicubic.
struct Filter {
  std::int32_t in = 1;
  bool cubic = false;
  double scale = 1, support = 1, step = 1;

  Filter(std::int32_t in_samples, std::int32_t out_samples, bool is_cubic) : in(in_samples), cubic(is_cubic) {
    scale = static_cast<double>(in) / out_samples;
    const double filter_scale = scale > 1.0 ? scale : 1.0;
    support = (cubic ? 2.0 : 1.0) * filter_scale;
    step = 1.0 / filter_scale;
  }
  /// Most inputs per output.
  [[nodiscard]] std::int32_t taps() const {
    auto whole = static_cast<std::int32_t>(support);
    if (whole < support) ++whole;
    return whole * 2 + 1 < in ? whole * 2 + 1 : in;
  }
  [[nodiscard]] double center(std::int32_t output) const { return (output + 0.5) * scale; }
  /// Inputs [begin, end) of an output; both increase with it.
  [[nodiscard]] std::int32_t begin(std::int32_t output) const {
    const auto first = truncated(center(output) - support + 0.5);
    return first > 0 ? first : 0;
  }
  [[nodiscard]] std::int32_t end(std::int32_t output) const {
    const auto last = truncated(center(output) + support + 0.5);
    return last < in ? last : in;
  }
  /// The weight of an input for an output, before weights are normalized.
  [[nodiscard]] double value(std::int32_t input, double output_center) const {
    return filter_value(cubic, (input - output_center + 0.5) * step);
  }
};

/// The fixed-point weight of a value; all values of the output add up to `sum`.
inline std::int32_t fixed_point(double value, double sum) {
  if (sum != 0.0) value /= sum;
  return static_cast<std::int32_t>((value < 0 ? -0.5 : 0.5) + value * (1 << kPrecisionBits));
}

/// Nearest neighbor by the rule of Pillow's affine scaling: it adds the step repeatedly, and the rounding of
/// that sum is part of the result. Calls `each(output, input)` for outputs [0, end) from `from` on; input -1:
/// Pillow leaves black.
template <class Each>
inline void each_nearest(std::int32_t in, std::int32_t out, std::int32_t from, std::int32_t end,
                         Each&& each) {
  const double scale = static_cast<double>(in) / out;
  double at = scale * 0.5;
  for (std::int32_t i = 0; i < end; ++i, at += scale) {
    if (i < from) continue;
    const auto nearest = static_cast<std::int32_t>(at);
    each(i, nearest < in ? nearest : -1);
  }
}

}  // namespace headrace::server::transform

// One axis of a row's way from its picture to its window: which samples are read, and what they weigh.
#pragma once

#include <cstdint>

#include "clientlib/gpu/transform/task.h"
#include "clientlib/pixels/padding.h"
#include "clientlib/pixels/resampling.h"

namespace headrace::gpu {

/// Samples [begin, end) of the picture.
struct Span {
  std::int32_t begin = 0, end = 0;
};

struct Axis {
  enum class Kind : std::uint8_t { kCopy, kNearest, kFilter };
  Kind kind = Kind::kCopy;
  std::int32_t length = 0;  ///< of the crop; of the picture if it is only copied
  std::int32_t origin = 0;  ///< of these samples in the picture
  std::int32_t out = 0;     ///< after the resize
  std::int32_t from = 0;    ///< of the window in `out`; in the picture if it is only copied
  pixels::Interpolation interpolation = pixels::Interpolation::kBilinear;
  pixels::PaddingMode padding = pixels::PaddingMode::kConstant;

  [[nodiscard]] HEADRACE_HD pixels::Filter filter() const {
    return {length, out, interpolation == pixels::Interpolation::kBicubic};
  }
  /// All that the window's samples [first, first + count) read; never empty, and never more than the picture.
  [[nodiscard]] HEADRACE_HD Span span(std::int32_t first, std::int32_t count) const {
    const std::int32_t a = from + first, b = a + count;
    Span span;
    if (kind == Kind::kCopy) {
      span = padded_span(a, b);
    } else if (kind == Kind::kNearest) {
      // As far as the sum of each_nearest can be from the product.
      const double scale = static_cast<double>(length) / out;
      span = {static_cast<std::int32_t>((a + 0.5) * scale) - 1,
              static_cast<std::int32_t>((b - 0.5) * scale) + 2};
    } else if (length == out) {
      span = {a, b};
    } else {
      span = {filter().begin(a), filter().end(b - 1)};
    }
    if (span.begin > length - 1) span.begin = length - 1;
    if (span.begin < 0) span.begin = 0;
    if (span.end > length) span.end = length;
    if (span.end <= span.begin) span.end = span.begin + 1;
    return {span.begin + origin, span.end + origin};
  }

 private:
  [[nodiscard]] HEADRACE_HD Span padded_span(std::int32_t a, std::int32_t b) const {
    if (padding == pixels::PaddingMode::kConstant) return {a, b};
    if (padding == pixels::PaddingMode::kEdge) return {a < length ? a : length - 1, b > 0 ? b : 1};
    // Mirrored once, unless the padding is longer than the picture.
    if (a <= -length || b >= 2 * length) return {0, length};
    Span span{length, 0};
    const auto add = [&span](std::int32_t begin, std::int32_t end) {
      if (begin < span.begin) span.begin = begin;
      if (end > span.end) span.end = end;
    };
    if (a < 0) add(b < 0 ? -b : 0, 1 - a);
    if (b > 0 && a < length) add(a, b);
    if (b > length) add(2 * length - 1 - b, 2 * length - (a > length ? a : length));
    return span;
  }
};

HEADRACE_HD inline Axis::Kind axis_kind(const pixels::RowSteps& steps) {
  if ((steps.flags & pixels::RowSteps::kResized) == 0) return Axis::Kind::kCopy;
  return steps.interpolation == pixels::Interpolation::kNearest ? Axis::Kind::kNearest : Axis::Kind::kFilter;
}

HEADRACE_HD inline Axis columns_of(const RowTask& task) {
  const pixels::RowSteps& steps = task.steps;
  const auto kind = axis_kind(steps);
  const bool copy = kind == Axis::Kind::kCopy;
  return {kind,
          copy ? task.width : steps.crop.width,
          copy ? 0 : steps.crop.left,
          steps.resized_width,
          copy ? steps.crop.left : steps.window.left,
          steps.interpolation,
          steps.padding};
}

HEADRACE_HD inline Axis rows_of(const RowTask& task) {
  const pixels::RowSteps& steps = task.steps;
  const auto kind = axis_kind(steps);
  const bool copy = kind == Axis::Kind::kCopy;
  return {kind,
          copy ? task.height : steps.crop.height,
          copy ? 0 : steps.crop.top,
          steps.resized_height,
          copy ? steps.crop.top : steps.window.top,
          steps.interpolation,
          steps.padding};
}

/// In shared memory. Output i reads the picture's samples first[i] + k, k < count[i], which weigh
/// weights[i * output_step + k * tap_step]; where nothing is weighed, first[i] is its sample or -1: fill.
struct AxisTable {
  std::int32_t* first = nullptr;
  std::int32_t* count = nullptr;
  std::int32_t* weights = nullptr;
  std::int32_t output_step = 1, tap_step = 1;

  HEADRACE_HD HEADRACE_NOINLINE void make(const Axis& axis, std::int32_t from, std::int32_t i) const {
    const std::int32_t output = axis.from + from + i;
    if (axis.kind == Axis::Kind::kCopy) {
      first[i] = pixels::padded_index(output, axis.length, axis.padding);
    } else if (axis.kind == Axis::Kind::kNearest) {
      pixels::each_nearest(
          axis.length, axis.out, output, output + 1,
          [&](std::int32_t, std::int32_t nearest) { first[i] = nearest < 0 ? -1 : nearest + axis.origin; });
    } else if (axis.length == axis.out) {
      first[i] = output + axis.origin;
      count[i] = 1;
      weights[i * output_step] = 1 << pixels::kPrecisionBits;
    } else {
      filter(axis, output, i);
    }
  }

 private:
  HEADRACE_HD void filter(const Axis& axis, std::int32_t output, std::int32_t i) const {
    const pixels::Filter filter = axis.filter();
    const double center = filter.center(output);
    const std::int32_t begin = filter.begin(output), most = filter.taps();
    std::int32_t taps = filter.end(output) - begin;
    taps = taps < 0 ? 0 : taps > most ? most : taps;
    double sum = 0.0;
    for (std::int32_t k = 0; k < taps; ++k) sum += filter.value(k + begin, center);
    for (std::int32_t k = 0; k < taps; ++k)
      weights[i * output_step + k * tap_step] = pixels::fixed_point(filter.value(k + begin, center), sum);
    first[i] = begin + axis.origin;
    count[i] = taps;
  }
};

}  // namespace headrace::gpu

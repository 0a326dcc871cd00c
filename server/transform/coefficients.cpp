#include "server/transform/coefficients.h"

#include <algorithm>
#include <cmath>

namespace headrace::server::transform {
namespace {

std::int32_t truncated(double x) {
  return static_cast<std::int32_t>(x);
}

double bilinear(double x) {
  x = std::abs(x);
  return x < 1.0 ? 1.0 - x : 0.0;
}

double bicubic(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
  if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * a;
  return 0.0;
}

}  // namespace

Coefficients coefficients_of(const Axis& axis) {
  const bool cubic = axis.interpolation == Interpolation::kBicubic;
  const double scale = static_cast<double>(axis.in) / axis.out;
  const double filter_scale = std::max(scale, 1.0);
  const double support = (cubic ? 2.0 : 1.0) * filter_scale;
  const double step = 1.0 / filter_scale;

  Coefficients result;
  result.inputs = {axis.in, 0};
  result.taps = std::min(static_cast<std::int32_t>(std::ceil(support)) * 2 + 1, axis.in);
  const auto outputs = static_cast<std::size_t>(axis.outputs);
  result.first.resize(outputs);
  result.count.resize(outputs);
  result.weights.assign(outputs * static_cast<std::size_t>(result.taps), 0);
  std::vector<double> exact(static_cast<std::size_t>(result.taps));
  for (std::size_t i = 0; i < outputs; ++i) {
    const double center = (axis.from + static_cast<std::int32_t>(i) + 0.5) * scale;
    const auto begin = std::max(truncated(center - support + 0.5), 0);
    const auto end = std::min(truncated(center + support + 0.5), axis.in);
    const auto count = std::clamp(end - begin, 0, result.taps);
    double sum = 0.0;
    for (std::int32_t k = 0; k < count; ++k) {
      const double at = (k + begin - center + 0.5) * step;
      exact[static_cast<std::size_t>(k)] = cubic ? bicubic(at) : bilinear(at);
      sum += exact[static_cast<std::size_t>(k)];
    }
    auto* weights = result.weights.data() + i * static_cast<std::size_t>(result.taps);
    for (std::int32_t k = 0; k < count; ++k) {
      double weight = exact[static_cast<std::size_t>(k)];
      if (sum != 0.0) weight /= sum;
      weights[k] = static_cast<std::int32_t>((weight < 0 ? -0.5 : 0.5) + weight * (1 << kPrecisionBits));
    }
    result.first[i] = begin;
    result.count[i] = count;
    result.inputs = {std::min(result.inputs.begin, begin), std::max(result.inputs.end, begin + count)};
  }
  return result;
}

std::vector<std::int32_t> nearest_of(const Axis& axis) {
  // Pillow adds the step again and again; the rounding of that sum is part of the result.
  const double scale = static_cast<double>(axis.in) / axis.out;
  std::vector<std::int32_t> index;
  index.reserve(static_cast<std::size_t>(axis.outputs));
  double at = scale * 0.5;
  for (std::int32_t i = 0; i < axis.from + axis.outputs; ++i, at += scale) {
    if (i < axis.from) continue;
    const auto nearest = static_cast<std::int32_t>(at);
    index.push_back(nearest < axis.in ? nearest : -1);  // -1: Pillow leaves black
  }
  return index;
}

std::shared_ptr<const Coefficients> CoefficientCache::get(const Axis& axis) {
  const auto hash = static_cast<std::size_t>(axis.in) + static_cast<std::size_t>(axis.from) * 7 +
                    static_cast<std::size_t>(axis.out) * 31;
  auto& entry = entries_[hash % kEntries];
  if (entry.table && entry.axis == axis) return entry.table;
  auto table = std::make_shared<const Coefficients>(coefficients_of(axis));
  if (table->weights.size() <= kLargestKept) entry = Entry{axis, table};
  return table;
}

}  // namespace headrace::server::transform

#include "server/transform/kernels/coefficients.h"

#include <algorithm>

namespace headrace::server::transform {

Coefficients coefficients_of(const Axis& axis) {
  const Filter filter(axis.in, axis.out, axis.interpolation == Interpolation::kBicubic);
  Coefficients result;
  result.inputs = {axis.in, 0};
  result.taps = filter.taps();
  const auto outputs = static_cast<std::size_t>(axis.outputs);
  result.first.resize(outputs);
  result.count.resize(outputs);
  result.weights.assign(outputs * static_cast<std::size_t>(result.taps), 0);
  std::vector<double> exact(static_cast<std::size_t>(result.taps));
  for (std::size_t i = 0; i < outputs; ++i) {
    const auto output = axis.from + static_cast<std::int32_t>(i);
    const double center = filter.center(output);
    const auto begin = filter.begin(output);
    const auto count = std::clamp(filter.end(output) - begin, 0, result.taps);
    double sum = 0.0;
    for (std::int32_t k = 0; k < count; ++k) {
      exact[static_cast<std::size_t>(k)] = filter.value(k + begin, center);
      sum += exact[static_cast<std::size_t>(k)];
    }
    auto* weights = result.weights.data() + i * static_cast<std::size_t>(result.taps);
    for (std::int32_t k = 0; k < count; ++k)
      weights[k] = fixed_point(exact[static_cast<std::size_t>(k)], sum);
    result.first[i] = begin;
    result.count[i] = count;
    result.inputs = {std::min(result.inputs.begin, begin), std::max(result.inputs.end, begin + count)};
  }
  return result;
}

std::vector<std::int32_t> nearest_of(const Axis& axis) {
  std::vector<std::int32_t> index;
  index.reserve(static_cast<std::size_t>(axis.outputs));
  each_nearest(axis.in, axis.out, axis.from, axis.from + axis.outputs,
               [&](std::int32_t, std::int32_t nearest) { index.push_back(nearest); });
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

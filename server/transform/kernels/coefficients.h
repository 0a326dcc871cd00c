// Pillow's resampling coefficients: computed in double, normalized, then rounded to 22-bit fixed point.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "server/transform/kernels/image_types.h"
#include "server/transform/kernels/resampling.h"

namespace headrace::server::transform {

/// The inputs and weights of each output sample of one axis: output i = round(sum over k < count[i] of
/// weights[i * taps + k] * input[first[i] + k]), clipped to [0, 255].
struct Coefficients {
  std::int32_t taps = 0;  ///< most inputs per output
  std::vector<std::int32_t> first, count;
  std::vector<std::int32_t> weights;

  /// [begin, end)
  struct Range {
    std::int32_t begin = 0, end = 0;
  };
  Range inputs;  ///< all inputs that the outputs read
};

/// One axis of a resize from `in` to `out` samples, limited to outputs [from, from + outputs).
struct Axis {
  std::int32_t in = 0, out = 0, from = 0, outputs = 0;
  Interpolation interpolation = Interpolation::kBilinear;
  friend bool operator==(const Axis&, const Axis&) = default;
};

/// Bilinear or bicubic. `from` becomes index 0 of the result.
Coefficients coefficients_of(const Axis& axis);

/// Nearest neighbor by the rule of Pillow's affine scaling: the input index of each wanted output.
std::vector<std::int32_t> nearest_of(const Axis& axis);

/// Keeps tables of recent axes, because random crops repeat the same few hundred lengths. One per worker.
class CoefficientCache {
 public:
  std::shared_ptr<const Coefficients> get(const Axis& axis);

 private:
  struct Entry {
    Axis axis;
    std::shared_ptr<const Coefficients> table;
  };
  static constexpr std::size_t kEntries = 512;
  static constexpr std::size_t kLargestKept = 16'384;  // weights
  std::vector<Entry> entries_{kEntries};
};

}  // namespace headrace::server::transform

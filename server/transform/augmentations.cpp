#include "server/transform/augmentations.h"

#include <fmt/format.h>

#include <utility>

namespace headrace::server::transform {
namespace {

std::string outside(const char* name, const std::optional<Bounds>& bounds, double low, double high,
                    const char* range) {
  if (!bounds || (bounds->low >= low && bounds->low <= bounds->high && bounds->high <= high)) return {};
  return fmt::format("color_jitter: {} [{}, {}] must rise within {}", name, bounds->low, bounds->high, range);
}

// One bin has no step between bins: torchvision divides by zero.
std::string wrong_bins(const char* name, std::int32_t bins) {
  return bins >= 2 && bins <= 1000
             ? ""
             : fmt::format("{}: num_magnitude_bins {} must be between 2 and 1000", name, bins);
}

}  // namespace

std::string wrong_with(const ColorJitter& t) {
  constexpr double kLargest = 1e6;
  for (const auto& [name, bounds] :
       {std::pair{"brightness", &t.brightness}, {"contrast", &t.contrast}, {"saturation", &t.saturation}})
    if (auto wrong = outside(name, *bounds, 0, kLargest, "[0, 1000000]"); !wrong.empty()) return wrong;
  return outside("hue", t.hue, -0.5, 0.5, "[-0.5, 0.5]");
}

std::string wrong_with(const RandAugment& t) {
  if (t.num_ops < 0 || t.num_ops > 16)
    return fmt::format("rand_augment: num_ops {} must be between 0 and 16", t.num_ops);
  if (auto wrong = wrong_bins("rand_augment", t.num_magnitude_bins); !wrong.empty()) return wrong;
  return t.magnitude >= 0 && t.magnitude < t.num_magnitude_bins
             ? ""
             : fmt::format(
                   "rand_augment: magnitude {} must be between 0 and {}, one less than num_magnitude_bins",
                   t.magnitude, t.num_magnitude_bins - 1);
}

std::string wrong_with(const TrivialAugmentWide& t) {
  return wrong_bins("trivial_augment_wide", t.num_magnitude_bins);
}

}  // namespace headrace::server::transform

#include "server/transform/augmentations.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

namespace headrace::server::transform {
namespace {

constexpr std::int32_t kLargestKernel = 255;

std::string outside(const char* name, const std::optional<Bounds>& bounds, double low, double high,
                    const char* range) {
  if (!bounds || (bounds->low >= low && bounds->low <= bounds->high && bounds->high <= high)) return {};
  return fmt::format("color_jitter: {} [{}, {}] must rise within {}", name, bounds->low, bounds->high, range);
}

std::string wrong_probability(const char* name, double p) {
  return p >= 0 && p <= 1 ? "" : fmt::format("{}: p {} must be within [0, 1]", name, p);
}

// One bin has no step between bins: torchvision divides by zero.
std::string wrong_bins(const char* name, std::int32_t bins) {
  return bins >= 2 && bins <= 1000
             ? ""
             : fmt::format("{}: num_magnitude_bins {} must be between 2 and 1000", name, bins);
}

}  // namespace

std::string wrong_with(const ColorJitter& t) {
  if (auto wrong = wrong_probability("color_jitter", t.p); !wrong.empty()) return wrong;
  if (!t.brightness && !t.contrast && !t.saturation && !t.hue)
    return "color_jitter: changes nothing; give brightness, contrast, saturation or hue";
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

std::string wrong_with(const GaussianBlur& t) {
  if (auto wrong = wrong_probability("gaussian_blur", t.p); !wrong.empty()) return wrong;
  for (const std::int32_t side : {t.kernel_width, t.kernel_height})
    if (side < 1 || side % 2 == 0 || side > kLargestKernel)
      return fmt::format(
          "gaussian_blur: kernel_size [{}, {}] (width, height): each must be odd, from 1 to {}",
          t.kernel_width, t.kernel_height, kLargestKernel);
  return t.sigma.low > 0 && t.sigma.low <= t.sigma.high && t.sigma.high <= 1000
             ? ""
             : fmt::format("gaussian_blur: sigma [{}, {}] must rise within (0, 1000]", t.sigma.low,
                           t.sigma.high);
}

std::string wrong_with(const RandomErasing& t, DType dtype, std::size_t channels) {
  if (auto text = wrong_probability("random_erasing", t.p); !text.empty()) return text;
  if (!(t.scale_min >= 0 && t.scale_min <= t.scale_max && t.scale_max <= 1))
    return fmt::format("random_erasing: scale [{}, {}] must rise within [0, 1]", t.scale_min, t.scale_max);
  if (!(t.ratio_min >= 0.001 && t.ratio_min <= t.ratio_max && t.ratio_max <= 1000))
    return fmt::format("random_erasing: ratio [{}, {}] must rise within [0.001, 1000]", t.ratio_min,
                       t.ratio_max);
  if (t.random)
    return dtype == DType::kUInt8
               ? "random_erasing: value random needs a float output: uint8 holds no negative numbers"
               : "";
  if (t.value.size() != 1 && t.value.size() != channels)
    return fmt::format("random_erasing: {} values for {} channels: give one, or one per channel",
                       t.value.size(), channels);
  for (const double value : t.value) {
    if (!std::isfinite(static_cast<float>(value)))
      return fmt::format("random_erasing: value {} is not a finite number", value);
    if (dtype == DType::kUInt8 && !(value >= 0 && value <= 255 && value == std::floor(value)))
      return fmt::format("random_erasing: value {}: uint8 output holds whole numbers from 0 to 255", value);
  }
  return {};
}

}  // namespace headrace::server::transform

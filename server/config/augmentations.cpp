#include "server/config/augmentations.h"

#include <algorithm>

namespace headrace::server::config {
namespace {

using nlohmann::json;
using namespace transform;

json pair(const Bounds& bounds) {
  return json::array({bounds.low, bounds.high});
}

/// torchvision's rule: a number is how far from `center`; what cannot change anything is left out.
std::optional<Bounds> jitter(const json& arguments, const char* key, double center) {
  if (!arguments.contains(key)) return {};
  const json& value = arguments[key];
  Bounds out;
  if (value.is_array()) {
    out = {value[0].get<double>(), value[1].get<double>()};
  } else {
    const auto by = value.get<double>();
    out = {center - by, center + by};
    if (center > 0) out.low = std::max(out.low, 0.0);
  }
  if (out.low == center && out.high == center) return {};
  return out;
}

Warp warp(const json& arguments) {
  Warp out;
  out.bilinear = arguments.value("interpolation", std::string()) == "bilinear";
  if (arguments.contains("fill")) {
    const json& fill = arguments["fill"];
    for (std::size_t c = 0; c < 3; ++c)
      out.fill[c] = fill.is_array() ? fill[c].get<std::uint8_t>() : fill.get<std::uint8_t>();
  }
  return out;
}

json add_warp(json arguments, const Warp& warp) {
  arguments["interpolation"] = warp.bilinear ? "bilinear" : "nearest";
  arguments["fill"] = warp.fill;
  return arguments;
}

}  // namespace

std::optional<Transform> read_augmentation(const std::string& name, const json& arguments) {
  if (name == "color_jitter")
    return ColorJitter{.brightness = jitter(arguments, "brightness", 1),
                       .contrast = jitter(arguments, "contrast", 1),
                       .saturation = jitter(arguments, "saturation", 1),
                       .hue = jitter(arguments, "hue", 0)};
  if (name == "random_grayscale") return RandomGrayscale{arguments.value("p", RandomGrayscale{}.p)};
  if (name == "rand_augment") {
    RandAugment out{.warp = warp(arguments)};
    out.num_ops = arguments.value("num_ops", out.num_ops);
    out.magnitude = arguments.value("magnitude", out.magnitude);
    out.num_magnitude_bins = arguments.value("num_magnitude_bins", out.num_magnitude_bins);
    return out;
  }
  if (name == "trivial_augment_wide") {
    TrivialAugmentWide out{.warp = warp(arguments)};
    out.num_magnitude_bins = arguments.value("num_magnitude_bins", out.num_magnitude_bins);
    return out;
  }
  return {};
}

json canonical(const ColorJitter& t) {
  json arguments = json::object();
  for (const auto& [key, bounds] : {std::pair{"brightness", &t.brightness},
                                    {"contrast", &t.contrast},
                                    {"saturation", &t.saturation},
                                    {"hue", &t.hue}})
    if (*bounds) arguments[key] = pair(**bounds);
  return {{"color_jitter", std::move(arguments)}};
}

json canonical(const RandomGrayscale& t) {
  return {{"random_grayscale", {{"p", t.p}}}};
}

json canonical(const RandAugment& t) {
  return {{"rand_augment", add_warp({{"num_ops", t.num_ops},
                                     {"magnitude", t.magnitude},
                                     {"num_magnitude_bins", t.num_magnitude_bins}},
                                    t.warp)}};
}

json canonical(const TrivialAugmentWide& t) {
  return {{"trivial_augment_wide", add_warp({{"num_magnitude_bins", t.num_magnitude_bins}}, t.warp)}};
}

}  // namespace headrace::server::config

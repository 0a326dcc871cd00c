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

GaussianBlur gaussian_blur(const json& arguments) {
  GaussianBlur out;
  const json& size = arguments["kernel_size"];
  out.kernel_width = (size.is_array() ? size[0] : size).get<std::int32_t>();
  out.kernel_height = (size.is_array() ? size[1] : size).get<std::int32_t>();
  if (arguments.contains("sigma")) {
    const json& sigma = arguments["sigma"];
    out.sigma = sigma.is_array() ? Bounds{sigma[0].get<double>(), sigma[1].get<double>()}
                                 : Bounds{sigma.get<double>(), sigma.get<double>()};
  }
  out.p = arguments.value("p", out.p);
  return out;
}

RandomErasing random_erasing(const json& arguments) {
  RandomErasing out;
  out.p = arguments.value("p", out.p);
  const auto range = [&](const char* key, double& low, double& high) {
    if (!arguments.contains(key)) return;
    low = arguments[key][0].get<double>();
    high = arguments[key][1].get<double>();
  };
  range("scale", out.scale_min, out.scale_max);
  range("ratio", out.ratio_min, out.ratio_max);
  if (!arguments.contains("value")) return out;
  const json& value = arguments["value"];
  out.random = value.is_string();
  if (value.is_number()) out.value = {value.get<double>()};
  if (value.is_array()) out.value = value.get<std::vector<double>>();
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
                       .hue = jitter(arguments, "hue", 0),
                       .p = arguments.value("p", 1.0)};
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
  if (name == "gaussian_blur") return gaussian_blur(arguments);
  if (name == "random_erasing") return random_erasing(arguments);
  return {};
}

json canonical(const ColorJitter& t) {
  json arguments = {{"p", t.p}};
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

json canonical(const GaussianBlur& t) {
  return {{"gaussian_blur",
           {{"kernel_size", json::array({t.kernel_width, t.kernel_height})},
            {"sigma", pair(t.sigma)},
            {"p", t.p}}}};
}

json canonical(const RandomErasing& t) {
  return {{"random_erasing",
           {{"p", t.p},
            {"scale", json::array({t.scale_min, t.scale_max})},
            {"ratio", json::array({t.ratio_min, t.ratio_max})},
            {"value", t.random ? json("random") : json(t.value)}}}};
}

}  // namespace headrace::server::config

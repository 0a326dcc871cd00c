// v2.ColorJitter(brightness, contrast, saturation, hue) within v2.RandomApply(p). Factors and their order are
// drawn uniformly.
#include <algorithm>
#include <array>
#include <utility>

#include "server/transform/ops/arguments.h"
#include "server/transform/ops/op_type.h"

namespace headrace::server::transform {
namespace {

using Jitter = std::optional<Bounds>;  ///< none: the adjustment is not applied

/// A number is the distance from `center` (factors are never below 0); [low, high] is used unchanged. Empty
/// if it cannot change anything.
described::Codec<Jitter> jitter(double center, const described::Codec<double>& number,
                                const described::Codec<Bounds>& bounds) {
  return {{{"anyOf", {number.schema, bounds.schema}}},
          [center, bounds](const described::Json& value, const described::Reading& reading) -> Jitter {
            Bounds out;
            if (value.is_array()) {
              out = bounds.read(value, reading);
            } else {
              const auto by = value.get<double>();
              out = {center - by, center + by};
              if (center > 0) out.low = std::max(out.low, 0.0);
            }
            if (out.low == center && out.high == center) return {};
            return out;
          },
          [bounds](const Jitter& value) { return value ? bounds.write(*value) : described::Json(); }};
}

struct ColorJitter : DescribedOp<ColorJitter> {
  Jitter brightness, contrast, saturation;
  Jitter hue;
  double p = 1;

  static described::Description<ColorJitter> description() {
    using Self = ColorJitter;
    constexpr double kLargest = 1e6;
    const auto factor = described::named(
        "jitter", jitter(1, described::number(0), range(0, kLargest, "[smallest, largest]")));
    const auto turns =
        jitter(0, described::number(0, 0.5), range(-0.5, 0.5, "[smallest, largest], from -0.5 to 0.5"));
    return {"color_jitter",
            "Draws a factor for each property uniformly, and the order of the properties. A number x stands "
            "for the range 1 - x to 1 + x (hue: -x to x).",
            {adjustment("brightness", &Self::brightness, factor, ""),
             adjustment("contrast", &Self::contrast, factor, ""),
             adjustment("saturation", &Self::saturation, factor, ""),
             adjustment("hue", &Self::hue, turns, "Fraction of a turn of the color circle."),
             described::key("p", &Self::p, fraction(),
                            "The probability of applying it, as in torchvision's RandomApply.")}};
  }

  [[nodiscard]] Traits traits() const override { return {}; }
  std::string check(ChainState&) const override {
    if (!brightness && !contrast && !saturation && !hue)
      return "color_jitter: changes nothing; give brightness, contrast, saturation or hue";
    for (const auto& [name, bounds] :
         {std::pair{"brightness", &brightness}, {"contrast", &contrast}, {"saturation", &saturation}})
      if (*bounds)
        if (auto wrong = check_range("color_jitter", name, **bounds, 0, 1e6, "[0, 1000000]"); !wrong.empty())
          return wrong;
    return hue ? check_range("color_jitter", "hue", *hue, -0.5, 0.5, "[-0.5, 0.5]") : "";
  }
  decode::Decoded<void> draw(DrawKey key, decode::ImageSize&, Step& step) const override {
    auto random = draws_of(key, step);
    const std::array<std::pair<PixelOp::Kind, const Jitter*>, 4> all{
        {{PixelOp::Kind::kBrightness, &brightness},
         {PixelOp::Kind::kContrast, &contrast},
         {PixelOp::Kind::kSaturation, &saturation},
         {PixelOp::Kind::kHue, &hue}}};
    std::array<float, 4> factors{};
    for (std::size_t i = 0; i < all.size(); ++i) {
      const Bounds bounds = all[i].second->value_or(Bounds{});
      factors[i] = static_cast<float>(random.uniform(bounds.low, bounds.high));
    }
    std::array<std::size_t, 4> order{0, 1, 2, 3};
    for (std::uint32_t left = 4; left > 1; --left) std::swap(order[left - 1], order[random.below(left)]);
    for (const std::size_t i : order)
      if (*all[i].second)
        step.ops.push_back({.kind = all[i].first, .factor = static_cast<double>(factors[i])});
    if (!random.bernoulli(p)) step.ops.clear();
    if (!step.ops.empty()) step.kind = Step::Kind::kPixels;
    return {};
  }
  [[nodiscard]] nlohmann::json describe(const Step& step) const override {
    nlohmann::json out = {{"op", "color_jitter"}, {"order", nlohmann::json::array()}};
    for (const PixelOp& op : step.ops) {
      out["order"].push_back(name_of(op.kind));
      out[name_of(op.kind)] = op.factor;
    }
    return out;
  }
  [[nodiscard]] std::optional<DeviceShare> device_share() const override {
    const auto one = [](const Jitter& bounds) { return bounds ? 1 : 0; };
    return DeviceShare{.steps = one(brightness) + one(contrast) + one(saturation) + one(hue),
                       .contrasts = one(contrast)};
  }

 private:
  /// Omitted from the canonical form if it is empty.
  static described::Key<ColorJitter> adjustment(const char* name, Jitter ColorJitter::*member,
                                                const described::Codec<Jitter>& codec,
                                                const char* documentation) {
    auto out = described::required(name, member, codec, documentation);
    out.required = false;
    out.write = [write = std::move(out.write), member](const ColorJitter& from, described::Json& map) {
      if (from.*member) write(from, map);
    };
    return out;
  }
  static const char* name_of(PixelOp::Kind kind) {
    switch (kind) {
      case PixelOp::Kind::kBrightness:
        return "brightness";
      case PixelOp::Kind::kContrast:
        return "contrast";
      case PixelOp::Kind::kSaturation:
        return "saturation";
      default:
        return "hue";
    }
  }
};

}  // namespace

namespace ops {
OpType color_jitter() {
  auto out = op_type<ColorJitter>();
  out.schema["minProperties"] = 1;
  out.schema["x-expected"] = "brightness, contrast, saturation or hue, one at least";
  return out;
}
}  // namespace ops

}  // namespace headrace::server::transform

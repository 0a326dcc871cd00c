#include "server/transform/draw_augmentations.h"

#include <array>
#include <nlohmann/json.hpp>
#include <utility>

namespace headrace::server::transform {
namespace {

using nlohmann::json;
using sampler::Draws;

const char* name_of(PixelOp::Kind kind) {
  switch (kind) {
    case PixelOp::Kind::kBrightness:
      return "brightness";
    case PixelOp::Kind::kContrast:
      return "contrast";
    case PixelOp::Kind::kSaturation:
      return "saturation";
    case PixelOp::Kind::kHue:
      return "hue";
    case PixelOp::Kind::kGrayscale:
      break;
  }
  return "grayscale";
}

}  // namespace

void draw(const ColorJitter& t, Draws random, Step& step) {
  std::array<std::pair<PixelOp::Kind, const std::optional<Bounds>*>, 4> all{
      {{PixelOp::Kind::kBrightness, &t.brightness},
       {PixelOp::Kind::kContrast, &t.contrast},
       {PixelOp::Kind::kSaturation, &t.saturation},
       {PixelOp::Kind::kHue, &t.hue}}};
  std::array<float, 4> factors{};
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Bounds bounds = all[i].second->value_or(Bounds{});
    factors[i] = static_cast<float>(random.uniform(bounds.low, bounds.high));
  }
  std::array<std::size_t, 4> order{0, 1, 2, 3};
  for (std::uint32_t left = 4; left > 1; --left) std::swap(order[left - 1], order[random.below(left)]);
  for (const std::size_t i : order)
    if (*all[i].second) step.ops.push_back({all[i].first, factors[i]});
  if (!step.ops.empty()) step.kind = Step::Kind::kPixels;
}

void draw(const RandomGrayscale& t, Draws random, Step& step) {
  if (!random.bernoulli(t.p)) return;
  step.kind = Step::Kind::kPixels;
  step.ops.push_back({PixelOp::Kind::kGrayscale});
}

json describe(const ColorJitter&, const Step& step) {
  json out = {{"op", "color_jitter"}, {"order", json::array()}};
  for (const PixelOp& op : step.ops) {
    out["order"].push_back(name_of(op.kind));
    out[name_of(op.kind)] = op.factor;
  }
  return out;
}

json describe(const RandomGrayscale&, const Step& step) {
  return {{"op", "random_grayscale"}, {"applied", !step.ops.empty()}};
}

}  // namespace headrace::server::transform

#include "server/transform/draw_augmentations.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "server/transform/exact_math.h"

namespace headrace::server::transform {
namespace {

using decode::ImageSize;
using nlohmann::json;
using sampler::Draws;

// torchvision's _AUGMENTATION_SPACE, in its order.
struct Augmentation {
  PixelOp::Kind kind;
  const char* name;
  bool is_signed = false;
};
constexpr std::array<Augmentation, 14> kSpace{{{PixelOp::Kind::kIdentity, "Identity"},
                                               {PixelOp::Kind::kShearX, "ShearX", true},
                                               {PixelOp::Kind::kShearY, "ShearY", true},
                                               {PixelOp::Kind::kTranslateX, "TranslateX", true},
                                               {PixelOp::Kind::kTranslateY, "TranslateY", true},
                                               {PixelOp::Kind::kRotate, "Rotate", true},
                                               {PixelOp::Kind::kBrightness, "Brightness", true},
                                               {PixelOp::Kind::kSaturation, "Color", true},
                                               {PixelOp::Kind::kContrast, "Contrast", true},
                                               {PixelOp::Kind::kSharpness, "Sharpness", true},
                                               {PixelOp::Kind::kPosterize, "Posterize"},
                                               {PixelOp::Kind::kSolarize, "Solarize"},
                                               {PixelOp::Kind::kAutoContrast, "AutoContrast"},
                                               {PixelOp::Kind::kEqualize, "Equalize"}}};

/// What differs between torchvision's two lists: the largest magnitudes.
struct Strength {
  double shear, translate_x, translate_y, rotate, enhance;
  int posterize;
};

Strength of_rand_augment(ImageSize size) {
  return {0.3, 150.0 / 331.0 * size.width, 150.0 / 331.0 * size.height, 30.0, 0.9, 4};
}
constexpr Strength kWide{0.99, 32.0, 32.0, 135.0, 0.99, 6};

/// torch.linspace(from, to, bins)[bin]: single precision, from the nearer end, each value rounded once.
double linspace(double from, double to, std::int32_t bins, std::int32_t bin) {
  const auto first = static_cast<float>(from), last = static_cast<float>(to);
  const auto step = static_cast<double>((last - first) / static_cast<float>(bins - 1));
  return static_cast<double>(bin < bins / 2
                                 ? static_cast<float>(static_cast<double>(first) + step * bin)
                                 : static_cast<float>(static_cast<double>(last) - step * (bins - 1 - bin)));
}

double magnitude_of(PixelOp::Kind kind, const Strength& most, std::int32_t bins, std::int32_t bin) {
  const auto up_to = [&](double end) { return linspace(0, end, bins, bin); };
  switch (kind) {
    case PixelOp::Kind::kShearX:
    case PixelOp::Kind::kShearY:
      return up_to(most.shear);
    case PixelOp::Kind::kTranslateX:
      return up_to(most.translate_x);
    case PixelOp::Kind::kTranslateY:
      return up_to(most.translate_y);
    case PixelOp::Kind::kRotate:
      return up_to(most.rotate);
    case PixelOp::Kind::kBrightness:
    case PixelOp::Kind::kSaturation:
    case PixelOp::Kind::kContrast:
    case PixelOp::Kind::kSharpness:
      return up_to(most.enhance);
    case PixelOp::Kind::kPosterize: {
      const auto per_bit = static_cast<float>(static_cast<double>(bins - 1) / most.posterize);
      return round_half_even(static_cast<double>(8.0F - static_cast<float>(bin) / per_bit));
    }
    case PixelOp::Kind::kSolarize:
      return linspace(1, 0, bins, bin);
    default:
      return 0;
  }
}

double factor_of(PixelOp::Kind kind, double magnitude) {
  switch (kind) {
    case PixelOp::Kind::kTranslateX:
    case PixelOp::Kind::kTranslateY:
      return std::trunc(magnitude);
    case PixelOp::Kind::kBrightness:
    case PixelOp::Kind::kSaturation:
    case PixelOp::Kind::kContrast:
    case PixelOp::Kind::kSharpness:
      return 1.0 + magnitude;
    case PixelOp::Kind::kSolarize:
      return 255.0 * magnitude;
    default:
      return magnitude;
  }
}

/// No bin: one is drawn.
void augment(Draws& random, const Strength& most, std::int32_t bins, std::optional<std::int32_t> bin,
             const Warp& warp, Step& step) {
  const Augmentation& drawn = kSpace[random.below(kSpace.size())];
  const auto any = static_cast<std::int32_t>(random.below(static_cast<std::uint32_t>(bins)));
  const bool negative = random.bernoulli(0.5);
  PixelOp op{.kind = drawn.kind, .warp = warp};
  op.magnitude = magnitude_of(drawn.kind, most, bins, bin.value_or(any));
  if (drawn.is_signed && negative) op.magnitude = -op.magnitude;
  op.factor = factor_of(drawn.kind, op.magnitude);
  step.kind = Step::Kind::kPixels;
  step.ops.push_back(op);
}

const char* name_of(PixelOp::Kind kind) {
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

json describe_list(const char* name, const Step& step) {
  json ops = json::array();
  for (const PixelOp& op : step.ops) {
    const auto* found = std::find_if(kSpace.begin(), kSpace.end(),
                                     [&](const Augmentation& one) { return one.kind == op.kind; });
    ops.push_back({{"name", found->name}, {"magnitude", op.magnitude}});
  }
  return {{"op", name}, {"ops", std::move(ops)}};
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
    if (*all[i].second) step.ops.push_back({.kind = all[i].first, .factor = static_cast<double>(factors[i])});
  if (!random.bernoulli(t.p)) step.ops.clear();
  if (!step.ops.empty()) step.kind = Step::Kind::kPixels;
}

void draw(const RandomGrayscale& t, Draws random, Step& step) {
  if (!random.bernoulli(t.p)) return;
  step.kind = Step::Kind::kPixels;
  step.ops.push_back({.kind = PixelOp::Kind::kGrayscale});
}

void draw(const RandAugment& t, ImageSize size, Draws random, Step& step) {
  for (std::int32_t i = 0; i < t.num_ops; ++i)
    augment(random, of_rand_augment(size), t.num_magnitude_bins, t.magnitude, t.warp, step);
}

void draw(const TrivialAugmentWide& t, ImageSize, Draws random, Step& step) {
  augment(random, kWide, t.num_magnitude_bins, {}, t.warp, step);
}

void draw(const GaussianBlur& t, Draws random, Step& step) {
  const auto sigma = static_cast<float>(random.uniform(t.sigma.low, t.sigma.high));
  if (!random.bernoulli(t.p)) return;
  step.kind = Step::Kind::kPixels;
  step.ops.push_back({.kind = PixelOp::Kind::kBlur,
                      .factor = static_cast<double>(sigma),
                      .kernel_width = t.kernel_width,
                      .kernel_height = t.kernel_height});
}

void draw(const RandomErasing& t, ImageSize size, Draws random, Step& step) {
  if (!random.bernoulli(t.p)) return;
  const double area = static_cast<double>(size.width) * size.height;
  const double log_min = exact_log(t.ratio_min), log_max = exact_log(t.ratio_max);
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double target = area * random.uniform(t.scale_min, t.scale_max);
    const double aspect = exact_exp(random.uniform(log_min, log_max));
    const double height = round_half_even(std::sqrt(target * aspect));
    const double width = round_half_even(std::sqrt(target / aspect));
    if (!(height < size.height && width < size.width)) continue;
    step.kind = Step::Kind::kErase;
    step.crop.height = static_cast<std::int32_t>(height);
    step.crop.width = static_cast<std::int32_t>(width);
    const auto within = [&](std::int32_t room) {
      return static_cast<std::int32_t>(random.below(static_cast<std::uint32_t>(room) + 1));
    };
    step.crop.top = within(size.height - step.crop.height);
    step.crop.left = within(size.width - step.crop.width);
    const std::uint64_t high = random.next_u32();
    step.noise = high << 32 | random.next_u32();
    return;
  }
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

json describe(const RandAugment&, const Step& step) {
  return describe_list("rand_augment", step);
}

json describe(const TrivialAugmentWide&, const Step& step) {
  return describe_list("trivial_augment_wide", step);
}

json describe(const GaussianBlur&, const Step& step) {
  json out = {{"op", "gaussian_blur"}, {"applied", !step.ops.empty()}};
  if (!step.ops.empty()) out["sigma"] = step.ops[0].factor;
  return out;
}

json describe(const RandomErasing&, const Step& step) {
  const bool applied = step.kind == Step::Kind::kErase;
  json out = {{"op", "random_erasing"}, {"applied", applied}};
  if (applied)
    out.update({{"top", step.crop.top},
                {"left", step.crop.left},
                {"height", step.crop.height},
                {"width", step.crop.width},
                {"noise", step.noise}});
  return out;
}

}  // namespace headrace::server::transform

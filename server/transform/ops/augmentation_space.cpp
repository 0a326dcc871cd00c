#include "server/transform/ops/augmentation_space.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "server/transform/kernels/exact_math.h"
#include "server/transform/ops/arguments.h"

namespace headrace::server::transform {
namespace {

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

/// torch.linspace(from, to, bins)[bin]: single precision, counted from the nearer end, each value rounded
/// once.
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

}  // namespace

void draw_augmentation(sampler::Draws& random, const Strength& most, std::int32_t bins,
                       std::optional<std::int32_t> bin, const Warp& warp, Step& step) {
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

nlohmann::json describe_augmentations(std::string_view name, const Step& step) {
  nlohmann::json ops = nlohmann::json::array();
  for (const PixelOp& op : step.ops) {
    const auto* found = std::find_if(kSpace.begin(), kSpace.end(),
                                     [&](const Augmentation& one) { return one.kind == op.kind; });
    ops.push_back({{"name", found->name}, {"magnitude", op.magnitude}});
  }
  return {{"op", name}, {"ops", std::move(ops)}};
}

std::vector<described::Key<SpaceArguments>> SpaceArguments::keys() {
  using Self = SpaceArguments;
  // With one bin, torchvision divides by zero.
  const auto bins = described::named("magnitude_bins", described::integer<std::int32_t>(2, 1000));
  return {described::key("num_magnitude_bins", &Self::num_magnitude_bins, bins),
          described::key("interpolation", &Self::how, warp_interpolation()),
          described::key("fill", &Self::color, fill(), "Color of pixels from outside the image.")};
}

}  // namespace headrace::server::transform

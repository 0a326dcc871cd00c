// v2.TrivialAugmentWide(num_magnitude_bins, interpolation, fill). A mask has the operation if it is
// geometric, with the nearest pixel.
#include "server/transform/ops/arguments.h"
#include "server/transform/ops/augmentation_space.h"
#include "server/transform/ops/op_type.h"

namespace headrace::server::transform {
namespace {

struct TrivialAugmentWide : DescribedOp<TrivialAugmentWide> {
  std::int32_t num_magnitude_bins = 31;
  Interpolation how = Interpolation::kNearest;
  std::array<std::uint8_t, 3> color{};

  static described::Description<TrivialAugmentWide> description() {
    using Self = TrivialAugmentWide;
    return {"trivial_augment_wide",
            "One operation of torchvision's list, its magnitude drawn.",
            {described::key("num_magnitude_bins", &Self::num_magnitude_bins, magnitude_bins()),
             described::key("interpolation", &Self::how, warp_interpolation()),
             described::key("fill", &Self::color, fill(), "Color of what was outside of the image.")}};
  }

  [[nodiscard]] Traits traits() const override { return {.masks = true}; }
  decode::Decoded<void> draw(DrawKey key, decode::ImageSize&, Step& step) const override {
    auto random = draws_of(key, step);
    constexpr Strength kMost{0.99, 32.0, 32.0, 135.0, 0.99, 6};
    draw_augmentation(random, kMost, num_magnitude_bins, {}, {how == Interpolation::kBilinear, color}, step);
    return {};
  }
  [[nodiscard]] nlohmann::json describe(const Step& step) const override {
    return describe_augmentations("trivial_augment_wide", step);
  }
};

}  // namespace

namespace ops {
OpType trivial_augment_wide() {
  return op_type<TrivialAugmentWide>();
}
}  // namespace ops

}  // namespace headrace::server::transform

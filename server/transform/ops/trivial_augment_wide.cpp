// v2.TrivialAugmentWide(num_magnitude_bins, interpolation, fill). A mask has the operation if it is
// geometric, with the nearest pixel.
#include "server/transform/ops/arguments.h"
#include "server/transform/ops/augmentation_space.h"
#include "server/transform/ops/op_type.h"

namespace headrace::server::transform {
namespace {

struct TrivialAugmentWide : DescribedOp<TrivialAugmentWide> {
  SpaceArguments space;

  static described::Description<TrivialAugmentWide> description() {
    using Self = TrivialAugmentWide;
    described::Description<Self> out{
        "trivial_augment_wide",
        "Applies one random operation of torchvision's list, with a random magnitude.",
        {}};
    for (auto& key : SpaceArguments::keys())
      out.keys.push_back(described::within(&Self::space, std::move(key)));
    return out;
  }

  [[nodiscard]] Traits traits() const override { return {.masks = true}; }
  decode::Decoded<void> draw(DrawKey key, decode::ImageSize&, Step& step) const override {
    auto random = draws_of(key, step);
    constexpr Strength kMost{0.99, 32.0, 32.0, 135.0, 0.99, 6};
    draw_augmentation(random, kMost, space.num_magnitude_bins, {}, space.warp(), step);
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

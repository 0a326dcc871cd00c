// v2.RandAugment(num_ops, magnitude, num_magnitude_bins, interpolation, fill). A mask gets only the geometric
// operations that are drawn, with nearest-neighbor interpolation.
#include <fmt/format.h>

#include "server/transform/ops/arguments.h"
#include "server/transform/ops/augmentation_space.h"
#include "server/transform/ops/op_type.h"

namespace headrace::server::transform {
namespace {

struct RandAugment : DescribedOp<RandAugment> {
  std::int32_t num_ops = 2, magnitude = 9;
  SpaceArguments space;

  static described::Description<RandAugment> description() {
    using Self = RandAugment;
    described::Description<Self> out{
        "rand_augment",
        "Applies num_ops random operations of torchvision's list, all with the same magnitude. "
        "A mask gets only the geometric ones.",
        {described::key("num_ops", &Self::num_ops, described::integer<std::int32_t>(0, 16)),
         described::key("magnitude", &Self::magnitude, described::integer<std::int32_t>(0, 999))}};
    for (auto& key : SpaceArguments::keys())
      out.keys.push_back(described::within(&Self::space, std::move(key)));
    return out;
  }

  [[nodiscard]] Traits traits() const override { return {.masks = true}; }
  std::string check(ChainState&) const override {
    if (magnitude < space.num_magnitude_bins) return {};
    return fmt::format("rand_augment: magnitude: expected 0 to {} (num_magnitude_bins - 1), found {}",
                       space.num_magnitude_bins - 1, magnitude);
  }
  decode::Decoded<void> draw(DrawKey key, decode::ImageSize& size, Step& step) const override {
    auto random = draws_of(key, step);
    // The maxima of RandAugment._AUGMENTATION_SPACE in torchvision.
    const Strength largest{0.3, 150.0 / 331.0 * size.width, 150.0 / 331.0 * size.height, 30.0, 0.9, 4};
    for (std::int32_t i = 0; i < num_ops; ++i)
      draw_augmentation(random, largest, space.num_magnitude_bins, magnitude, space.warp(), step);
    return {};
  }
  [[nodiscard]] nlohmann::json describe(const Step& step) const override {
    return describe_augmentations("rand_augment", step);
  }
};

}  // namespace

namespace ops {
OpType rand_augment() {
  return op_type<RandAugment>();
}
}  // namespace ops

}  // namespace headrace::server::transform

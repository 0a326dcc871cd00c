// v2.RandomResizedCrop(size, scale, ratio, interpolation, antialias=True)
#include <algorithm>
#include <cmath>

#include "server/transform/kernels/exact_math.h"
#include "server/transform/ops/arguments.h"
#include "server/transform/ops/crop.h"
#include "server/transform/ops/op_type.h"

namespace headrace::server::transform {
namespace {

using decode::Decoded;
using decode::ImageSize;

struct RandomResizedCrop : DescribedOp<RandomResizedCrop> {
  Size to;
  Bounds scale{0.08, 1.0};
  Bounds ratio{3.0 / 4.0, 4.0 / 3.0};
  Interpolation how = Interpolation::kBilinear;

  static described::Description<RandomResizedCrop> description() {
    using Self = RandomResizedCrop;
    return {"random_resized_crop",
            "Cuts out a random part and resizes it.",
            {described::required("size", &Self::to, size()),
             described::key("scale", &Self::scale, range(), "Fraction of the image's area."),
             described::key("ratio", &Self::ratio, range(), "Width to height."),
             described::key("interpolation", &Self::how, interpolation())}};
  }

  [[nodiscard]] Traits traits() const override {
    return {.geometry = true, .crops = true, .resizes = true, .masks = true};
  }
  std::string check(ChainState& state) const override {
    state.size = to;
    if (auto wrong = check_range("random_resized_crop", "scale", scale, 0, 1, "(0, 1]", true); !wrong.empty())
      return wrong;
    return check_range("random_resized_crop", "ratio", ratio, 0.001, 1000, "[0.001, 1000]");
  }
  Decoded<void> draw(DrawKey key, ImageSize& size, Step& step) const override {
    auto random = draws_of(key, step);
    if (!draw_crop(random, size, step.crop)) step.crop = central_crop(size);
    return resize_to(to.height, to.width, how, size, step);
  }
  [[nodiscard]] std::string resident_obstacle(std::int32_t) const override {
    return "with `residence: gpu` the device cannot resize: use `device: gpu` instead, with which the server "
           "computes "
           "this transform, or a resize before all random transforms and random_crop";
  }
  [[nodiscard]] nlohmann::json describe(const Step& step) const override {
    return describe_crop("random_resized_crop", step);
  }

 private:
  bool draw_crop(sampler::Draws& random, ImageSize size, decode::Rect& crop) const {
    const double area = static_cast<double>(size.width) * size.height;
    const double log_min = exact_log(ratio.low), log_max = exact_log(ratio.high);
    const auto within = [&](std::int32_t room) {
      return static_cast<std::int32_t>(random.below(static_cast<std::uint32_t>(room) + 1));
    };
    for (int attempt = 0; attempt < 10; ++attempt) {
      const double target = area * random.uniform(scale.low, scale.high);
      const double aspect = exact_exp(random.uniform(log_min, log_max));
      const double width = round_half_even(std::sqrt(target * aspect));
      const double height = round_half_even(std::sqrt(target / aspect));
      if (!(width > 0 && width <= size.width && height > 0 && height <= size.height)) continue;
      crop.width = static_cast<std::int32_t>(width);
      crop.height = static_cast<std::int32_t>(height);
      crop.top = within(size.height - crop.height);
      crop.left = within(size.width - crop.width);
      return true;
    }
    return false;
  }
  [[nodiscard]] decode::Rect central_crop(ImageSize size) const {
    const double aspect = static_cast<double>(size.width) / size.height;
    decode::Rect crop{.width = size.width, .height = size.height};
    if (aspect < ratio.low) {
      crop.height = static_cast<std::int32_t>(round_half_even(size.width / ratio.low));
    } else if (aspect > ratio.high) {
      crop.width = static_cast<std::int32_t>(round_half_even(size.height * ratio.high));
    }
    // A degenerate range of ratios can round to zero or to one more than the image has.
    crop.width = std::clamp(crop.width, 1, size.width);
    crop.height = std::clamp(crop.height, 1, size.height);
    crop.top = (size.height - crop.height) / 2;
    crop.left = (size.width - crop.width) / 2;
    return crop;
  }
};

}  // namespace

namespace ops {
OpType random_resized_crop() {
  return op_type<RandomResizedCrop>();
}
}  // namespace ops

}  // namespace headrace::server::transform

// v2.CenterCrop(size). Smaller images are padded with black.
#include <algorithm>

#include "server/transform/kernels/exact_math.h"
#include "server/transform/ops/arguments.h"
#include "server/transform/ops/crop.h"
#include "server/transform/ops/op_type.h"

namespace headrace::server::transform {
namespace {

struct CenterCrop : DescribedOp<CenterCrop> {
  Size to;

  static described::Description<CenterCrop> description() {
    return {"center_crop",
            "Cuts out the center; smaller images are padded with black.",
            {described::required("size", &CenterCrop::to, size())}};
  }

  [[nodiscard]] Traits traits() const override {
    return {.draws = false, .geometry = true, .crops = true, .masks = true};
  }
  std::string check(ChainState& state) const override {
    state.size = to;
    return {};
  }
  decode::Decoded<void> draw(DrawKey, decode::ImageSize& size, Step& step) const override {
    const auto height = to.height, width = to.width;
    step.kind = Step::Kind::kCrop;
    step.left = width > size.width ? (width - size.width) / 2 : 0;
    step.right = width > size.width ? (width - size.width + 1) / 2 : 0;
    step.top = height > size.height ? (height - size.height) / 2 : 0;
    step.bottom = height > size.height ? (height - size.height + 1) / 2 : 0;
    const auto anchor = [](std::int32_t room) {
      return static_cast<std::int32_t>(round_half_even(room / 2.0));
    };
    step.crop = {anchor(std::max(0, size.width - width)), anchor(std::max(0, size.height - height)), width,
                 height};
    size = {width, height};
    return {};
  }
  [[nodiscard]] nlohmann::json describe(const Step& step) const override {
    return describe_padded_crop("center_crop", step);
  }
  [[nodiscard]] std::optional<Move> move(Size& size) const override {
    // As draw(): on each side, cuts half of the excess or pads by half of the difference.
    const auto first = [](std::int32_t have, std::int32_t want) {
      return want > have ? -((want - have) / 2)
                         : static_cast<std::int32_t>(round_half_even((have - want) / 2.0));
    };
    const Size before = std::exchange(size, to);
    return Move{.kind = Move::Kind::kCrop,
                .height = to.height,
                .width = to.width,
                .top = first(before.height, to.height),
                .left = first(before.width, to.width)};
  }
  [[nodiscard]] std::string resident_obstacle(std::int32_t) const override { return {}; }
};

}  // namespace

namespace ops {
OpType center_crop() {
  return op_type<CenterCrop>();
}
}  // namespace ops

}  // namespace headrace::server::transform

// Rotates square images by 0, 90, 180 or 270 degrees counter-clockwise, as numpy.rot90. Not in torchvision.
#include <fmt/format.h>

#include "server/transform/ops/op_type.h"

namespace headrace::server::transform {
namespace {

struct RandomRotate90 : DescribedOp<RandomRotate90> {
  static described::Description<RandomRotate90> description() {
    return {"random_rotate90", "Rotates square images by 0, 90, 180 or 270 degrees, as numpy.rot90.", {}};
  }

  [[nodiscard]] Traits traits() const override { return {.geometry = true, .masks = true}; }
  std::string check(ChainState& state) const override {
    if (!state.size || state.size->height == state.size->width) return {};
    const std::int32_t height = state.size->height, width = state.size->width;
    return fmt::format(
        "random_rotate90: turns [{}, {}] into [{}, {}] and so gives rows of two shapes: crop or resize to a "
        "square before it",
        height, width, width, height);
  }
  decode::Decoded<void> draw(DrawKey key, decode::ImageSize& size, Step& step) const override {
    step.turns = static_cast<std::int32_t>(draws_of(key, step).below(4));
    if (step.turns != 0) step.kind = Step::Kind::kTurn;
    if (step.turns % 2 == 1) std::swap(size.width, size.height);
    return {};
  }
  [[nodiscard]] nlohmann::json describe(const Step& step) const override {
    return {{"op", "random_rotate90"}, {"turns", step.turns}};
  }
  [[nodiscard]] std::optional<DeviceShare> device_share() const override { return DeviceShare{.moves = 1}; }
  [[nodiscard]] std::optional<Move> move(Size& size) const override {
    return Move{.kind = Move::Kind::kTurn, .height = size.height, .width = size.width};
  }
  [[nodiscard]] std::string resident_obstacle(std::int32_t) const override { return {}; }
};

}  // namespace

namespace ops {
OpType random_rotate90() {
  return op_type<RandomRotate90>();
}
}  // namespace ops

}  // namespace headrace::server::transform

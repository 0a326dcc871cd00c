// v2.RandomHorizontalFlip(p), v2.RandomVerticalFlip(p)
#include "server/transform/ops/arguments.h"
#include "server/transform/ops/op_type.h"

namespace headrace::server::transform {
namespace {

template <class Self, Step::Kind step_kind, Move::Kind move_kind>
struct Flip : DescribedOp<Self> {
  double p = 0.5;

  static described::Description<Self> describe_keys(const char* name, const char* documentation) {
    return {name, documentation, {described::key<Self, double>("p", &Self::p, fraction(), "Probability.")}};
  }

  [[nodiscard]] Op::Traits traits() const override { return {.geometry = true, .masks = true}; }
  decode::Decoded<void> draw(DrawKey key, decode::ImageSize&, Step& step) const override {
    if (draws_of(key, step).bernoulli(p)) step.kind = step_kind;
    return {};
  }
  [[nodiscard]] nlohmann::json describe(const Step& step) const override {
    return {{"op", this->name()}, {"applied", step.kind == step_kind}};
  }
  [[nodiscard]] std::optional<DeviceShare> device_share() const override { return DeviceShare{.moves = 1}; }
  [[nodiscard]] std::optional<Move> move(Size& size) const override {
    return Move{.kind = move_kind, .height = size.height, .width = size.width, .p = p};
  }
  [[nodiscard]] std::string resident_obstacle(std::int32_t) const override { return {}; }
};

struct RandomHorizontalFlip
    : Flip<RandomHorizontalFlip, Step::Kind::kHorizontalFlip, Move::Kind::kHorizontalFlip> {
  static described::Description<RandomHorizontalFlip> description() {
    return describe_keys("random_horizontal_flip", "Mirrors left to right.");
  }
};

struct RandomVerticalFlip : Flip<RandomVerticalFlip, Step::Kind::kVerticalFlip, Move::Kind::kVerticalFlip> {
  static described::Description<RandomVerticalFlip> description() {
    return describe_keys("random_vertical_flip", "Mirrors top to bottom.");
  }
};

}  // namespace

namespace ops {
OpType random_horizontal_flip() {
  return op_type<RandomHorizontalFlip>();
}
OpType random_vertical_flip() {
  return op_type<RandomVerticalFlip>();
}
}  // namespace ops

}  // namespace headrace::server::transform

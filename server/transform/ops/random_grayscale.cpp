// v2.RandomGrayscale(p)
#include "server/transform/ops/arguments.h"
#include "server/transform/ops/op_type.h"

namespace headrace::server::transform {
namespace {

struct RandomGrayscale : DescribedOp<RandomGrayscale> {
  double p = 0.1;

  static described::Description<RandomGrayscale> description() {
    return {"random_grayscale",
            "PIL's gray, in as many channels as before.",
            {described::key("p", &RandomGrayscale::p, fraction(), "Probability.")}};
  }

  [[nodiscard]] Traits traits() const override { return {}; }
  decode::Decoded<void> draw(DrawKey key, decode::ImageSize&, Step& step) const override {
    if (!draws_of(key, step).bernoulli(p)) return {};
    step.kind = Step::Kind::kPixels;
    step.ops.push_back({.kind = PixelOp::Kind::kGrayscale});
    return {};
  }
  [[nodiscard]] nlohmann::json describe(const Step& step) const override {
    return {{"op", "random_grayscale"}, {"applied", !step.ops.empty()}};
  }
  [[nodiscard]] std::optional<DeviceShare> device_share() const override { return DeviceShare{.steps = 1}; }
};

}  // namespace

namespace ops {
OpType random_grayscale() {
  return op_type<RandomGrayscale>();
}
}  // namespace ops

}  // namespace headrace::server::transform

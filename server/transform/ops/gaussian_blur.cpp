// v2.GaussianBlur(kernel_size, sigma) inside v2.RandomApply(p). Results differ from torchvision's by at most
// 1, because torchvision sums in a different order. Edges are reflected.
#include <fmt/format.h>

#include "server/transform/ops/arguments.h"
#include "server/transform/ops/op_type.h"

namespace headrace::server::transform {
namespace {

using decode::ImageSize;

struct GaussianBlur : DescribedOp<GaussianBlur> {
  Size kernel;
  Bounds sigma{0.1, 2.0};
  double p = 1;

  static described::Description<GaussianBlur> description() {
    using Self = GaussianBlur;
    return {"gaussian_blur",
            "Reflects the edges. Results differ from torchvision's by at most 1 of 255.",
            {described::required("kernel_size", &Self::kernel, kernel_size(),
                                 "Odd: [width, height], or one number for both."),
             described::key("sigma", &Self::sigma, sigmas(), "One number, or [smallest, largest]."),
             described::key("p", &Self::p, fraction(),
                            "The probability of applying it, as in torchvision's RandomApply.")}};
  }

  [[nodiscard]] Traits traits() const override { return {}; }
  std::string check(ChainState&) const override {
    for (const std::int32_t side : {kernel.width, kernel.height})
      if (side % 2 == 0)
        return fmt::format(
            "gaussian_blur: kernel_size [{}, {}] (width, height): each must be odd, from 1 to {}",
            kernel.width, kernel.height, kLargestKernel);
    return check_range("gaussian_blur", "sigma", sigma, 0, 1000, "(0, 1000]", true);
  }
  decode::Decoded<void> draw(DrawKey key, ImageSize& size, Step& step) const override {
    if (kernel.width / 2 >= size.width || kernel.height / 2 >= size.height)
      return decode::bad(BadReason::kUnsupported,
                         fmt::format("gaussian_blur: an image of {} x {} pixels is too small for a kernel of "
                                     "{} x {} (width x height): expected sides above half the kernel's",
                                     size.width, size.height, kernel.width, kernel.height));
    auto random = draws_of(key, step);
    const auto drawn = static_cast<float>(random.uniform(sigma.low, sigma.high));
    if (!random.bernoulli(p)) return {};
    step.kind = Step::Kind::kPixels;
    step.ops.push_back({.kind = PixelOp::Kind::kBlur,
                        .factor = static_cast<double>(drawn),
                        .kernel_width = kernel.width,
                        .kernel_height = kernel.height});
    return {};
  }
  [[nodiscard]] nlohmann::json describe(const Step& step) const override {
    nlohmann::json out = {{"op", "gaussian_blur"}, {"applied", !step.ops.empty()}};
    if (!step.ops.empty()) out["sigma"] = step.ops[0].factor;
    return out;
  }

 private:
  static constexpr std::int32_t kLargestKernel = 255;

  /// [width, height], unlike sizes: this is torchvision's order.
  static described::Codec<Size> kernel_size() {
    const auto one = described::named(
        "kernel_side", described::expecting("an odd number from 1 to 255",
                                            described::integer<std::int32_t>(1, kLargestKernel)));
    const auto both = described::expecting("[width, height]", described::list(one, 2, 2));
    return {{{"anyOf", {one.schema, both.schema}}},
            [](const described::Json& value, const described::Reading&) {
              return Size{.height = (value.is_array() ? value[1] : value).get<std::int32_t>(),
                          .width = (value.is_array() ? value[0] : value).get<std::int32_t>()};
            },
            [](const Size& size) {
              return described::Json::array({size.width, size.height});
            }};
  }
  static described::Codec<Bounds> sigmas() {
    const auto one = described::number_above(0, 1000);
    const auto both = range();
    return {{{"anyOf", {one.schema, both.schema}}},
            [both](const described::Json& value, const described::Reading& reading) {
              if (value.is_array()) return both.read(value, reading);
              return Bounds{value.get<double>(), value.get<double>()};
            },
            both.write};
  }
};

}  // namespace

namespace ops {
OpType gaussian_blur() {
  return op_type<GaussianBlur>();
}
}  // namespace ops

}  // namespace headrace::server::transform

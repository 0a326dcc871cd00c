// v2.Resize(size, interpolation, max_size, antialias=True)
#include <fmt/format.h>

#include <algorithm>

#include "server/transform/ops/arguments.h"
#include "server/transform/ops/op_type.h"

namespace headrace::server::transform {
namespace {

using decode::Decoded;
using decode::ImageSize;

/// The size of the result: both sides, or the shorter side with the longer one in proportion.
struct Target {
  std::int32_t shorter = 0;  ///< 0: `size`
  Size size;
};

described::Codec<Target> target() {
  auto out = described::converted<Target, Size>(
      size(),
      [](const Size& size) {
        return Target{0, size};
      },
      [](const Target& target) { return target.size; });
  out.read = [both = out.read](const described::Json& value, const described::Reading& reading) {
    return value.is_array() ? both(value, reading) : Target{value.get<std::int32_t>(), {}};
  };
  out.write = [both = out.write](const Target& target) {
    return target.shorter > 0 ? described::Json(target.shorter) : both(target);
  };
  return out;
}

struct Resize : DescribedOp<Resize> {
  Target to;
  std::int32_t max_size = 0;  ///< 0: none
  Interpolation how = Interpolation::kBilinear;

  static described::Description<Resize> description() {
    auto limit = described::key("max_size", &Resize::max_size, described::integer<std::int32_t>(1, 65'535),
                                "With one number for `size`: the longer side is at most this.");
    limit.schema.erase("default");
    return {"resize",
            "Resizes to [height, width], or the shorter side to one number.",
            {described::required("size", &Resize::to, target(), "A number: the shorter side."), limit,
             described::key("interpolation", &Resize::how, interpolation())}};
  }

  [[nodiscard]] Traits traits() const override {
    return {.draws = false, .geometry = true, .resizes = true, .masks = true};
  }
  std::string check(ChainState& state) const override {
    state.size = to.shorter > 0 ? std::nullopt : std::optional(to.size);
    if (max_size == 0) return {};
    if (to.shorter == 0)
      return "resize: max_size goes with one size (the shorter side), not with [height, width]";
    return max_size > to.shorter
               ? ""
               : fmt::format("resize: max_size {} must be above size {}", max_size, to.shorter);
  }
  Decoded<void> draw(DrawKey, ImageSize& size, Step& step) const override {
    if (to.shorter <= 0) return resize_to(to.size.height, to.size.width, how, size, step);
    const double shorter = std::min(size.width, size.height);
    const double longer = std::max(size.width, size.height);
    auto new_shorter = static_cast<std::int64_t>(to.shorter);
    auto new_longer = static_cast<std::int64_t>(to.shorter * longer / shorter);
    if (max_size > 0 && new_longer > max_size) {
      new_shorter = static_cast<std::int64_t>(
          static_cast<double>(max_size) * static_cast<double>(new_shorter) / static_cast<double>(new_longer));
      new_longer = max_size;
    }
    return size.width <= size.height ? resize_to(new_longer, new_shorter, how, size, step)
                                     : resize_to(new_shorter, new_longer, how, size, step);
  }
  [[nodiscard]] nlohmann::json describe(const Step& step) const override {
    return {{"op", "resize"}, {"height", step.size.height}, {"width", step.size.width}};
  }
  [[nodiscard]] std::string resident_obstacle(std::int32_t) const override {
    return "with `residence: gpu` the device cannot resize: put the resize before all random transforms";
  }
};

}  // namespace

namespace ops {
OpType resize() {
  return op_type<Resize>();
}
}  // namespace ops

}  // namespace headrace::server::transform

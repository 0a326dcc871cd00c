// v2.RandomCrop(size, padding, pad_if_needed, fill, padding_mode)
#include <fmt/format.h>

#include <algorithm>

#include "server/transform/ops/arguments.h"
#include "server/transform/ops/crop.h"
#include "server/transform/ops/op_type.h"

namespace headrace::server::transform {
namespace {

using decode::Decoded;
using decode::ImageSize;

struct Padding {
  std::int32_t left = 0, top = 0, right = 0, bottom = 0;
};

described::Codec<Padding> padding() {
  const auto one = described::integer<std::int32_t>(0, kLargestSide);
  const auto sides = [&](std::size_t count) {
    return described::expecting("[left and right, top and bottom] or [left, top, right, bottom]",
                                described::list(one, count, count))
        .schema;
  };
  return {{{"anyOf", {one.schema, sides(2), sides(4)}}},
          [](const described::Json& value, const described::Reading&) {
            const auto at = [&](std::size_t i) {
              return (value.is_array() ? value[i % value.size()] : value).get<std::int32_t>();
            };
            return Padding{at(0), at(1), at(2), at(3)};
          },
          [](const Padding& p) {
            return described::Json::array({p.left, p.top, p.right, p.bottom});
          }};
}

bool is_gray(const std::array<std::uint8_t, 3>& rgb) {
  return rgb[0] == rgb[1] && rgb[1] == rgb[2];
}

struct RandomCrop : DescribedOp<RandomCrop> {
  Size to;
  Padding around;
  bool pad_if_needed = false;
  std::array<std::uint8_t, 3> color{};
  PaddingMode mode = PaddingMode::kConstant;

  static described::Description<RandomCrop> description() {
    using Self = RandomCrop;
    const auto modes = described::word<PaddingMode>({{"constant", PaddingMode::kConstant},
                                                     {"edge", PaddingMode::kEdge},
                                                     {"reflect", PaddingMode::kReflect},
                                                     {"symmetric", PaddingMode::kSymmetric}});
    return {"random_crop",
            "Cuts out a random part of the given size.",
            {described::required("size", &Self::to, size()),
             described::key("padding", &Self::around, padding(),
                            "All sides, [left and right, top and bottom], or [left, top, right, bottom]."),
             described::key("pad_if_needed", &Self::pad_if_needed, described::boolean(),
                            "Pad images that are smaller than `size`."),
             described::key("fill", &Self::color, fill(), "Color of constant padding."),
             described::key("padding_mode", &Self::mode, modes)}};
  }

  [[nodiscard]] Traits traits() const override { return {.geometry = true, .crops = true, .masks = true}; }
  std::string check(ChainState& state) const override {
    const auto before = std::exchange(state.size, to);
    if (before && !pad_if_needed &&
        (before->height + around.top + around.bottom < to.height ||
         before->width + around.left + around.right < to.width))
      return fmt::format(
          "random_crop: size [{}, {}] is larger than the [{}, {}] image with its padding: set "
          "`pad_if_needed: true`, or put a resize before it",
          to.height, to.width, before->height, before->width);
    return {};
  }
  Decoded<void> draw(DrawKey key, ImageSize& size, Step& step) const override {
    const Padding all = padding_of({size.height, size.width});
    step.kind = Step::Kind::kCrop;
    step.left = all.left, step.top = all.top, step.right = all.right, step.bottom = all.bottom;
    const auto height = size.height + all.top + all.bottom, width = size.width + all.left + all.right;
    if (height < to.height || width < to.width)
      return decode::bad(BadReason::kUnsupported,
                         fmt::format("random_crop of {} x {} from {} x {} pixels (width x height): set its "
                                     "pad_if_needed, or put a resize before it",
                                     to.width, to.height, width, height));
    auto random = draws_of(key, step);
    step.mode = mode;
    step.fill = color;
    step.crop.height = to.height;
    step.crop.width = to.width;
    step.crop.top =
        static_cast<std::int32_t>(random.below(static_cast<std::uint32_t>(height - to.height) + 1));
    step.crop.left =
        static_cast<std::int32_t>(random.below(static_cast<std::uint32_t>(width - to.width) + 1));
    size = {to.width, to.height};
    return {};
  }
  [[nodiscard]] nlohmann::json describe(const Step& step) const override {
    return describe_padded_crop("random_crop", step);
  }
  [[nodiscard]] std::optional<Move> move(Size& size) const override {
    const Padding all = padding_of(size);
    Move out{.kind = Move::Kind::kCrop, .height = to.height, .width = to.width};
    out.top = -all.top;
    out.left = -all.left;
    out.rows = size.height + all.top + all.bottom - to.height + 1;
    out.columns = size.width + all.left + all.right - to.width + 1;
    out.padding = mode;
    std::copy(color.begin(), color.end(), out.fill);
    size = to;
    return out;
  }
  [[nodiscard]] std::string resident_obstacle(std::int32_t channels) const override {
    const bool pads = pad_if_needed || std::max({around.left, around.top, around.right, around.bottom}) > 0;
    if (pads && mode == PaddingMode::kConstant && channels == 1 && !is_gray(color))
      return "`fill` has several colors, but the images are gray: give it one number";
    return {};
  }

 private:
  /// Including the padding that an image of `size` needs.
  [[nodiscard]] Padding padding_of(Size size) const {
    const auto missing = [this](std::int32_t have, std::int32_t want) {
      return pad_if_needed ? std::max(0, want - have) : 0;
    };
    const auto rows = missing(size.height + around.top + around.bottom, to.height);
    const auto columns = missing(size.width + around.left + around.right, to.width);
    return {around.left + columns, around.top + rows, around.right + columns, around.bottom + rows};
  }
};

}  // namespace

namespace ops {
OpType random_crop() {
  return op_type<RandomCrop>();
}
}  // namespace ops

}  // namespace headrace::server::transform

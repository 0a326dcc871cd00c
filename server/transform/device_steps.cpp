#include "server/transform/device_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <variant>

namespace headrace::server::transform {
namespace {

using decode::bad;
using decode::Decoded;
using decode::ImageSize;
using pixels::PixelStep;
using pixels::PixelStepKind;
using pixels::RowSteps;

constexpr std::array kNames{"resize",
                            "center_crop",
                            "random_resized_crop",
                            "random_crop",
                            "random_horizontal_flip",
                            "random_vertical_flip",
                            "random_rotate90",
                            "color_jitter",
                            "random_grayscale",
                            "rand_augment",
                            "trivial_augment_wide",
                            "gaussian_blur",
                            "to_y",
                            "normalize",
                            "random_erasing",
                            "a transform of other fields"};
static_assert(kNames.size() == std::variant_size_v<Transform>);

bool is_gray(const std::uint8_t* rgb) {
  return rgb[0] == rgb[1] && rgb[1] == rgb[2];
}

// Follows a chain, and tells of the first transform that would need a second pass.
struct Follow {
  std::int32_t channels;
  Size least{1, 1};      ///< the sides of what enters the next transform are at least these
  bool cropped = false;  ///< and so is no longer the whole picture
  bool padded = false;   ///< perhaps
  bool resized = false;
  bool turned = false;    ///< perhaps
  bool coloured = false;  ///< perhaps
  std::size_t ops = 0;

  std::string resize(Size size) {
    least = size;
    if (coloured) return "a resize after colours have changed";
    if (turned) return "a resize after a flip or a turn";
    if (padded) return "a resize after a crop that may pad";
    if (resized) return "a second resize";
    resized = true;
    return {};
  }
  std::string crop(Size size, bool may_pad) {
    least = size;
    if (coloured) return "a crop after colours have changed";
    if (may_pad && (cropped || resized)) return "a crop that may pad after another crop or a resize";
    padded = padded || may_pad;
    cropped = true;
    return {};
  }
  std::string turn() {
    turned = true;
    return {};
  }
  std::string colour(std::size_t count) {
    coloured = true;
    ops += count;
    if (ops > pixels::kMaxPixelSteps)
      return fmt::format("more than {} colour operations", pixels::kMaxPixelSteps);
    return {};
  }

  std::string operator()(const Resize& t) {
    if (t.shorter <= 0) return resize(t.size);
    return resize(t.max_size > 0 ? Size{1, 1} : Size{t.shorter, t.shorter});
  }
  std::string operator()(const RandomResizedCrop& t) { return resize(t.size); }
  std::string operator()(const CenterCrop& t) {
    return crop(t.size, t.size.height > least.height || t.size.width > least.width);
  }
  std::string operator()(const RandomCrop& t) {
    const bool pads = std::max({t.left, t.top, t.right, t.bottom}) > 0;
    const bool may_need = t.pad_if_needed && (t.size.height > least.height || t.size.width > least.width);
    if ((pads || may_need) && t.mode == PaddingMode::kConstant && channels == 1 && !is_gray(t.fill))
      return "a coloured fill of gray pictures";
    return crop(t.size, pads || may_need);
  }
  std::string operator()(const RandomHorizontalFlip&) { return turn(); }
  std::string operator()(const RandomVerticalFlip&) { return turn(); }
  std::string operator()(const RandomRotate90&) { return turn(); }
  std::string operator()(const ColorJitter& t) {
    return colour(static_cast<std::size_t>(t.brightness.has_value()) +
                  static_cast<std::size_t>(t.contrast.has_value()) +
                  static_cast<std::size_t>(t.saturation.has_value()) +
                  static_cast<std::size_t>(t.hue.has_value()));
  }
  std::string operator()(const RandomGrayscale&) { return colour(1); }
  std::string operator()(const ToY&) { return colour(1); }
  std::string operator()(const Normalize&) { return {}; }
  std::string operator()(const NotHere&) { return {}; }
  template <class Other>
  std::string operator()(const Other&) {
    return "the device does not know it";
  }
};

/// Why the chain from `first` on is not one pass; empty: it is.
std::string obstacle(const PlanConfig& config, std::size_t first) {
  Follow follow{config.channels};
  if (first == 0 && config.input.height > 0 && !config.derived) {
    const auto base = [&](std::int32_t side) { return (side - side % config.multiple) / config.scale; };
    follow.least = {base(config.input.height), base(config.input.width)};
  }
  for (std::size_t i = first; i < config.transforms.size(); ++i)
    if (const auto wrong = std::visit(follow, config.transforms[i]); !wrong.empty())
      return fmt::format("{}: {}", kNames[config.transforms[i].index()], wrong);
  return {};
}

std::optional<PixelStep> pixel_step(const PixelOp& op) {
  const auto factor = static_cast<float>(op.factor);
  switch (op.kind) {
    case PixelOp::Kind::kBrightness:
      return PixelStep{.kind = PixelStepKind::kBrightness, .factor = factor};
    case PixelOp::Kind::kContrast:
      return PixelStep{.kind = PixelStepKind::kContrast, .factor = factor};
    case PixelOp::Kind::kSaturation:
      return PixelStep{.kind = PixelStepKind::kSaturation, .factor = factor};
    case PixelOp::Kind::kHue:
      return PixelStep{.kind = PixelStepKind::kHue, .shift = hue_shift(op.factor)};
    case PixelOp::Kind::kGrayscale:
      return PixelStep{.kind = PixelStepKind::kGray};
    default:
      return std::nullopt;
  }
}

bool add(const PixelStep& step, RowSteps& row) {
  if (row.op_count == pixels::kMaxPixelSteps) return false;
  row.ops[row.op_count++] = step;
  return true;
}

pixels::PixelRect rect_of(const decode::Rect& rect) {
  return {rect.left, rect.top, rect.width, rect.height};
}

RowSteps geometry_of(const Stage& stage, ResizePasses passes) {
  RowSteps row;
  const auto flag = [&](bool set, RowSteps::Flags value) {
    if (set) row.flags = static_cast<std::uint8_t>(row.flags | value);
  };
  flag(stage.resized, RowSteps::kResized);
  flag(stage.resized && vertical_first(stage, passes), RowSteps::kVerticalFirst);
  flag(stage.mirrored, RowSteps::kMirrored);
  flag(stage.flipped, RowSteps::kFlipped);
  flag(stage.transposed, RowSteps::kTransposed);
  row.interpolation = stage.interpolation;
  row.padding = stage.mode;
  std::copy(stage.fill.begin(), stage.fill.end(), row.fill);
  row.crop = rect_of(stage.crop);
  row.resized_width = stage.size.width;
  row.resized_height = stage.size.height;
  row.window = rect_of(stage.window);
  return row;
}

/// What of a single pass the kernel has no room for; empty: nothing.
std::string beyond_limits(const Stage& stage) {
  using pixels::kMaxShrink;
  const auto too_far = [](std::int32_t from, std::int32_t to) {
    return from > std::int64_t{kMaxShrink} * to;
  };
  if (std::max(stage.input.width, stage.input.height) > pixels::kMaxPictureSide)
    return fmt::format("a picture with a side above {}", pixels::kMaxPictureSide);
  if (stage.resized) {
    if (std::max(stage.size.width, stage.size.height) > pixels::kMaxResizedSide)
      return fmt::format("a resize to {} x {} pixels", stage.size.width, stage.size.height);
    if (stage.interpolation != Interpolation::kNearest &&
        (too_far(stage.crop.width, stage.size.width) || too_far(stage.crop.height, stage.size.height)))
      return fmt::format("{} x {} pixels made more than {} times smaller", stage.crop.width,
                         stage.crop.height, kMaxShrink);
  }
  const auto reflects_too_far = [](std::int32_t begin, std::int32_t size, std::int32_t length) {
    return length > pixels::kMaxReflectedOften && (begin <= -length || begin + size >= 2 * length);
  };
  if (stage.padded && (stage.mode == PaddingMode::kReflect || stage.mode == PaddingMode::kSymmetric) &&
      (reflects_too_far(stage.crop.left, stage.crop.width, stage.input.width) ||
       reflects_too_far(stage.crop.top, stage.crop.height, stage.input.height)))
    return fmt::format("more reflected than the {} x {} pixels there are", stage.input.width,
                       stage.input.height);
  return {};
}

}  // namespace

DevicePart device_part(const PlanConfig& config) {
  DevicePart part;
  part.first = config.transforms.size();
  while (part.first > 0) {
    part.reason = obstacle(config, part.first - 1);
    if (!part.reason.empty()) break;
    --part.first;
  }
  return part;
}

Decoded<RowSteps> device_steps(const PlanConfig& config, std::size_t first, ImageSize size, DrawKey key,
                               std::vector<Step>& steps, std::vector<Stage>& stages) {
  if (auto drawn = steps_after(config, first, size, key, steps); !drawn)
    return tl::make_unexpected(std::move(drawn.error()));
  const auto refuse = [&](const Step& step, const char* why) {
    return bad(BadReason::kUnsupported, fmt::format("{} on the device: {}; leave it to the server",
                                                    kNames[config.transforms[step.transform].index()], why));
  };
  for (const Step& step : steps) {
    if (step.kind == Step::Kind::kErase) return refuse(step, "it does not know it");
    for (const PixelOp& op : step.ops)
      if (op.kind != PixelOp::Kind::kIdentity && !pixel_step(op)) return refuse(step, "it does not know it");
  }
  stages_of(steps, size, stages);
  if (stages.size() != 1)
    return bad(BadReason::kUnsupported, fmt::format("{} passes on the device, which makes one: {}",
                                                    stages.size(), obstacle(config, first)));
  const Stage& stage = stages.front();
  if (stage.padded && stage.mode == PaddingMode::kConstant && config.channels == 1 &&
      !is_gray(stage.fill.data()))
    return bad(BadReason::kUnsupported,
               "a coloured fill of gray pictures on the device; leave it to the server");
  if (const auto wrong = beyond_limits(stage); !wrong.empty())
    return bad(BadReason::kUnsupported, fmt::format("{} on the device; leave it to the server", wrong));
  RowSteps row = geometry_of(stage, config.passes);
  bool fits = true;
  for (const PixelOp& op : stage.ops)
    if (const auto step = pixel_step(op)) fits = fits && add(*step, row);
  for (std::size_t i = first; i < config.transforms.size(); ++i)
    if (std::holds_alternative<ToY>(config.transforms[i]))
      fits = fits && add({.kind = PixelStepKind::kLuma}, row);
  if (!fits)
    return bad(BadReason::kUnsupported,
               fmt::format("more than {} colour operations on the device", pixels::kMaxPixelSteps));
  return row;
}

RowSteps finished_steps(ImageSize size) {
  RowSteps row;
  row.crop = row.window = {0, 0, size.width, size.height};
  row.resized_width = size.width;
  row.resized_height = size.height;
  return row;
}

gpu::TransformOutput device_output(const PlanConfig& config, const Plan& plan) {
  gpu::TransformOutput output;
  const Size size = plan.output_size();
  output.height = size.height;
  output.width = size.width;
  const auto holds = [&]<class T>(const T&) {
    return std::any_of(config.transforms.begin(), config.transforms.end(),
                       [](const Transform& transform) { return std::holds_alternative<T>(transform); });
  };
  output.channels = config.mask || holds(ToY{}) ? 1 : config.channels;
  output.dtype = plan.image_field().dtype;
  output.layout = config.output.layout;
  for (const Transform& transform : config.transforms)
    if (const auto* normalize = std::get_if<Normalize>(&transform)) {
      output.mean = normalize->mean;
      output.std = normalize->std;
    }
  return output;
}

}  // namespace headrace::server::transform

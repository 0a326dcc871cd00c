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

Decoded<RowSteps> device_steps(const Stage& stage, ResizePasses passes, std::int32_t channels, bool luma) {
  const auto refuse = [](std::string what) { return bad(BadReason::kUnsupported, std::move(what)); };
  if (stage.padded && stage.mode == PaddingMode::kConstant && channels == 1 && !is_gray(stage.fill.data()))
    return refuse("a coloured fill of gray pictures");
  if (auto wrong = beyond_limits(stage); !wrong.empty()) return refuse(std::move(wrong));
  RowSteps row = geometry_of(stage, passes);
  bool fits = true;
  for (const PixelOp& op : stage.ops) {
    if (op.kind == PixelOp::Kind::kIdentity) continue;
    const auto step = pixel_step(op);
    if (!step) return refuse("an operation on pixels that the kernel does not know");
    fits = fits && add(*step, row);
  }
  if (luma) fits = fits && add({.kind = PixelStepKind::kLuma}, row);
  if (!fits) return refuse(fmt::format("more than {} operations on pixels", pixels::kMaxPixelSteps));
  return row;
}

RowSteps finished_steps(ImageSize size, bool luma) {
  RowSteps row;
  row.crop = row.window = {0, 0, size.width, size.height};
  row.resized_width = size.width;
  row.resized_height = size.height;
  if (luma) (void)add({.kind = PixelStepKind::kLuma}, row);
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

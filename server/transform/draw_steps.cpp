#include "server/transform/draw_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "server/transform/op.h"

namespace headrace::server::transform {
namespace {

using decode::bad;
using decode::Decoded;
using decode::ImageSize;

/// The steps before the chain; `size` becomes the size of the chain's input.
Decoded<void> steps_before(const PlanConfig& config, ImageSize& size, std::vector<Step>& steps) {
  const auto step = [&](Step::Kind kind) -> Step& {
    steps.emplace_back().kind = kind;
    steps.back().transform = Step::kBefore;
    return steps.back();
  };
  const ImageSize cut = {size.width - size.width % config.multiple,
                         size.height - size.height % config.multiple};
  if (cut.width == 0 || cut.height == 0)
    return bad(BadReason::kMismatch, fmt::format("{} x {} pixels are less than a multiple of {}", size.width,
                                                 size.height, config.multiple));
  if (cut != size) step(Step::Kind::kCrop).crop = {0, 0, cut.width, cut.height};
  size = cut;
  if (config.derived) {
    const std::int32_t factor = config.derived->factor;
    const Size small{cut.height / factor, cut.width / factor};
    const auto resize_to = [&](Size to) {
      Step& resize = step(Step::Kind::kResize);
      resize.size = to;
      resize.interpolation = config.derived->interpolation;
      size = {to.width, to.height};
    };
    resize_to(small);
    if (config.derived->enlarge) resize_to({cut.height, cut.width});
  }
  return {};
}

void multiply(Step& step, std::int32_t scale) {
  for (std::int32_t* value :
       {&step.left, &step.top, &step.right, &step.bottom, &step.crop.left, &step.crop.top, &step.crop.width,
        &step.crop.height, &step.size.width, &step.size.height})
    *value *= scale;
  for (PixelOp& op : step.ops)
    if (op.kind == PixelOp::Kind::kTranslateX || op.kind == PixelOp::Kind::kTranslateY) op.factor *= scale;
}

// A mask's values are classes: they cannot be interpolated, and color changes do not apply to them.
void keep_geometry(Step& step) {
  step.interpolation = Interpolation::kNearest;
  std::erase_if(step.ops, [](const PixelOp& op) { return !op.geometric(); });
  for (PixelOp& op : step.ops) op.warp.bilinear = false;
}

/// Draws transforms [from, to) for an image of `size` pixels.
Decoded<void> draw_range(const PlanConfig& config, std::size_t from, std::size_t to, ImageSize size,
                         DrawKey key, std::vector<Step>& steps) {
  const std::int32_t scale = config.scale;
  size = {size.width / scale, size.height / scale};
  for (std::size_t i = from; i < to; ++i) {
    // Draw in place: copying a step right after its members were written one by one stalls.
    Step& step = steps.emplace_back();
    step.transform = i;
    if (auto done = config.transforms[i]->draw(key, size, step); !done) {
      if (scale > 1)
        done.error().detail += fmt::format("; these are its sizes divided by its scale, {}", scale);
      return done;
    }
    if (std::max(size.width, size.height) > kLargestResize / scale)
      return bad(BadReason::kTooLarge,
                 fmt::format("{} x {} pixels at scale {}", size.width, size.height, scale));
    if (config.mask) keep_geometry(step);
    if (scale > 1) multiply(step, scale);
  }
  return {};
}

Decoded<Size> first_steps(const PlanConfig& config, std::size_t count, ImageSize size, DrawKey key,
                          std::vector<Step>& steps) {
  steps.clear();
  const std::int32_t unit = config.unit;
  if (size.width % unit != 0 || size.height % unit != 0)
    return bad(BadReason::kMismatch, fmt::format("{} x {} pixels are not a multiple of the scale, {}",
                                                 size.width, size.height, unit));
  const Size base{size.height / unit, size.width / unit};
  if (auto before = steps_before(config, size, steps); !before)
    return tl::make_unexpected(std::move(before.error()));
  const std::int32_t scale = config.scale;
  if (size.width % scale != 0 || size.height % scale != 0)
    return bad(BadReason::kMismatch, fmt::format("{} x {} pixels are not a multiple of the scale, {}",
                                                 size.width, size.height, scale));
  if (auto done = draw_range(config, 0, count, size, key, steps); !done)
    return tl::make_unexpected(std::move(done.error()));
  return base;
}

}  // namespace

Decoded<Size> draw_steps(const PlanConfig& config, ImageSize size, DrawKey key, std::vector<Step>& steps) {
  return first_steps(config, config.transforms.size(), size, key, steps);
}

std::size_t prefix_length(const PlanConfig& config) {
  const auto end =
      std::find_if(config.transforms.begin(), config.transforms.end(), [](const auto& transform) {
        const auto traits = transform->traits();
        return traits.draws || !traits.geometry;
      });
  return static_cast<std::size_t>(end - config.transforms.begin());
}

Decoded<Size> prefix_steps(const PlanConfig& config, std::size_t count, ImageSize size,
                           std::vector<Step>& steps) {
  return first_steps(config, count, size, {}, steps);
}

Decoded<void> steps_after(const PlanConfig& config, std::size_t count, ImageSize size, DrawKey key,
                          std::vector<Step>& steps) {
  steps.clear();
  return draw_range(config, count, config.transforms.size(), size, key, steps);
}

nlohmann::json parameters_of(const PlanConfig& config, const std::vector<Step>& steps) {
  auto all = nlohmann::json::array();
  for (const auto& step : steps) {
    if (step.transform == Step::kBefore) continue;
    if (auto drawn = config.transforms[step.transform]->describe(step); !drawn.is_null())
      all.push_back(std::move(drawn));
  }
  return all;
}

}  // namespace headrace::server::transform

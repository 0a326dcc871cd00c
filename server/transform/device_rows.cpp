#include "server/transform/device_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "server/transform/chain_parts.h"
#include "server/transform/draw_steps.h"
#include "server/transform/op.h"

namespace headrace::server::transform {
namespace {

tl::unexpected<Error> invalid(std::string what) {
  return fail(ErrorCode::kConfigInvalid, "transforms: " + std::move(what));
}

/// The device's first transform, and what a row must have room for.
struct Split {
  std::size_t first = 0;
  DeviceShare share;
};

Split split_of(const std::vector<Transform>& chain) {
  Split split{chain.size(), {}};
  DeviceShare& sum = split.share;
  while (split.first > 0) {
    const auto share = chain[split.first - 1]->device_share();
    if (!share || sum.moves + share->moves > kMaxMoves || sum.steps + share->steps > kMaxPixelSteps) break;
    sum.moves += share->moves;
    sum.steps += share->steps;
    sum.contrasts += share->contrasts;
    --split.first;
  }
  return split;
}

/// Describes the transforms from `first` on in `image`. Returns what the device cannot do, or an empty
/// string.
std::string describe(const PlanConfig& config, std::size_t first, Size size, DeviceImage& image) {
  Values values;
  for (std::size_t i = first; i < config.transforms.size(); ++i) {
    const Op& transform = *config.transforms[i];
    transform.add_to(values);
    auto move = transform.move(size);
    if (!move) continue;
    move->stage = static_cast<std::uint32_t>(i);
    move->p = 1;  // the server draws
    image.moves.push_back(*move);
  }
  if (values.noise)
    return "random_erasing: the device writes constant values, not `value: random`: give a constant value, "
           "or set `device: cpu`";
  if (values.erasings > 1)
    return "random_erasing: the device can erase only once: leave one out, or set `device: cpu`";
  image.mean = values.mean;
  image.std = values.std;
  image.erased = values.erased;
  return {};
}

/// Throws std::logic_error for an operation that no device has: its transform must have no device_share().
PixelStep pixel_step(const PixelOp& op) {
  const auto factor = static_cast<float>(op.factor);
  switch (op.kind) {
    case PixelOp::Kind::kGrayscale:
      return {.kind = PixelStep::Kind::kGray};
    case PixelOp::Kind::kBrightness:
      return {.kind = PixelStep::Kind::kBrightness, .factor = factor};
    case PixelOp::Kind::kContrast:
      return {.kind = PixelStep::Kind::kContrast, .factor = factor};
    case PixelOp::Kind::kSaturation:
      return {.kind = PixelStep::Kind::kSaturation, .factor = factor};
    case PixelOp::Kind::kHue:
      return {.kind = PixelStep::Kind::kHue, .shift = hue_shift(op.factor)};
    default:
      throw std::logic_error(fmt::format("no device has pixel operation {}", static_cast<int>(op.kind)));
  }
}

}  // namespace

std::size_t device_begins(const std::vector<Transform>& chain) {
  return split_of(chain).first;
}

Result<DeviceRows> DeviceRows::split(const PlanConfig& config, const Plan& whole) {
  const Size size = whole.output_size();
  if (std::max(size.height, size.width) > kMaxDeviceSide)
    return invalid(
        fmt::format("the output has {} x {} pixels (width x height): expected at most {} pixels a side with "
                    "`device: gpu`; make it smaller, or set `device: cpu`",
                    size.width, size.height, kMaxDeviceSide));
  const Split split = split_of(config.transforms);
  DeviceImage image{.height = size.height, .width = size.width, .channels = config.channels};
  image.color_steps = static_cast<std::uint32_t>(split.share.steps);
  image.contrasts = static_cast<std::uint32_t>(split.share.contrasts);
  image.layout = config.output.layout;
  if (auto wrong = describe(config, split.first, size, image); !wrong.empty())
    return invalid(std::move(wrong));
  auto pictures = Plan::compile(first_part(config, split.first));
  if (!pictures) return fail(pictures.error());
  return DeviceRows(config, split.first, std::move(*pictures), std::move(image));
}

RowSteps DeviceRows::draw(DrawKey key, std::vector<Step>& steps) const {
  RowSteps row;
  // Cannot fail: these draws do not depend on the image's content, and the sizes are known.
  (void)steps_after(config_, first_, {image_.width, image_.height}, key, steps);
  std::size_t move = 0;
  const auto add = [&](const PixelStep& step) {
    if (row.step_count < std::uint32_t{kMaxPixelSteps}) row.steps[row.step_count++] = step;
  };
  for (const Step& step : steps) {
    const Op& transform = *config_.transforms[step.transform];
    if (move < image_.moves.size() && image_.moves[move].stage == step.transform)
      row.turns[move++] = static_cast<std::uint8_t>(step.kind == Step::Kind::kNone   ? 0
                                                    : step.kind == Step::Kind::kTurn ? step.turns
                                                                                     : 1);
    for (const PixelOp& op : step.ops) add(pixel_step(op));
    if (transform.traits().stage == Op::Stage::kLuma) add({.kind = PixelStep::Kind::kLuma});
    if (step.kind != Step::Kind::kErase) continue;
    row.erased_top = static_cast<std::uint16_t>(step.crop.top);
    row.erased_left = static_cast<std::uint16_t>(step.crop.left);
    row.erased_height = static_cast<std::uint16_t>(step.crop.height);
    row.erased_width = static_cast<std::uint16_t>(step.crop.width);
  }
  return row;
}

}  // namespace headrace::server::transform

#include "server/transform/resident_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <variant>

#include "server/transform/exact_math.h"
#include "server/transform/geometry.h"

namespace headrace::server::transform {
namespace {

/// Says why a transform, from the first random one on, cannot run on the device; empty: it can.
struct Obstacle {
  std::int32_t channels;

  std::string operator()(const Resize&) const {
    return "with `residence: gpu` the device cannot resize: put the resize before all random transforms";
  }
  std::string operator()(const CenterCrop&) const { return {}; }
  std::string operator()(const RandomCrop& t) const {
    const bool pads = t.pad_if_needed || std::max({t.left, t.top, t.right, t.bottom}) > 0;
    if (pads && t.mode == PaddingMode::kConstant && channels == 1 && !is_gray(t.fill))
      return "`fill` has several colors, but the images are gray: give it one number";
    return {};
  }
  std::string operator()(const RandomHorizontalFlip&) const { return {}; }
  std::string operator()(const RandomVerticalFlip&) const { return {}; }
  std::string operator()(const RandomRotate90&) const { return {}; }
  std::string operator()(const Normalize&) const { return {}; }
  std::string operator()(const NotHere&) const { return {}; }
  template <class Other>
  std::string operator()(const Other&) const {
    return "with `residence: gpu` the device only crops, flips, rotates by 90 degrees and normalizes: use "
           "`device: gpu` for this transform, or leave `residence` out";
  }
};

/// Describes a transform as a Move, and follows the image's size through it. Returns false for other
/// transforms.
struct Follow {
  Size size;
  Move step;

  void crop(Size to, std::int32_t left, std::int32_t top) {
    step.kind = Move::Kind::kCrop;
    step.left = left;
    step.top = top;
    size = to;
  }
  bool operator()(const CenterCrop& t) {
    // As in draw_steps(): cuts half of the excess, or pads by half of what is missing, on each side.
    const auto first = [](std::int32_t have, std::int32_t want) {
      return want > have ? -((want - have) / 2)
                         : static_cast<std::int32_t>(round_half_even((have - want) / 2.0));
    };
    crop(t.size, first(size.width, t.size.width), first(size.height, t.size.height));
    return true;
  }
  bool operator()(const RandomCrop& t) {
    const auto missing = [&](std::int32_t have, std::int32_t want) {
      return t.pad_if_needed ? std::max(0, want - have) : 0;
    };
    const std::int32_t rows = missing(size.height + t.top + t.bottom, t.size.height);
    const std::int32_t columns = missing(size.width + t.left + t.right, t.size.width);
    step.rows = size.height + t.top + t.bottom + 2 * rows - t.size.height + 1;
    step.columns = size.width + t.left + t.right + 2 * columns - t.size.width + 1;
    step.padding = t.mode;
    std::copy_n(t.fill, 3, step.fill);
    crop(t.size, -t.left - columns, -t.top - rows);
    return true;
  }
  bool flip(Move::Kind kind, double p) {
    step.kind = kind;
    step.p = p;
    return true;
  }
  bool operator()(const RandomHorizontalFlip& t) { return flip(Move::Kind::kHorizontalFlip, t.p); }
  bool operator()(const RandomVerticalFlip& t) { return flip(Move::Kind::kVerticalFlip, t.p); }
  bool operator()(const RandomRotate90&) { return flip(Move::Kind::kTurn, 1); }
  template <class Other>
  bool operator()(const Other&) {
    return false;
  }
};

tl::unexpected<Error> invalid(std::string what) {
  return fail(ErrorCode::kConfigInvalid, "residence: " + std::move(what));
}

bool fits(Size size) {
  return std::max(size.height, size.width) <= kMaxDeviceSide;
}

std::string too_large(Size size) {
  return fmt::format("images of {} x {} pixels (width x height): expected at most {} pixels a side",
                     size.width, size.height, kMaxDeviceSide);
}

}  // namespace

std::optional<ResidentObstacle> resident_obstacle(const PlanConfig& config) {
  std::size_t steps = 0;
  for (std::size_t i = prefix_length(config); i < config.transforms.size(); ++i) {
    const Transform& transform = config.transforms[i];
    if (auto why = std::visit(Obstacle{config.channels}, transform); !why.empty())
      return ResidentObstacle{i, std::move(why)};
    if (std::holds_alternative<Normalize>(transform) || std::holds_alternative<NotHere>(transform)) continue;
    if (++steps > std::size_t{kMaxMoves})
      return ResidentObstacle{
          i, fmt::format("expected at most {} crops, flips and rotations from the first random transform on",
                         kMaxMoves)};
  }
  return std::nullopt;
}

Result<ResidentChain> resident_chain(const PlanConfig& config) {
  if (const auto obstacle = resident_obstacle(config)) return invalid(obstacle->why);
  if (config.mask || config.derived)
    return invalid("masks and derived images cannot be kept in GPU memory: leave them or `residence` out");
  ResidentChain out{.upload = config};
  DeviceImage& image = out.image;
  const std::size_t prefix = prefix_length(config);
  out.upload.transforms.resize(prefix);
  out.upload.output = {DType::kUInt8, PixelLayout::kNhwc};
  for (const Transform& transform : config.transforms)
    if (const auto* normalize = std::get_if<Normalize>(&transform)) {
      image.mean = normalize->mean;
      image.std = normalize->std;
    }
  const auto plan = Plan::compile(out.upload);
  if (!plan)
    return invalid(
        "images may differ in size before the first random transform (a folder's images are not read to find "
        "out): put a resize to [height, width] or a center_crop before it, so that all have one size");
  Follow follow{plan->output_size(), {}};
  if (!fits(follow.size)) return invalid(too_large(follow.size));
  image.height = follow.size.height;
  image.width = follow.size.width;
  image.channels = config.channels;
  image.layout = config.output.layout;
  for (std::size_t i = prefix; i < config.transforms.size(); ++i) {
    follow.step = Move{.stage = static_cast<std::uint32_t>(i)};
    if (!std::visit(follow, config.transforms[i])) continue;
    if (!fits(follow.size)) return invalid(too_large(follow.size));
    follow.step.height = follow.size.height;
    follow.step.width = follow.size.width;
    image.moves.push_back(follow.step);
  }
  return out;
}

}  // namespace headrace::server::transform

#include "server/transform/resident_steps.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/transform/op.h"

namespace headrace::server::transform {
namespace {

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
    const Op& transform = *config.transforms[i];
    if (auto why = transform.resident_obstacle(config.channels); !why.empty())
      return ResidentObstacle{i, std::move(why)};
    Size any{1, 1};
    if (!transform.move(any)) continue;
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
  Values values;
  for (const Transform& transform : config.transforms) transform->add_to(values);
  image.mean = values.mean;
  image.std = values.std;
  const auto plan = Plan::compile(out.upload);
  if (!plan)
    return invalid(
        "images may differ in size before the first random transform (a folder's images are not read to find "
        "out): put a resize to [height, width] or a center_crop before it, so that all have one size");
  Size size = plan->output_size();
  if (!fits(size)) return invalid(too_large(size));
  image.height = size.height;
  image.width = size.width;
  image.channels = config.channels;
  image.layout = config.output.layout;
  for (std::size_t i = prefix; i < config.transforms.size(); ++i) {
    auto move = config.transforms[i]->move(size);
    if (!move) continue;
    if (!fits(size)) return invalid(too_large(size));
    move->stage = static_cast<std::uint32_t>(i);
    image.moves.push_back(*move);
  }
  return out;
}

}  // namespace headrace::server::transform

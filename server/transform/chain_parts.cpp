#include "server/transform/chain_parts.h"

#include <algorithm>

#include "server/transform/op.h"

namespace headrace::server::transform {

PlanConfig first_part(const PlanConfig& chain, std::size_t count) {
  PlanConfig part = chain;
  part.transforms.resize(count);
  part.output = {DType::kUInt8, PixelLayout::kNhwc};
  return part;
}

PlanConfig second_part(const PlanConfig& chain, std::size_t count, Size size) {
  PlanConfig part = chain;
  // Draws are keyed by a transform's index in the chain.
  std::fill_n(part.transforms.begin(), count, skipped());
  part.input = size;
  part.unit = part.multiple = 1;
  // Where the whole chain ends, or goes on without making the image in between, that image's size is not
  // limited.
  part.max_pixels = std::max(
      part.max_pixels, static_cast<std::uint64_t>(size.height) * static_cast<std::uint64_t>(size.width));
  part.derived.reset();
  return part;
}

std::size_t shareable_transforms(const std::vector<Transform>& chain) {
  const auto end = std::find_if(chain.begin(), chain.end(), [](const Transform& transform) {
    return transform->traits().stage != Op::Stage::kPixels;
  });
  return static_cast<std::size_t>(end - chain.begin());
}

}  // namespace headrace::server::transform

// Plan::cut: rows of bare pixels that a chain only moves.
#include <algorithm>

#include "server/decode/raw.h"
#include "server/transform/draw_steps.h"
#include "server/transform/kernels/plane_kernels.h"
#include "server/transform/op.h"
#include "server/transform/plan_impl.h"
#include "server/transform/stages/cut.h"

namespace headrace::server::transform {
namespace {

using decode::ImageData;
using decode::ImageSize;

bool can_open(const ImageData& image, std::uint64_t max_pixels) {
  return image.pixels.width != 0 &&
         decode::RawReader::check(image.bytes, image.pixels, max_pixels).has_value();
}

/// Whether a transform from `first` on resizes.
bool resizes(const PlanConfig& config, std::size_t first) {
  return std::any_of(config.transforms.begin() + static_cast<std::ptrdiff_t>(first), config.transforms.end(),
                     [](const Transform& transform) { return transform->traits().resizes; });
}

}  // namespace

bool Plan::may_cut_bare() const {
  return impl_->moves_only && !impl_->config.derived && !resizes(impl_->config, 0);
}

bool Plan::may_cut_prepared() const {
  return impl_->moves_only && !resizes(impl_->config, impl_->prefix);
}

bool Plan::cut(const ImageData& image, DrawKey key, Scratch& scratch, std::byte* out, Size& base) const {
  const Impl& plan = *impl_;
  Scratch::State& state = scratch.state();
  Scratch::State::Kept& kept = state.kept_of(plan.number);
  if (kept.plan == plan.number && kept.shape == image.pixels && kept.bytes == image.bytes.size()) {
    base = kept.base;
    if (kept.copied > 0)
      copy_bytes(image.bytes.data(), kept.copied, reinterpret_cast<std::uint8_t*>(out), state.streamed);
    else
      run_cut(kept.stage, image, plan.format, state, out);
    return true;
  }
  const ImageSize size{image.pixels.width, image.pixels.height};
  if (!plan.moves_only || !can_open(image, plan.config.max_pixels) || !plan.fits_input(size)) return false;
  const auto drawn = draw_steps(plan.config, size, key, state.steps);
  if (!drawn) return false;
  stages_of(state.steps, size, state.stages);
  if (!is_cut(plan.moves_only, state.stages, image)) return false;
  base = *drawn;
  run_cut(state.stages.front(), image, plan.format, state, out);
  const Stage& stage = state.stages.front();
  if (!plan.drawn)
    kept = {plan.number, image.pixels, image.bytes.size(),
            base,        stage,        copied_bytes(stage, image, plan.format)};
  return true;
}

bool Plan::cut(const Prepared& image, DrawKey key, Scratch& scratch, std::byte* out) const {
  const Impl& plan = *impl_;
  Scratch::State& state = scratch.state();
  const ImageData pixels{image.bytes, image.pixels};
  const ImageSize size{image.pixels.width, image.pixels.height};
  if (!plan.moves_only || !can_open(pixels, plan.config.max_pixels) ||
      !plan.fits_input(plan.original(image)) ||
      !steps_after(plan.config, plan.prefix, size, key, state.steps))
    return false;
  stages_of(state.steps, size, state.stages);
  if (!is_cut(plan.moves_only, state.stages, pixels)) return false;
  run_cut(state.stages.front(), pixels, plan.format, state, out);
  return true;
}

}  // namespace headrace::server::transform

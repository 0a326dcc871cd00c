// A chain whose last stage is left to the device.
#include <algorithm>
#include <variant>

#include "clientlib/gpu/transform/axis.h"
#include "server/transform/device_steps.h"
#include "server/transform/plan_impl.h"

namespace headrace::server::transform {
namespace {

using decode::Decoded;
using decode::ImageSize;
using decode::Rect;

std::uint64_t bytes_of(ImageSize size, std::int32_t channels) {
  return static_cast<std::uint64_t>(size.width) * static_cast<std::uint64_t>(size.height) *
         static_cast<std::uint64_t>(channels);
}

/// What of its input a stage reads. Where it pads, edges and what is reflected there count: all of it.
Rect part_of(const Stage& stage, const pixels::RowSteps& steps) {
  if (stage.padded) return {0, 0, stage.input.width, stage.input.height};
  if (!stage.resized) return stage.crop;
  gpu::RowTask task;
  task.steps = steps;
  const gpu::Span across = gpu::columns_of(task).span(0, stage.window.width);
  const gpu::Span down = gpu::rows_of(task).span(0, stage.window.height);
  return {across.begin, down.begin, across.end - across.begin, down.end - down.begin};
}

/// The stage that makes that part and nothing else.
Stage cut_of(ImageSize input, const Rect& part) {
  Stage cut;
  cut.input = input;
  cut.crop = part;
  cut.size = {part.width, part.height};
  cut.window = {0, 0, part.width, part.height};
  return cut;
}

}  // namespace

Decoded<void> Plan::Impl::leave(ImageSize input, Scratch::State& scratch, const PictureRoom& room,
                                LeftPicture& out, std::uint64_t& decode_ns) const {
  auto& stages = scratch.stages;
  stages_of(scratch.steps, input, stages);
  if (auto fine = check_between(stages); !fine) return fine;
  const auto make = [&](std::byte* to, ImageSize made) {
    out.at = to;
    out.size = {made.height, made.width};
    return run_stages(stages, config.passes, prepared, scratch, to, decode_ns);
  };
  Stage& last = stages.back();
  auto steps = device_steps(last, config.passes, prepared.channels, format.luma);
  out.finished = !steps;
  if (steps) {
    const Rect part = part_of(last, *steps);
    if (std::byte* const to = room.take(bytes_of({part.width, part.height}, prepared.channels));
        to != nullptr) {
      out.steps = *steps;
      out.steps.crop.left -= part.left;
      out.steps.crop.top -= part.top;
      last = cut_of(last.input, part);
      return make(to, {part.width, part.height});
    }
    out.finished = true;
    out.because = "the pictures of a batch are larger than its room in the ring";
  } else {
    out.because = std::move(steps.error().detail);
  }
  const ImageSize made = last.output();
  out.steps = finished_steps(made, format.luma);
  return make(room.finished, made);
}

RenderReport Plan::leave(const decode::ImageData& image, DrawKey key, Scratch& scratch,
                         const PictureRoom& room, LeftPicture& out) const {
  Scratch::State& state = scratch.state();
  return impl_->report(state, [&](RenderReport& report) -> Decoded<void> {
    const auto size = impl_->open(image, state.decoder, report.decode_ns);
    if (!size) return tl::make_unexpected(size.error());
    const auto base = draw_steps(impl_->config, *size, key, state.steps);
    if (!base) return tl::make_unexpected(base.error());
    report.base = *base;
    return impl_->leave(*size, state, room, out, report.decode_ns);
  });
}

RenderReport Plan::leave(const Prepared& image, DrawKey key, Scratch& scratch, const PictureRoom& room,
                         LeftPicture& out) const {
  const Impl& plan = *impl_;
  Scratch::State& state = scratch.state();
  std::uint64_t copy_ns = 0;  // nothing is decoded
  return plan.report(state, [&](RenderReport& report) -> Decoded<void> {
    const auto size = plan.open_prepared(image, key, state);
    if (!size) return tl::make_unexpected(size.error());
    report.base = image.base;
    return plan.leave(*size, state, room, out, copy_ns);
  });
}

std::uint64_t Plan::finished_bytes() const {
  return bytes_of({impl_->size.width, impl_->size.height}, impl_->prepared.channels);
}

bool Plan::erases() const {
  const auto& chain = impl_->config.transforms;
  return std::any_of(chain.begin(), chain.end(), [](const Transform& transform) {
    return std::holds_alternative<RandomErasing>(transform);
  });
}

}  // namespace headrace::server::transform

// Divides a chain into the part that is the same in every epoch, and the rest.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "server/decode/grow.h"
#include "server/transform/op.h"
#include "server/transform/plan_impl.h"

namespace headrace::server::transform {
namespace {

using decode::Decoded;
using decode::ImageSize;

std::uint64_t pixels_of(ImageSize size) {
  return static_cast<std::uint64_t>(size.width) * static_cast<std::uint64_t>(size.height);
}

int number_of(Interpolation interpolation) {
  return static_cast<int>(interpolation);
}

struct CloseAtEnd {
  explicit CloseAtEnd(Scratch::State& scratch) : state(scratch) {}
  ~CloseAtEnd() { state.close(); }
  CloseAtEnd(const CloseAtEnd&) = delete;
  CloseAtEnd& operator=(const CloseAtEnd&) = delete;
  Scratch::State& state;
};

}  // namespace

bool Plan::prepare(const decode::ImageData& image, Scratch& scratch, std::uint64_t room,
                   std::vector<std::uint8_t>& storage, Prepared& out) const try {
  const Impl& plan = *impl_;
  Scratch::State& state = scratch.state();
  const CloseAtEnd close(state);
  std::uint64_t decode_ns = 0;
  const auto size = plan.open(image, state.decoder, decode_ns);
  if (!size) return false;
  const auto base = prefix_steps(plan.config, plan.prefix, *size, state.steps);
  if (!base) return false;
  const auto& stages = state.stages;
  stages_of(state.steps, *size, state.stages);
  // render() may not need the whole image: later crops can keep it small.
  for (const Stage& stage : stages)
    if (pixels_of(stage.output()) > plan.config.max_pixels) return false;
  const ImageSize made = stages.back().output();
  if (std::max(made.width, made.height) > static_cast<std::int32_t>(decode::kMaxSide)) return false;
  const std::int32_t channels = plan.prepared.channels;
  const std::uint64_t bytes = pixels_of(made) * static_cast<std::uint64_t>(channels);
  if (bytes > room) return false;
  auto* const to = reinterpret_cast<std::byte*>(decode::grow(storage, bytes));
  if (!run_stages(stages, plan.config.passes, plan.prepared, state, to, decode_ns)) return false;
  out.bytes = std::span(storage).first(bytes);
  out.pixels = {.width = made.width, .height = made.height, .channels = channels, .planar = false};
  out.base = *base;
  // render() decodes less and may not meet this damage, so it must not be reported here either.
  return !state.decoder.warned();
} catch (const std::bad_alloc&) {
  return false;
} catch (const std::length_error&) {
  return false;
}

Decoded<ImageSize> Plan::Impl::open_prepared(const Prepared& image, DrawKey key,
                                             Scratch::State& scratch) const {
  // Another stream, which accepts images of any size, may have prepared it.
  if (auto fine = check_input(original(image)); !fine) return tl::make_unexpected(std::move(fine.error()));
  auto entering = scratch.decoder.open({image.bytes, image.pixels}, config.max_pixels);
  if (entering)
    if (auto done = steps_after(config, prefix, *entering, key, scratch.steps); !done)
      return tl::make_unexpected(std::move(done.error()));
  return entering;
}

RenderReport Plan::finish(const Prepared& image, DrawKey key, Scratch& scratch, std::byte* out) const {
  const Impl& plan = *impl_;
  Scratch::State& state = scratch.state();
  std::uint64_t copy_ns = 0;  // nothing is decoded
  return plan.report(state, [&](RenderReport& report) -> Decoded<void> {
    const auto size = plan.open_prepared(image, key, state);
    if (!size) return tl::make_unexpected(size.error());
    report.base = image.base;
    return plan.run({image.bytes, image.pixels}, *size, state, out, copy_ns);
  });
}

std::string Plan::prefix() const {
  const PlanConfig& config = impl_->config;
  std::string text = fmt::format("channels({}) mask({}) multiple({}) scale({}) max_pixels({}) passes({})",
                                 impl_->prepared.channels, config.mask, config.multiple, config.scale,
                                 config.max_pixels, static_cast<int>(config.passes));
  if (config.derived)
    text += fmt::format(" derived({},{},{})", config.derived->factor, config.derived->enlarge,
                        number_of(config.derived->interpolation));
  for (std::size_t i = 0; i < impl_->prefix; ++i)
    if (!is_skipped(config.transforms[i]))
      text += fmt::format(" {}{}", config.transforms[i]->name(), config.transforms[i]->arguments().dump());
  return text;
}

bool Plan::has_prefix() const {
  const auto begin = impl_->config.transforms.begin();
  return impl_->config.derived ||
         !std::all_of(begin, begin + static_cast<std::ptrdiff_t>(impl_->prefix), is_skipped);
}

std::optional<std::uint64_t> Plan::prepared_bytes() const {
  const PlanConfig& config = impl_->config;
  // After a transform to a fixed size, images of any size are alike, so any size will do.
  ImageSize size{config.input.width, config.input.height};
  const bool one_size = size.height > 0;
  if (!one_size) {
    ChainState state{3, config.output.dtype, {}};
    bool fixed = false;
    for (std::size_t i = 0; i < impl_->prefix; ++i) {
      (void)config.transforms[i]->check(state);
      fixed = fixed || state.size.has_value();
    }
    if (!fixed) return std::nullopt;
    size = {config.multiple * config.scale * 64, config.multiple * config.scale * 64};
  }
  std::vector<Step> steps;
  Stages stages;
  if (!prefix_steps(config, impl_->prefix, size, steps)) return std::nullopt;
  stages_of(steps, size, stages);
  return pixels_of(stages.back().output()) * static_cast<std::uint64_t>(impl_->prepared.channels);
}

}  // namespace headrace::server::transform

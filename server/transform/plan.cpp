#include "server/transform/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <nlohmann/json.hpp>

#include "server/transform/op.h"
#include "server/transform/plan_impl.h"
#include "server/transform/stages/cut.h"

namespace headrace::server::transform {
namespace {

using decode::Bad;
using decode::bad;
using decode::Decoded;
using decode::ImageSize;

bool fits(Size size) {
  return size.height >= 1 && size.width >= 1 && size.height <= kLargestSide && size.width <= kLargestSide;
}

/// What is wrong with `next` after `last` in a chain; empty: nothing.
const char* wrong_order(Op::Stage last, Op::Stage next) {
  using Stage = Op::Stage;
  if (last == Stage::kErase && next != Stage::kErase)
    return "random_erasing must be the last transform: it erases in the output, after normalize";
  if (last == Stage::kNormalize && next != Stage::kErase)
    return "normalize must be the last transform, but for random_erasing";
  if (last == Stage::kLuma && next < Stage::kNormalize)
    return "to_y must be the last transform, but for normalize and random_erasing";
  return nullptr;
}

}  // namespace

Decoded<ImageSize> Plan::Impl::open(const decode::ImageData& data, decode::Decoder& decoder,
                                    std::uint64_t& decode_ns) const {
  const auto start = ring::monotonic_ns();
  auto image = decoder.open(open_as(data), config.max_pixels);
  decode_ns += ring::monotonic_ns() - start;
  if (image)
    if (auto fine = check_input(*image); !fine) return tl::make_unexpected(std::move(fine.error()));
  return image;
}

Decoded<void> Plan::Impl::check_input(ImageSize image) const {
  if (fits_input(image)) return {};
  return bad(BadReason::kUnsupported,
             fmt::format("{} x {} pixels, expected {} x {} (width x height) like the others: add a resize or "
                         "crop to `transforms`",
                         image.width, image.height, config.input.width, config.input.height));
}

Decoded<void> Plan::Impl::check_between(const Stages& stages) const {
  for (std::size_t i = 0; i + 1 < stages.size(); ++i) {
    const ImageSize made = stages[i].output();
    if (static_cast<std::uint64_t>(made.width) * static_cast<std::uint64_t>(made.height) > config.max_pixels)
      return bad(BadReason::kTooLarge,
                 fmt::format("an intermediate image of {} x {} pixels, max_pixels is {}", made.width,
                             made.height, config.max_pixels));
  }
  return {};
}

Decoded<void> Plan::Impl::run(const decode::ImageData& image, ImageSize input, Scratch::State& scratch,
                              std::byte* out, std::uint64_t& decode_ns) const {
  const auto& stages = scratch.stages;
  stages_of(scratch.steps, input, scratch.stages);
  if (auto fine = check_between(stages); !fine) return fine;
  if (is_cut(moves_only, stages, image)) {
    run_cut(stages.front(), image, format, scratch, out);
    return {};
  }
  if (auto done = run_stages(stages, config.passes, format, scratch, out, decode_ns); !done) return done;
  for (const Step& step : scratch.steps)
    if (step.kind == Step::Kind::kErase) config.transforms[step.transform]->erase(step, format, size, out);
  return {};
}

Result<Plan> Plan::compile(const PlanConfig& config, std::optional<std::size_t>* culprit) {
  const auto invalid = [&](std::string what, std::optional<std::size_t> at = {}) {
    if (culprit != nullptr) *culprit = at;
    return fail(ErrorCode::kConfigInvalid, "transforms: " + std::move(what));
  };
  auto impl = std::make_shared<Impl>();
  impl->config = config;
  Output& output = impl->config.output;
  if (config.mask) output.dtype = DType::kUInt8;
  ChainState state{static_cast<std::size_t>(config.channels), output.dtype, {}};
  if (config.input.height > 0 && !config.derived) {
    const auto base = [&](std::int32_t side) { return (side - side % config.multiple) / config.scale; };
    state.size = {base(config.input.height), base(config.input.width)};
  }
  Values values;
  const auto& chain = impl->config.transforms;
  std::size_t last = 0;  // index before `i`, without the skipped ones
  for (std::size_t i = 0; i < chain.size(); ++i) {
    if (is_skipped(chain[i])) continue;
    if (auto wrong = chain[i]->check(state); !wrong.empty()) return invalid(std::move(wrong), i);
    const Op::Stage stage = chain[i]->traits().stage;
    if (i > 0)
      if (const char* wrong = wrong_order(chain[last]->traits().stage, stage)) return invalid(wrong, last);
    last = i;
    chain[i]->add_to(values);
    if (stage == Op::Stage::kNormalize && output.dtype == DType::kUInt8)
      return invalid(
          "normalize gives fractions, which uint8 cannot hold; set output.dtype to float32, float16 or "
          "bfloat16",
          i);
  }
  if (!state.size) {
    return invalid(
        "images leave the chain with different sizes: end it with random_resized_crop, random_crop, "
        "center_crop or "
        "resize to [height, width]");
  }
  const Size size{state.size->height * config.scale, state.size->width * config.scale};
  if (!fits(size))
    return invalid(
        fmt::format("the output: size [{}, {}] (height, width): each side must be between 1 and {}",
                    size.height, size.width, kLargestSide));
  switch (output.dtype) {
    case DType::kUInt8:
    case DType::kFloat16:
    case DType::kBFloat16:
    case DType::kFloat32:
      break;
    default:
      return invalid(fmt::format("output.dtype {}: must be uint8, float16, bfloat16 or float32",
                                 headrace::name_of(output.dtype)));
  }
  impl->size = size;
  const std::int32_t channels = config.mask ? 1 : config.channels;
  impl->format = make_pixel_format(output, values.mean, values.std, values.luma ? 1 : channels);
  impl->format.luma = values.luma;
  impl->prefix = prefix_length(config);
  impl->moves_only = std::all_of(chain.begin(), chain.end(), [](const Transform& transform) {
    const auto traits = transform->traits();
    return traits.geometry || traits.stage == Op::Stage::kNormalize;
  });
  impl->drawn = std::any_of(chain.begin(), chain.end(),
                            [](const auto& transform) { return transform->traits().draws; });
  static std::atomic<std::uint64_t> plans = 0;
  impl->number = ++plans;
  impl->prepared = make_pixel_format({DType::kUInt8, PixelLayout::kNhwc}, {}, {}, channels);
  Plan plan;
  plan.impl_ = std::move(impl);
  return plan;
}

Size Plan::output_size() const {
  return impl_->size;
}

FieldSpec Plan::image_field() const {
  FieldSpec field;
  field.name = "image";
  field.dtype = impl_->config.output.dtype;
  const std::int64_t height = impl_->size.height, width = impl_->size.width;
  const std::int64_t channels = impl_->format.channels;
  if (impl_->config.mask) {
    field.shape = {height, width};
  } else if (impl_->config.output.layout == PixelLayout::kNchw) {
    field.shape = {channels, height, width};
  } else {
    field.shape = {height, width, channels};
  }
  return field;
}

std::size_t Plan::row_bytes() const {
  return static_cast<std::size_t>(impl_->size.height) * static_cast<std::size_t>(impl_->size.width) *
         static_cast<std::size_t>(impl_->format.channels) * size_of(impl_->config.output.dtype);
}

RenderReport Plan::render(const decode::ImageData& image, DrawKey key, Scratch& scratch,
                          std::byte* out) const {
  return impl_->report(scratch.state(), [&](RenderReport& report) -> Decoded<void> {
    const auto size = impl_->open(image, scratch.state().decoder, report.decode_ns);
    if (!size) return tl::make_unexpected(size.error());
    const auto base = draw_steps(impl_->config, *size, key, scratch.state().steps);
    if (!base) return tl::make_unexpected(base.error());
    report.base = *base;
    return impl_->run(image, *size, scratch.state(), out, report.decode_ns);
  });
}

Result<nlohmann::json> Plan::parameters(const decode::ImageData& data, DrawKey key) const {
  const auto refuse = [](const Bad& error) {
    return fail(ErrorCode::kBadSample, fmt::format("{}: {}", decode::name_of(error.reason), error.detail));
  };
  decode::Decoder decoder;
  const auto image = decoder.open(impl_->open_as(data), impl_->config.max_pixels);
  if (!image) return refuse(image.error());
  std::vector<Step> steps;
  if (const auto drawn = draw_steps(impl_->config, *image, key, steps); !drawn) return refuse(drawn.error());
  return parameters_of(impl_->config, steps);
}

}  // namespace headrace::server::transform

#include "server/transform/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <nlohmann/json.hpp>

#include "server/transform/cut.h"
#include "server/transform/erase.h"
#include "server/transform/plan_impl.h"

namespace headrace::server::transform {
namespace {

using decode::Bad;
using decode::bad;
using decode::Decoded;
using decode::ImageSize;

// Checks one transform's arguments; returns what is wrong, or nothing. `known` follows the size through the
// chain.
struct Check {
  std::size_t channels;
  DType dtype;
  std::optional<Size> known = {};

  static bool fits(Size size) {
    return size.height >= 1 && size.width >= 1 && size.height <= kLargestSide && size.width <= kLargestSide;
  }
  static std::string sides(const char* name, Size size) {
    return fmt::format("{}: size [{}, {}] (height, width): each side must be between 1 and {}", name,
                       size.height, size.width, kLargestSide);
  }

  std::string operator()(const Resize& t) {
    if (t.shorter > 0) {
      if (t.shorter > kLargestSide)
        return fmt::format("resize: size {} is above {}", t.shorter, kLargestSide);
      if (t.max_size != 0 && t.max_size <= t.shorter) {
        return fmt::format("resize: max_size {} must be above size {}", t.max_size, t.shorter);
      }
      known.reset();
      return {};
    }
    if (t.max_size != 0)
      return "resize: max_size goes with one size (the shorter side), not with [height, width]";
    known = t.size;
    return fits(t.size) ? "" : sides("resize", t.size);
  }
  std::string operator()(const CenterCrop& t) {
    known = t.size;
    return fits(t.size) ? "" : sides("center_crop", t.size);
  }
  std::string operator()(const RandomResizedCrop& t) {
    known = t.size;
    if (!fits(t.size)) return sides("random_resized_crop", t.size);
    if (!(t.scale_min > 0 && t.scale_min <= t.scale_max && t.scale_max <= 1)) {
      return fmt::format("random_resized_crop: scale [{}, {}] must rise within (0, 1]", t.scale_min,
                         t.scale_max);
    }
    if (!(t.ratio_min >= 0.001 && t.ratio_min <= t.ratio_max && t.ratio_max <= 1000)) {
      return fmt::format("random_resized_crop: ratio [{}, {}] must rise within [0.001, 1000]", t.ratio_min,
                         t.ratio_max);
    }
    return {};
  }
  std::string operator()(const RandomCrop& t) {
    const auto before = std::exchange(known, t.size);
    if (!fits(t.size)) return sides("random_crop", t.size);
    if (std::min({t.left, t.top, t.right, t.bottom}) < 0 ||
        std::max({t.left, t.top, t.right, t.bottom}) > kLargestSide) {
      return fmt::format("random_crop: padding [{}, {}, {}, {}]: each must be between 0 and {}", t.left,
                         t.top, t.right, t.bottom, kLargestSide);
    }
    if (before && !t.pad_if_needed &&
        (before->height + t.top + t.bottom < t.size.height ||
         before->width + t.left + t.right < t.size.width)) {
      return fmt::format(
          "random_crop: size [{}, {}] is larger than the [{}, {}] image with its padding: set "
          "`pad_if_needed: true`, or put a resize before it",
          t.size.height, t.size.width, before->height, before->width);
    }
    return {};
  }
  static std::string probability(const char* name, double p) {
    return p >= 0 && p <= 1 ? "" : fmt::format("{}: p {} must be within [0, 1]", name, p);
  }
  std::string operator()(const RandomHorizontalFlip& t) { return probability("random_horizontal_flip", t.p); }
  std::string operator()(const RandomVerticalFlip& t) { return probability("random_vertical_flip", t.p); }
  std::string operator()(const ColorJitter& t) const { return wrong_with(t); }
  std::string operator()(const GaussianBlur& t) const { return wrong_with(t); }
  std::string operator()(const RandomErasing& t) const { return wrong_with(t, dtype, channels); }
  std::string operator()(const RandAugment& t) const { return wrong_with(t); }
  std::string operator()(const TrivialAugmentWide& t) const { return wrong_with(t); }
  std::string operator()(const RandomGrayscale& t) const { return probability("random_grayscale", t.p); }
  std::string operator()(const RandomRotate90&) const {
    return known && known->height != known->width
               ? fmt::format(
                     "random_rotate90: turns [{}, {}] into [{}, {}] and so gives rows of two shapes: "
                     "crop or resize to a square before it",
                     known->height, known->width, known->width, known->height)
               : "";
  }
  std::string operator()(const ToY&) {
    channels = 1;
    return {};
  }
  std::string operator()(const NotHere&) const { return {}; }
  std::string operator()(const Normalize& t) {
    const auto finite = [](double v) { return std::isfinite(static_cast<float>(v)); };
    if (t.mean.size() != channels || t.std.size() != channels ||
        !std::all_of(t.mean.begin(), t.mean.end(), finite) ||
        !std::all_of(t.std.begin(), t.std.end(), finite)) {
      return fmt::format("normalize: mean and std need {} each, one per channel",
                         channels == 1 ? "one finite number" : "three finite numbers");
    }
    const auto positive = [](double v) { return static_cast<float>(v) > 0.0F; };
    return std::all_of(t.std.begin(), t.std.end(), positive) ? "" : "normalize: std must be above 0";
  }
};

/// A list of what does: whatever is added changes values until somebody knows better.
template <class... Moving>
bool is_any_of(const Transform& transform) {
  return (std::holds_alternative<Moving>(transform) || ...);
}

}  // namespace

Scratch::Scratch() : state_(std::make_unique<State>()) {}
Scratch::~Scratch() = default;
Scratch::Scratch(Scratch&&) noexcept = default;
Scratch& Scratch::operator=(Scratch&&) noexcept = default;

void Scratch::set_streamed(bool streamed) {
  state_->streamed = streamed;
}

Decoded<ImageSize> Plan::Impl::open(const decode::ImageData& data, decode::Decoder& decoder,
                                    std::uint64_t& decode_ns) const {
  const auto start = ring::monotonic_ns();
  auto image = decoder.open(open_as(data), config.max_pixels);
  decode_ns += ring::monotonic_ns() - start;
  // Without a crop or a resize the row has room for that size alone.
  if (image && config.input.height > 0 &&
      (image->height != config.input.height || image->width != config.input.width))
    return bad(BadReason::kUnsupported, fmt::format("{} x {} pixels in a set of {} x {}", image->width,
                                                    image->height, config.input.width, config.input.height));
  return image;
}

Decoded<void> Plan::Impl::check_between(const std::vector<Stage>& stages) const {
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
    if (step.kind == Step::Kind::kErase)
      erase(step, std::get<RandomErasing>(config.transforms[step.transform]), format, size, out);
  return {};
}

Result<Plan> Plan::compile(const PlanConfig& config) {
  const auto invalid = [](std::string what) {
    return fail(ErrorCode::kConfigInvalid, "transforms: " + std::move(what));
  };
  auto impl = std::make_shared<Impl>();
  impl->config = config;
  Output& output = impl->config.output;
  if (config.mask) output.dtype = DType::kUInt8;
  Check check{static_cast<std::size_t>(config.channels), output.dtype};
  if (config.input.height > 0 && !config.derived) {
    const auto base = [&](std::int32_t side) { return (side - side % config.multiple) / config.scale; };
    check.known = {base(config.input.height), base(config.input.width)};
  }
  std::vector<double> mean, std;
  const Transform* at_end = nullptr;  // nothing but normalize may follow it
  bool erasing = false;
  for (const auto& transform : impl->config.transforms) {
    if (auto wrong = std::visit(check, transform); !wrong.empty()) return invalid(std::move(wrong));
    if (std::holds_alternative<NotHere>(transform)) continue;
    const bool erases = std::holds_alternative<RandomErasing>(transform);
    if (erasing && !erases)
      return invalid("random_erasing must be the last transform: it erases in the output, after normalize");
    erasing = erases;
    if (erases) continue;
    const auto* normalize = std::get_if<Normalize>(&transform);
    if (at_end != nullptr && std::holds_alternative<Normalize>(*at_end))
      return invalid("normalize must be the last transform, but for random_erasing");
    if (at_end != nullptr && normalize == nullptr)
      return invalid("to_y must be the last transform, but for normalize");
    if (normalize != nullptr || std::holds_alternative<ToY>(transform)) at_end = &transform;
    if (std::holds_alternative<ToY>(transform)) impl->format.luma = true;
    if (normalize == nullptr) continue;
    if (output.dtype == DType::kUInt8) {
      return invalid("normalize needs a float output: set output.dtype to float32, float16 or bfloat16");
    }
    mean = normalize->mean;
    std = normalize->std;
  }
  if (!check.known) {
    return invalid(
        "images leave the chain with different sizes: end it with random_resized_crop, random_crop, "
        "center_crop or "
        "resize to [height, width]");
  }
  const Size size{check.known->height * config.scale, check.known->width * config.scale};
  if (!Check::fits(size)) return invalid(Check::sides("the output", size));
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
  const bool luma = impl->format.luma;
  impl->size = size;
  const std::int32_t channels = config.mask ? 1 : config.channels;
  impl->format = make_pixel_format(output, mean, std, luma ? 1 : channels);
  impl->format.luma = luma;
  impl->prefix = prefix_length(config);
  const auto& chain = impl->config.transforms;
  impl->moves_only =
      std::all_of(chain.begin(), chain.end(),
                  is_any_of<Resize, CenterCrop, RandomResizedCrop, RandomCrop, RandomHorizontalFlip,
                            RandomVerticalFlip, RandomRotate90, Normalize, NotHere>);
  impl->drawn =
      !std::all_of(chain.begin(), chain.end(), is_any_of<Resize, CenterCrop, ToY, Normalize, NotHere>);
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

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "server/sampler/philox.h"
#include "server/transform/draw_augmentations.h"
#include "server/transform/exact_math.h"
#include "server/transform/geometry.h"

namespace headrace::server::transform {
namespace {

using decode::Bad;
using decode::bad;
using decode::Decoded;
using decode::ImageSize;
using sampler::Draws;

// Of a side before the window that is wanted of it: leaves room for padding in an int32.
constexpr std::int64_t kLargestResize = std::int64_t{1} << 28;

// One overload per transform: fills the step and changes `size` to what leaves the transform.
struct Drawer {
  DrawKey key;
  ImageSize& size;
  Step& step;

  Draws draws() const {
    return Draws(key.seed, key.epoch, key.position, static_cast<std::uint32_t>(step.transform));
  }

  Decoded<void> resize_to(std::int64_t height, std::int64_t width, Interpolation interpolation) {
    if (height < 1 || width < 1) {
      return bad(BadReason::kUnsupported,
                 fmt::format("resize makes {} x {} of {} x {} pixels (width x height)", width, height,
                             size.width, size.height));
    }
    if (width > kLargestResize || height > kLargestResize) {
      return bad(BadReason::kTooLarge, fmt::format("resize would make {} x {} pixels", width, height));
    }
    step.kind = Step::Kind::kResize;
    step.size = {static_cast<std::int32_t>(height), static_cast<std::int32_t>(width)};
    step.interpolation = interpolation;
    size = {step.size.width, step.size.height};
    return {};
  }

  Decoded<void> operator()(const Resize& t) {
    if (t.shorter <= 0) return resize_to(t.size.height, t.size.width, t.interpolation);
    const double shorter = std::min(size.width, size.height);
    const double longer = std::max(size.width, size.height);
    auto new_shorter = static_cast<std::int64_t>(t.shorter);
    auto new_longer = static_cast<std::int64_t>(t.shorter * longer / shorter);
    if (t.max_size > 0 && new_longer > t.max_size) {
      new_shorter =
          static_cast<std::int64_t>(static_cast<double>(t.max_size) * static_cast<double>(new_shorter) /
                                    static_cast<double>(new_longer));
      new_longer = t.max_size;
    }
    return size.width <= size.height ? resize_to(new_longer, new_shorter, t.interpolation)
                                     : resize_to(new_shorter, new_longer, t.interpolation);
  }

  Decoded<void> operator()(const CenterCrop& t) {
    const auto height = t.size.height, width = t.size.width;
    step.kind = Step::Kind::kCrop;
    step.left = width > size.width ? (width - size.width) / 2 : 0;
    step.right = width > size.width ? (width - size.width + 1) / 2 : 0;
    step.top = height > size.height ? (height - size.height) / 2 : 0;
    step.bottom = height > size.height ? (height - size.height + 1) / 2 : 0;
    const auto anchor = [](std::int32_t room) {
      return static_cast<std::int32_t>(round_half_even(room / 2.0));
    };
    step.crop = {anchor(std::max(0, size.width - width)), anchor(std::max(0, size.height - height)), width,
                 height};
    size = {width, height};
    return {};
  }

  Decoded<void> operator()(const RandomResizedCrop& t) {
    auto random = draws();
    const double area = static_cast<double>(size.width) * size.height;
    const double log_min = exact_log(t.ratio_min), log_max = exact_log(t.ratio_max);
    decode::Rect crop;
    bool found = false;
    for (int attempt = 0; attempt < 10 && !found; ++attempt) {
      const double target = area * random.uniform(t.scale_min, t.scale_max);
      const double aspect = exact_exp(random.uniform(log_min, log_max));
      const double width = round_half_even(std::sqrt(target * aspect));
      const double height = round_half_even(std::sqrt(target / aspect));
      if (!(width > 0 && width <= size.width && height > 0 && height <= size.height)) continue;
      crop.width = static_cast<std::int32_t>(width);
      crop.height = static_cast<std::int32_t>(height);
      crop.top =
          static_cast<std::int32_t>(random.below(static_cast<std::uint32_t>(size.height - crop.height) + 1));
      crop.left =
          static_cast<std::int32_t>(random.below(static_cast<std::uint32_t>(size.width - crop.width) + 1));
      found = true;
    }
    if (!found) {
      const double ratio = static_cast<double>(size.width) / size.height;
      crop.width = size.width;
      crop.height = size.height;
      if (ratio < t.ratio_min) {
        crop.height = static_cast<std::int32_t>(round_half_even(size.width / t.ratio_min));
      } else if (ratio > t.ratio_max) {
        crop.width = static_cast<std::int32_t>(round_half_even(size.height * t.ratio_max));
      }
      // A degenerate range of ratios can round to nothing or to one more than there is.
      crop.width = std::clamp(crop.width, 1, size.width);
      crop.height = std::clamp(crop.height, 1, size.height);
      crop.top = (size.height - crop.height) / 2;
      crop.left = (size.width - crop.width) / 2;
    }
    step.crop = crop;
    return resize_to(t.size.height, t.size.width, t.interpolation);
  }

  Decoded<void> operator()(const RandomCrop& t) {
    step.kind = Step::Kind::kCrop;
    step.left = t.left, step.top = t.top, step.right = t.right, step.bottom = t.bottom;
    const auto missing = [&](std::int32_t have, std::int32_t want) {
      return t.pad_if_needed ? std::max(0, want - have) : 0;
    };
    const auto more_rows = missing(size.height + t.top + t.bottom, t.size.height);
    const auto more_columns = missing(size.width + t.left + t.right, t.size.width);
    step.top += more_rows, step.bottom += more_rows;
    step.left += more_columns, step.right += more_columns;
    const auto height = size.height + step.top + step.bottom, width = size.width + step.left + step.right;
    if (height < t.size.height || width < t.size.width) {
      return bad(BadReason::kUnsupported,
                 fmt::format("random_crop of {} x {} from {} x {} pixels (width x height): set its "
                             "pad_if_needed, or put a resize before it",
                             t.size.width, t.size.height, width, height));
    }
    auto random = draws();
    step.mode = t.mode;
    std::copy_n(t.fill, 3, step.fill.begin());
    step.crop.height = t.size.height;
    step.crop.width = t.size.width;
    step.crop.top =
        static_cast<std::int32_t>(random.below(static_cast<std::uint32_t>(height - t.size.height) + 1));
    step.crop.left =
        static_cast<std::int32_t>(random.below(static_cast<std::uint32_t>(width - t.size.width) + 1));
    size = {t.size.width, t.size.height};
    return {};
  }

  Decoded<void> operator()(const RandomHorizontalFlip& t) {
    if (draws().bernoulli(t.p)) step.kind = Step::Kind::kHorizontalFlip;
    return {};
  }
  Decoded<void> operator()(const RandomVerticalFlip& t) {
    if (draws().bernoulli(t.p)) step.kind = Step::Kind::kVerticalFlip;
    return {};
  }
  Decoded<void> operator()(const RandomRotate90&) {
    step.turns = static_cast<std::int32_t>(draws().below(4));
    if (step.turns != 0) step.kind = Step::Kind::kTurn;
    if (step.turns % 2 == 1) std::swap(size.width, size.height);
    return {};
  }
  Decoded<void> operator()(const ColorJitter& t) {
    draw(t, draws(), step);
    return {};
  }
  Decoded<void> operator()(const RandomGrayscale& t) {
    draw(t, draws(), step);
    return {};
  }
  Decoded<void> operator()(const RandAugment& t) {
    draw(t, size, draws(), step);
    return {};
  }
  Decoded<void> operator()(const TrivialAugmentWide& t) {
    draw(t, size, draws(), step);
    return {};
  }
  Decoded<void> operator()(const GaussianBlur& t) {
    if (t.kernel_width / 2 >= size.width || t.kernel_height / 2 >= size.height)
      return bad(BadReason::kUnsupported,
                 fmt::format("gaussian_blur: {} x {} pixels have nothing to reflect for a kernel of {} x {} "
                             "(width x height)",
                             size.width, size.height, t.kernel_width, t.kernel_height));
    draw(t, draws(), step);
    return {};
  }
  Decoded<void> operator()(const RandomErasing& t) {
    draw(t, size, draws(), step);
    return {};
  }
  Decoded<void> operator()(const ToY&) { return {}; }
  Decoded<void> operator()(const Normalize&) { return {}; }
  Decoded<void> operator()(const NotHere&) { return {}; }
};

/// What comes before the chain; `size` becomes what enters it.
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

// A mask's values are classes: between two of them there is no third, and colours mean nothing to it.
void keep_geometry(Step& step) {
  step.interpolation = Interpolation::kNearest;
  std::erase_if(step.ops, [](const PixelOp& op) { return !op.geometric(); });
  for (PixelOp& op : step.ops) op.warp.bilinear = false;
}

struct Describe {
  const Step& step;

  nlohmann::json crop(const char* op) const {
    return {{"op", op},
            {"padding", {step.left, step.top, step.right, step.bottom}},
            {"top", step.crop.top},
            {"left", step.crop.left},
            {"height", step.crop.height},
            {"width", step.crop.width}};
  }
  nlohmann::json operator()(const Resize&) const {
    return {{"op", "resize"}, {"height", step.size.height}, {"width", step.size.width}};
  }
  nlohmann::json operator()(const CenterCrop&) const { return crop("center_crop"); }
  nlohmann::json operator()(const RandomResizedCrop&) const {
    auto object = crop("random_resized_crop");
    object.erase("padding");
    return object;
  }
  nlohmann::json operator()(const RandomCrop&) const { return crop("random_crop"); }
  nlohmann::json operator()(const RandomHorizontalFlip&) const {
    return {{"op", "random_horizontal_flip"}, {"applied", step.kind == Step::Kind::kHorizontalFlip}};
  }
  nlohmann::json operator()(const RandomVerticalFlip&) const {
    return {{"op", "random_vertical_flip"}, {"applied", step.kind == Step::Kind::kVerticalFlip}};
  }
  nlohmann::json operator()(const RandomRotate90&) const {
    return {{"op", "random_rotate90"}, {"turns", step.turns}};
  }
  nlohmann::json operator()(const ColorJitter& t) const { return describe(t, step); }
  nlohmann::json operator()(const RandomGrayscale& t) const { return describe(t, step); }
  nlohmann::json operator()(const RandAugment& t) const { return describe(t, step); }
  nlohmann::json operator()(const TrivialAugmentWide& t) const { return describe(t, step); }
  nlohmann::json operator()(const GaussianBlur& t) const { return describe(t, step); }
  nlohmann::json operator()(const RandomErasing& t) const { return describe(t, step); }
  nlohmann::json operator()(const ToY&) const { return {{"op", "to_y"}}; }
  nlohmann::json operator()(const Normalize&) const { return {{"op", "normalize"}}; }
  nlohmann::json operator()(const NotHere&) const { return {}; }
};

/// Transforms [from, to) of an image of `size` pixels.
Decoded<void> draw_range(const PlanConfig& config, std::size_t from, std::size_t to, ImageSize size,
                         DrawKey key, std::vector<Step>& steps) {
  const std::int32_t scale = config.scale;
  size = {size.width / scale, size.height / scale};
  for (std::size_t i = from; i < to; ++i) {
    // Drawn in place: a copy of a step whose members were just written one by one stalls.
    Step& step = steps.emplace_back();
    step.transform = i;
    Drawer drawer{key, size, step};
    if (auto done = std::visit(drawer, config.transforms[i]); !done) {
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
    return bad(BadReason::kMismatch,
               fmt::format("{} x {} pixels are no multiple of the scale, {}", size.width, size.height, unit));
  const Size base{size.height / unit, size.width / unit};
  if (auto before = steps_before(config, size, steps); !before)
    return tl::make_unexpected(std::move(before.error()));
  const std::int32_t scale = config.scale;
  if (size.width % scale != 0 || size.height % scale != 0)
    return bad(BadReason::kMismatch, fmt::format("{} x {} pixels are no multiple of the scale, {}",
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
      std::find_if_not(config.transforms.begin(), config.transforms.end(), [](const Transform& transform) {
        return std::holds_alternative<Resize>(transform) || std::holds_alternative<CenterCrop>(transform) ||
               std::holds_alternative<NotHere>(transform);
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
    const Transform& transform = config.transforms[step.transform];
    if (!std::holds_alternative<NotHere>(transform)) all.push_back(std::visit(Describe{step}, transform));
  }
  return all;
}

}  // namespace headrace::server::transform

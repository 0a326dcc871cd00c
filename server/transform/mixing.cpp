#include "server/transform/mixing.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "server/sampler/philox.h"
#include "server/transform/kernels/exact_math.h"
#include "server/transform/kernels/mix_kernels.h"

namespace headrace::server::transform {
namespace {

using sampler::Draws;

constexpr std::uint32_t kMixStage = 0xFFFF0020;   // which of the two, and the box
constexpr std::uint32_t kBetaStage = 0xFFFF0021;  // lambda

/// Standard normal: the polar method (Marsaglia and Bray 1964); uses one of its two numbers.
double normal(Draws& draws) {
  while (true) {
    const double x = draws.uniform(-1, 1), y = draws.uniform(-1, 1);
    const double square = x * x + y * y;
    if (square > 0 && square < 1) return x * std::sqrt(-2 * exact_log(square) / square);
  }
}

/// Gamma(alpha, 1) for alpha >= 1 (Marsaglia and Tsang 2000, "A simple method for generating gamma
/// variables").
double gamma(double alpha, Draws& draws) {
  const double d = alpha - 1.0 / 3.0, c = 1 / std::sqrt(9 * d);
  while (true) {
    const double x = normal(draws), root = 1 + c * x;
    const double u = 1 - draws.uniform();  // not 0
    if (root <= 0) continue;
    const double v = root * root * root;
    if (exact_log(u) < 0.5 * x * x + d - d * v + d * exact_log(v)) return d * v;
  }
}

}  // namespace

double draw_beta(double alpha, const DrawKey& key) {
  Draws draws(key.seed, key.epoch, key.position, kBetaStage);
  if (alpha > 1) {
    const double own = gamma(alpha, draws), other = gamma(alpha, draws);
    return own / (own + other);
  }
  // Jöhnk 1964, in logarithms, because the powers would underflow for a small alpha.
  while (true) {
    const double log_x = exact_log(1 - draws.uniform()) / alpha;
    const double log_y = exact_log(1 - draws.uniform()) / alpha;
    const double larger = std::max(log_x, log_y), smaller = std::min(log_x, log_y);
    const double ratio = smaller - larger >= -700 ? exact_exp(smaller - larger) : 0;
    const double log_sum = larger + exact_log(1 + ratio);
    if (log_sum > 0) continue;
    const double share = 1 / (1 + ratio);  // of the larger one
    return log_x >= log_y ? share : ratio * share;
  }
}

Mixing draw_mixing(const MixConfig& config, const DrawKey& key, Size size) {
  Mixing how;
  Draws draws(key.seed, key.epoch, key.position, kMixStage);
  if (!draws.bernoulli(config.p)) return how;
  const bool cut = config.cutmix_alpha && (!config.mixup_alpha || draws.bernoulli(0.5));
  how.kind = cut ? Mixing::Kind::kCutmix : Mixing::Kind::kMixup;
  how.lambda = draw_beta(cut ? *config.cutmix_alpha : *config.mixup_alpha, key);
  if (!cut) return how;
  const auto at = [&](std::int32_t side) {
    return static_cast<std::int32_t>(draws.below(static_cast<std::uint32_t>(side)));
  };
  const std::int32_t x = at(size.width), y = at(size.height);
  const double r = 0.5 * std::sqrt(1 - how.lambda);
  const auto half_width = static_cast<std::int32_t>(r * size.width);
  const auto half_height = static_cast<std::int32_t>(r * size.height);
  const std::int32_t left = std::max(x - half_width, 0), right = std::min(x + half_width, size.width);
  const std::int32_t top = std::max(y - half_height, 0), bottom = std::min(y + half_height, size.height);
  how.box = {left, top, right - left, bottom - top};
  how.lambda = 1 - static_cast<double>(std::int64_t{how.box.width} * how.box.height) /
                       static_cast<double>(std::int64_t{size.width} * size.height);
  return how;
}

Result<ImageMixer> ImageMixer::make(const MixConfig& config, const FieldSpec& field, PixelLayout layout) {
  if (config.mixup_alpha && field.dtype == DType::kUInt8)
    return fail(
        ErrorCode::kConfigInvalid,
        "mix: mixup gives fractions, which uint8 cannot hold; set output.dtype to float32, float16 or "
        "bfloat16, or use cutmix alone");
  ImageMixer mixer;
  mixer.dtype_ = field.dtype;
  const bool planar = layout == PixelLayout::kNchw;
  const auto side = [&](std::size_t i) { return static_cast<std::int32_t>(field.shape[i]); };
  mixer.size_ = planar ? Size{side(1), side(2)} : Size{side(0), side(1)};
  const auto channels = static_cast<std::size_t>(planar ? side(0) : side(2));
  const auto height = static_cast<std::size_t>(mixer.size_.height);
  mixer.pixel_ = planar ? 1 : channels;
  mixer.lines_ = planar ? channels * height : height;
  mixer.elements_ = static_cast<std::size_t>(mixer.size_.width) * mixer.pixel_;
  return mixer;
}

void ImageMixer::mix_line(const Mixing& how, std::size_t line, std::byte* own,
                          const std::byte* partner) const {
  if (how.kind == Mixing::Kind::kMixup) return mix_values(dtype_, how.lambda, elements_, own, partner);
  const auto y = static_cast<std::int32_t>(line % static_cast<std::size_t>(size_.height));
  if (how.kind == Mixing::Kind::kNone || y < how.box.top || y >= how.box.top + how.box.height) return;
  const std::size_t element = size_of(dtype_) * pixel_;
  const std::size_t begin = static_cast<std::size_t>(how.box.left) * element;
  std::memcpy(own + begin, partner + begin, static_cast<std::size_t>(how.box.width) * element);
}

void ImageMixer::mix(const Mixing& how, std::byte* row, const std::byte* partner) const {
  const std::size_t bytes = elements_ * size_of(dtype_);
  for (std::size_t line = 0; line < lines_; ++line)
    mix_line(how, line, row + line * bytes, partner + line * bytes);
}

void ImageMixer::mix_pair(const Mixing& how, std::byte* row, const Mixing& others, std::byte* other) const {
  if (others.kind == Mixing::Kind::kNone) return mix(how, row, other);
  if (how.kind == Mixing::Kind::kNone) return mix(others, other, row);
  // Line by line, so that a copy of the row's old line fits on the stack. Plan::compile() bounds the sides.
  std::array<std::byte, 4 * std::size_t{kLargestSide} * 3> before;
  const std::size_t bytes = elements_ * size_of(dtype_);
  for (std::size_t line = 0; line < lines_; ++line) {
    std::byte* const own = row + line * bytes;
    std::byte* const partner = other + line * bytes;
    std::memcpy(before.data(), own, bytes);
    mix_line(how, line, own, partner);
    mix_line(others, line, partner, before.data());
  }
}

nlohmann::json describe(const Mixing& how, std::uint64_t partner) {
  switch (how.kind) {
    case Mixing::Kind::kNone:
      return {{"op", "mix"}, {"applied", false}};
    case Mixing::Kind::kMixup:
      return {{"op", "mixup"}, {"partner", partner}, {"lambda", how.lambda}};
    case Mixing::Kind::kCutmix:
      break;
  }
  return {{"op", "cutmix"},       {"partner", partner},     {"lambda", how.lambda},    {"top", how.box.top},
          {"left", how.box.left}, {"width", how.box.width}, {"height", how.box.height}};
}

}  // namespace headrace::server::transform

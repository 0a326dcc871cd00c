#include "server/pictures/picture.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "server/transform/ops/ops.h"
#include "server/transform/plan.h"

namespace headrace::server::pictures {
namespace {

/// REQUIRES: RGB.
Picture enlarge(const Picture& picture, std::int32_t factor) {
  Picture out{.shape = {.width = picture.shape.width * factor, .height = picture.shape.height * factor},
              .pixels = {}};
  out.pixels.reserve(std::size_t{3} * out.shape.width * out.shape.height);
  for (std::int32_t y = 0; y < out.shape.height; ++y)
    for (std::int32_t x = 0; x < out.shape.width; ++x)
      for (std::int32_t c = 0; c < 3; ++c) {
        const std::size_t pixel = std::size_t(y / factor) * picture.shape.width + std::size_t(x / factor);
        out.pixels.push_back(picture.pixels[3 * pixel + c]);
      }
  return out;
}

}  // namespace

Picture interleaved(std::span<const std::uint8_t> bytes, const decode::PixelShape& shape) {
  Picture out{.shape = shape, .pixels = {bytes.begin(), bytes.end()}};
  out.shape.planar = false;
  if (!shape.planar) return out;
  const std::size_t pixels = std::size_t(shape.width) * shape.height, channels = shape.channels;
  for (std::size_t p = 0; p < pixels; ++p)
    for (std::size_t c = 0; c < channels; ++c) out.pixels[p * channels + c] = bytes[c * pixels + p];
  return out;
}

Result<Picture> fit(const decode::ImageData& image, std::int32_t side) {
  constexpr std::uint64_t kMostPixels = 200'000'000;
  const auto undecodable = [] { return fail(ErrorCode::kBadSample, "the image cannot be decoded"); };
  decode::Decoder decoder;
  const auto size = decoder.open(image, kMostPixels);
  if (!size) return undecodable();
  const std::int32_t longest = std::max(size->width, size->height);
  const auto scaled = [&](std::int32_t length) {
    return longest <= side
               ? length
               : std::max(1, static_cast<std::int32_t>(std::lround(double(length) * side / longest)));
  };
  const std::int32_t width = scaled(size->width), height = scaled(size->height);
  const auto plan =
      transform::Plan::compile({.transforms = {transform::make_op("resize", {{"size", {height, width}}})},
                                .output = {DType::kUInt8, transform::PixelLayout::kNhwc}});
  if (!plan) return fail(plan.error());
  Picture out{.shape = {.width = width, .height = height}, .pixels = {}};
  out.pixels.resize(std::size_t{3} * width * height);
  transform::Scratch scratch;
  const auto report =
      plan->render(image, {0, 0, 0}, scratch, reinterpret_cast<std::byte*>(out.pixels.data()));
  if (report.bad != decode::BadReason::kNone) return undecodable();
  return longest < side ? enlarge(out, side / longest) : out;
}

}  // namespace headrace::server::pictures

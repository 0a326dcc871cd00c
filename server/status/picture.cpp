#include "server/status/picture.h"

#include <fmt/format.h>
#include <spng.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "clientlib/pixels/halves.h"

namespace headrace::server::status {
namespace {

/// Element `index` of a row, on the scale of the output: 0 to 255 for uint8, 0 to 1 for floats that are not
/// normalized.
double element(DType dtype, std::span<const std::byte> row, std::size_t index) {
  const std::byte* const at = row.data() + index * size_of(dtype);
  std::uint16_t half = 0;
  float single = 0;
  switch (dtype) {
    case DType::kFloat16:
      std::memcpy(&half, at, sizeof half);
      return pixels::float_of_half(half);
    case DType::kBFloat16:
      std::memcpy(&half, at, sizeof half);
      return pixels::float_of_bfloat(half);
    case DType::kFloat32:
      std::memcpy(&single, at, sizeof single);
      return single;
    default:
      return std::to_integer<std::uint8_t>(*at);
  }
}

std::uint8_t byte_of(double value) {
  return static_cast<std::uint8_t>(std::lround(std::clamp(std::isfinite(value) ? value : 0.0, 0.0, 255.0)));
}

/// `value(channel, index)`: element `index` of the stored ones.
template <class F>
Picture picture(const decode::PixelShape& shape, F value) {
  Picture out{.width = static_cast<std::uint32_t>(shape.width),
              .height = static_cast<std::uint32_t>(shape.height),
              .channels = static_cast<std::uint32_t>(shape.channels),
              .pixels = {}};
  const std::size_t pixels = std::size_t{out.width} * out.height, channels = out.channels;
  out.pixels.reserve(pixels * channels);
  for (std::size_t p = 0; p < pixels; ++p)
    for (std::size_t c = 0; c < channels; ++c)
      out.pixels.push_back(value(c, shape.planar ? c * pixels + p : p * channels + c));
  return out;
}

using Encoder = std::unique_ptr<spng_ctx, decltype(&spng_ctx_free)>;
using Bytes = std::unique_ptr<void, decltype(&std::free)>;

}  // namespace

Picture picture_of_row(const exec::FieldPlan& plan, std::span<const std::byte> row) {
  const std::vector<std::int64_t>& shape = plan.spec.shape;  // (H, W), (C, H, W) or (H, W, C)
  const bool planar = shape.size() == 3 && plan.values.planar;
  const auto side = [&](std::size_t dimension) { return static_cast<std::int32_t>(shape[dimension]); };
  const decode::PixelShape pixels{.width = side(planar ? 2 : 1),
                                  .height = side(planar ? 1 : 0),
                                  .channels = shape.size() == 2 ? 1 : side(planar ? 0 : 2),
                                  .planar = planar};
  const auto& [is_planar, mean, std] = plan.values;
  return picture(pixels, [&](std::size_t channel, std::size_t index) {
    const double value = element(plan.spec.dtype, row, index);
    if (plan.spec.dtype == DType::kUInt8) return byte_of(value);
    return byte_of((value * (std.empty() ? 1 : std[channel]) + (mean.empty() ? 0 : mean[channel])) * 255);
  });
}

Picture picture_of_pixels(std::span<const std::uint8_t> bytes, const decode::PixelShape& shape) {
  return picture(shape, [&](std::size_t, std::size_t index) { return bytes[index]; });
}

Result<std::string> to_png(const Picture& picture) {
  const Encoder encoder(spng_ctx_new(SPNG_CTX_ENCODER), &spng_ctx_free);
  if (!encoder) return fail(ErrorCode::kInternal, "libspng has no memory for an encoder");
  spng_ihdr header{};
  header.width = picture.width;
  header.height = picture.height;
  header.bit_depth = 8;
  header.color_type = picture.channels == 1 ? SPNG_COLOR_TYPE_GRAYSCALE : SPNG_COLOR_TYPE_TRUECOLOR;
  int code = spng_set_option(encoder.get(), SPNG_ENCODE_TO_BUFFER, 1);
  if (!code) code = spng_set_ihdr(encoder.get(), &header);
  if (!code)
    code = spng_encode_image(encoder.get(), picture.pixels.data(), picture.pixels.size(), SPNG_FMT_PNG,
                             SPNG_ENCODE_FINALIZE);
  std::size_t size = 0;
  const Bytes file(code ? nullptr : spng_get_png_buffer(encoder.get(), &size, &code), &std::free);
  if (!file)
    return fail(ErrorCode::kInternal,
                fmt::format("libspng cannot encode a picture: {}", spng_strerror(code)));
  return std::string(static_cast<const char*>(file.get()), size);
}

}  // namespace headrace::server::status

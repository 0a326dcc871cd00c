#include "server/status/picture.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include <fmt/format.h>

#include "clientlib/pixels/halves.h"
#include "server/pictures/png_file.h"

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

}  // namespace

pictures::Picture picture_of_row(const exec::FieldPlan& plan, std::span<const std::byte> row) {
  const std::vector<std::int64_t>& shape = plan.spec.shape;  // (H, W), (C, H, W) or (H, W, C)
  const bool planar = shape.size() == 3 && plan.values.planar;
  const auto side = [&](std::size_t dimension) { return static_cast<std::int32_t>(shape[dimension]); };
  const decode::PixelShape pixels{.width = side(planar ? 2 : 1),
                                  .height = side(planar ? 1 : 0),
                                  .channels = shape.size() == 2 ? 1 : side(planar ? 0 : 2),
                                  .planar = planar};
  const auto& [is_planar, mean, std] = plan.values;
  const std::size_t plane = std::size_t(pixels.width) * pixels.height;
  std::vector<std::uint8_t> bytes;
  bytes.reserve(plane * pixels.channels);
  for (std::size_t i = 0; i < plane * pixels.channels; ++i) {
    const double value = element(plan.spec.dtype, row, i);
    const std::size_t channel = planar ? i / plane : i % pixels.channels;
    bytes.push_back(
        plan.spec.dtype == DType::kUInt8
            ? byte_of(value)
            : byte_of((value * (std.empty() ? 1 : std[channel]) + (mean.empty() ? 0 : mean[channel])) * 255));
  }
  return pictures::interleaved(bytes, pixels);
}

Result<std::string> png_of_row(const exec::SampleMaker& maker, std::size_t field,
                               const exec::ShownRow& shown) {
  const auto picture =
      picture_of_row(maker.plans()[field], {shown.fields->fields[field].dense, maker.row_size(field)});
  const auto file = pictures::encode_png(picture.pixels, picture.shape);
  if (!file) return fail(file.error());
  return std::string(file->begin(), file->end());
}

Result<std::string> png_of_row(const exec::SampleMaker& maker, const std::string& field,
                               const exec::ShownRow& shown) {
  std::string names;
  for (std::size_t i = 0; i < maker.plans().size(); ++i) {
    const exec::FieldPlan& plan = maker.plans()[i];
    if (!plan.plan) continue;
    names += (names.empty() ? "" : ", ") + plan.spec.name;
    if (plan.spec.name == field) return png_of_row(maker, i, shown);
  }
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("no image field `{}`; image fields: {}", field, names.empty() ? "none" : names));
}

}  // namespace headrace::server::status

#include <cstring>

#include "server/transform/kernels/row_kernels.h"

namespace headrace::server::transform {
namespace {

bool reproduces(const PixelFormat& format) {
  std::array<std::uint8_t, 768 + decode::kRowSlack> bytes{};
  for (std::size_t i = 0; i < 768; ++i) bytes[i] = static_cast<std::uint8_t>(i / 3);
  std::array<std::array<std::byte, 768 * 4>, 2> rows;
  const std::size_t size = size_of(format.dtype);
  const auto target = [&](auto& row) {
    return RowTarget{row.data(), row.data() + 256 * size, row.data() + 512 * size};
  };
  write_pixels(format, bytes.data(), 256, target(rows[0]));
  scalar::write_pixels(format, bytes.data(), 256, target(rows[1]));
  return std::memcmp(rows[0].data(), rows[1].data(), 768 * size) == 0;
}

}  // namespace

PixelFormat make_pixel_format(const Output& output, const std::vector<double>& mean,
                              const std::vector<double>& std, std::int32_t channels) {
  PixelFormat format;
  format.dtype = output.dtype;
  format.layout = channels == 1 ? PixelLayout::kNchw : output.layout;
  format.channels = channels;
  format.normalized = !mean.empty();
  for (std::size_t c = 0; c < 3; ++c) {
    format.mean[c] = format.normalized ? static_cast<float>(mean[c % mean.size()]) : 0.0F;
    format.std[c] = format.normalized ? static_cast<float>(std[c % std.size()]) : 1.0F;
    format.reciprocal[c] = 1.0F / format.std[c];
  }
  using Floats = std::span<const float>;
  format.value = format.normalized
                     ? pixels::value_table(output.dtype, Floats(format.mean), Floats(format.std))
                     : pixels::value_table(output.dtype, Floats(), Floats());
  for (const auto method :
       {PixelFormat::Method::kReciprocal, PixelFormat::Method::kDivision, PixelFormat::Method::kTable}) {
    format.method = method;
    if (reproduces(format)) break;
  }
  return format;
}

}  // namespace headrace::server::transform

#include <cstring>

#include "server/transform/kernels/row_kernels.h"

namespace headrace::server::transform::scalar {

void resample_rows(const HorizontalJob& job) {
  const auto& columns = *job.columns;
  const std::size_t outputs = columns.first.size();
  for (std::size_t r = 0; r < job.in.size(); ++r) {
    for (std::size_t i = 0; i < outputs; ++i) {
      const auto* weights = columns.weights.data() + i * static_cast<std::size_t>(columns.taps);
      const auto* in = job.in[r] + std::ptrdiff_t{columns.first[i] - job.origin} * 3;
      auto* out = job.out[r] + (job.mirrored ? outputs - 1 - i : i) * 3;
      for (int c = 0; c < 3; ++c) {
        std::int32_t sum = kHalfWeight;
        for (std::int32_t k = 0; k < columns.count[i]; ++k) sum += weights[k] * in[3 * k + c];
        out[c] = clipped_byte(sum);
      }
    }
  }
}

void resample_column(const std::uint8_t* in, std::ptrdiff_t stride, const std::int32_t* weights,
                     std::int32_t count, std::size_t bytes, std::uint8_t* out) {
  for (std::size_t x = 0; x < bytes; ++x) {
    std::int32_t sum = kHalfWeight;
    for (std::int32_t k = 0; k < count; ++k)
      sum += weights[k] * in[k * stride + static_cast<std::ptrdiff_t>(x)];
    out[x] = clipped_byte(sum);
  }
}

void write_pixels(const PixelFormat& format, const std::uint8_t* rgb, std::int32_t width,
                  const RowTarget& out) {
  const std::size_t size = size_of(format.dtype);
  const bool planar = format.layout == PixelLayout::kNchw;
  for (std::size_t x = 0; x < static_cast<std::size_t>(width); ++x) {
    for (std::size_t c = 0; c < 3; ++c) {
      auto* at = planar ? out[c] + x * size : out[0] + (x * 3 + c) * size;
      const std::uint32_t value = format.value[c][rgb[x * 3 + c]];
      if (size == 4) {
        std::memcpy(at, &value, 4);
      } else if (size == 2) {
        const auto half = static_cast<std::uint16_t>(value);
        std::memcpy(at, &half, 2);
      } else {
        *at = static_cast<std::byte>(rgb[x * 3 + c]);
      }
    }
  }
}

}  // namespace headrace::server::transform::scalar

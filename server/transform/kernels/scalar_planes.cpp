#include <cstring>

#include "server/transform/kernels/plane_kernels.h"

namespace headrace::server::transform::scalar {

void cut_planes(const PlaneCut& cut, Strip rows, std::uint8_t* out) {
  const PixelView& from = cut.from;
  for (std::size_t c = 0; c < cut.channels; ++c) {
    const std::uint8_t* plane = from.at + static_cast<std::ptrdiff_t>(c) * from.plane;
    for (std::size_t i = rows.first; i < rows.first + rows.count; ++i) {
      const auto y = static_cast<std::int32_t>(i);
      const std::int32_t row = cut.flipped ? cut.window.height - 1 - y : y;
      const std::int32_t source_row = padded_index(cut.window.top + row, from.height, cut.mode);
      for (std::int32_t x = 0; x < cut.window.width; ++x) {
        const std::int32_t column = cut.mirrored ? cut.window.width - 1 - x : x;
        const std::int32_t source_column = padded_index(cut.window.left + column, from.width, cut.mode);
        *out++ = source_row < 0 || source_column < 0
                     ? cut.fill[c]
                     : plane[source_row * from.row + source_column * from.pixel];
      }
    }
  }
}

void transpose_plane(const std::uint8_t* in, std::size_t height, std::size_t width, Strip columns,
                     std::uint8_t* out) {
  for (std::size_t x = columns.first; x < columns.first + columns.count; ++x)
    for (std::size_t y = 0; y < height; ++y) *out++ = in[y * width + x];
}

void write_planes(const PixelFormat& format, const std::uint8_t* in, std::ptrdiff_t plane, std::size_t pixels,
                  std::byte* out, std::size_t out_plane) {
  const std::size_t size = size_of(format.dtype);
  const auto channels = static_cast<std::size_t>(format.channels);
  const bool planar = format.layout == PixelLayout::kNchw;
  for (std::size_t c = 0; c < channels; ++c) {
    const std::uint8_t* const from = in + static_cast<std::ptrdiff_t>(c) * plane;
    for (std::size_t i = 0; i < pixels; ++i) {
      std::byte* const at = out + (planar ? c * out_plane + i : i * channels + c) * size;
      const std::uint32_t value = format.dtype == DType::kUInt8 ? from[i] : format.value[c][from[i]];
      std::memcpy(at, &value, size);  // little-endian: the low bytes
    }
  }
}

}  // namespace headrace::server::transform::scalar

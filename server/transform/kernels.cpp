#include "server/transform/kernels.h"

namespace headrace::server::transform {

void resample_rows(const HorizontalJob& job, std::vector<std::uint8_t>&) {
  scalar::resample_rows(job);
}
void resample_column(const std::uint8_t* in, std::ptrdiff_t stride, const std::int32_t* weights,
                     std::int32_t count, std::size_t bytes, std::uint8_t* out) {
  scalar::resample_column(in, stride, weights, count, bytes, out);
}
void write_pixels(const PixelFormat& format, const std::uint8_t* rgb, std::int32_t width,
                  const RowTarget& out) {
  scalar::write_pixels(format, rgb, width, out);
}

}  // namespace headrace::server::transform

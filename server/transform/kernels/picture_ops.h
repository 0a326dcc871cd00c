// Operations in which a result pixel depends on several pixels of the picture, or on one at another position.
#pragma once

#include <array>
#include <cstdint>

#include "server/decode/decoder.h"
#include "server/transform/kernels/pixel_ops.h"

namespace headrace::server::transform {

/// RGB, rows `stride` bytes apart.
struct PictureView {
  const std::uint8_t* pixels = nullptr;
  std::size_t stride = 0;
  decode::ImageSize size;

  [[nodiscard]] const std::uint8_t* row(std::int32_t y) const {
    return pixels + static_cast<std::size_t>(y) * stride;
  }
};

/// PIL's ImageEnhance.Sharpness: row y of a blend of the picture and its SMOOTH filter (which keeps edges
/// unchanged).
void sharpen_row(const PictureView& in, float factor, std::int32_t y, std::uint8_t* out);

/// Shears, translations and rotations as torchvision requests them from Pillow, by Pillow's arithmetic
/// (libImaging's Geometry.c): nearest in 16.16 fixed point if all corners fit, bilinear and everything else
/// in doubles. Sines are exact_math's, so a pixel at the very edge of a rounding may differ from that of a
/// libm that rounds differently.
class WarpRows {
 public:
  /// `op` is geometric; the pixels must outlive this object.
  WarpRows(const PixelOp& op, const PictureView& in);
  /// Makes the next row, from the topmost on.
  void next(std::uint8_t* out);

 private:
  void nearest(std::uint8_t* out);
  void bilinear(std::uint8_t* out) const;

  PictureView in_;
  Warp warp_;
  std::array<double, 6> matrix_;  // from the output's coordinates to the input's
  bool fixed_ = false;
  std::array<std::int64_t, 6> fixed_matrix_{};
  std::int32_t y_ = 0;
  double x_start_ = 0, y_start_ = 0;  // start of the row, in doubles
};

/// ImageOps.autocontrast and ImageOps.equalize, without arguments.
ByteTable autocontrast_table(const PictureView& in);
ByteTable equalize_table(const PictureView& in);
ByteTable posterize_table(int bits);
/// threshold: the least value that is inverted.
ByteTable solarize_table(double threshold);

}  // namespace headrace::server::transform

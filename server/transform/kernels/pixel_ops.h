// What augmentations do to the pixels of a picture, with the random parts drawn.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace headrace::server::transform {

/// Both ends can be drawn.
struct Bounds {
  double low = 1, high = 1;
};

/// How values between pixels are computed when a picture is sheared, translated or rotated, and what is
/// beyond its edges.
struct Warp {
  bool bilinear = false;  ///< else nearest
  std::array<std::uint8_t, 3> fill{};
};

/// One operation of a stage.
struct PixelOp {
  enum class Kind : std::uint8_t {
    kIdentity,
    kShearX,  ///< these five keep the picture's size
    kShearY,
    kTranslateX,
    kTranslateY,
    kRotate,
    kBrightness,
    kSaturation,
    kContrast,   ///< blends with the mean gray of the whole picture
    kSharpness,  ///< blends with PIL's SMOOTH
    kPosterize,
    kSolarize,
    kAutoContrast,
    kEqualize,
    kHue,
    kGrayscale,
    kBlur,
  };
  Kind kind = Kind::kIdentity;
  /// The factor of blends. kHue: turns; kShear: tangents; kTranslate: pixels to the right or down; kRotate:
  /// degrees, counter-clockwise; kPosterize: bits; kSolarize: the least value that is inverted; kBlur: sigma.
  double factor = 1;
  double magnitude = 0;  ///< torchvision's magnitude in its lists of augmentations
  Warp warp;             ///< for the geometric operations
  std::int32_t kernel_width = 1, kernel_height = 1;  ///< kBlur

  [[nodiscard]] bool geometric() const { return kind >= Kind::kShearX && kind <= Kind::kRotate; }
};

/// Whether result pixels depend on other positions of the picture, too.
inline bool moves_pixels(const PixelOp& op) {
  return op.geometric() || op.kind == PixelOp::Kind::kSharpness || op.kind == PixelOp::Kind::kBlur;
}

/// The offset that kHue adds to H: torchvision's adjust_hue truncates toward zero, then takes it modulo 256.
inline std::uint8_t hue_shift(double turns) {
  return static_cast<std::uint8_t>(static_cast<std::int32_t>(turns * 255.0));
}

/// The new value of each byte of each channel.
using ByteTable = std::array<std::array<float, 256>, 3>;

/// One operation that depends on one pixel only.
struct PointOp {
  /// A blend of a (equal in all channels) and the pixel b is a + factor * (b - a), clipped to 0..255 and
  /// truncated to an integer: libImaging's Blend.c, in single precision without fused multiply-add.
  enum class Kind : std::uint8_t {
    kBlendConstant,
    kBlendGray,  ///< with the pixel's own gray
    kHue,        ///< libImaging's rgb2hsv and hsv2rgb; `shift` is added to H, modulo 256
    kTable,
  };
  Kind kind = Kind::kBlendConstant;
  float factor = 1;
  std::uint8_t constant = 0;
  std::uint8_t shift = 0;
  const ByteTable* table = nullptr;
};

/// Applies all of `ops` to a row of RGB pixels, one after the other. `out` is `in` or does not overlap it.
/// Reads decode::kRowSlack past the row's end, writes kWriteSlack past it. Gray is PIL's "L": (19595 R +
/// 38470 G + 7471 B + 32768) >> 16. With `sum` returns the sum of the result's grays, else 0.
std::uint64_t apply_ops(std::span<const PointOp> ops, const std::uint8_t* in, std::size_t width,
                        std::uint8_t* out, bool sum);

/// out[i] = the sum over k < count of weights[k] * rows[k][i], in this order and without fused multiply-add,
/// for i < size, in single precision. Reads and writes up to 64 bytes past the end.
void weighted_sum(const float* const* rows, const float* weights, std::size_t count, std::size_t size,
                  float* out);

namespace scalar {
void weighted_sum(const float* const* rows, const float* weights, std::size_t count, std::size_t size,
                  float* out);
/// libImaging's method: the reference that the kernels are tested against.
std::uint64_t apply_ops(std::span<const PointOp> ops, const std::uint8_t* in, std::size_t width,
                        std::uint8_t* out, bool sum);
}  // namespace scalar

}  // namespace headrace::server::transform

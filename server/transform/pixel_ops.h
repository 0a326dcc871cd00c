// What augmentations do to the pixels of a picture, their random parts drawn.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "server/transform/augmentations.h"

namespace headrace::server::transform {

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
  };
  Kind kind = Kind::kIdentity;
  /// Of the blends. kHue: turns; kShear: tangents; kTranslate: pixels to the right or down; kRotate: degrees,
  /// counter-clockwise; kPosterize: bits; kSolarize: the least value that is inverted.
  double factor = 1;
  double magnitude = 0;  ///< torchvision's, of its augmentation lists
  Warp warp;             ///< of the geometric ones

  [[nodiscard]] bool geometric() const { return kind >= Kind::kShearX && kind <= Kind::kRotate; }
};

/// What a byte of each channel becomes.
using ByteTable = std::array<std::array<float, 256>, 3>;

/// One operation on each pixel alone.
struct PointOp {
  /// A blend of a (all channels alike) and the pixel b is a + factor * (b - a), cut to 0..255 and to an
  /// integer: libImaging's Blend.c, in single precision without fused multiply-add.
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

/// Applies all of `ops` to a row of RGB pixels, one after the other. `out` is `in` or does not overlap with
/// it. Reads decode::kRowSlack past the row's end, writes kWriteSlack past it.
/// Gray is PIL's "L": (19595 R + 38470 G + 7471 B + 32768) >> 16. With `sum` returns the sum of the result's,
/// else 0.
std::uint64_t apply_ops(std::span<const PointOp> ops, const std::uint8_t* in, std::size_t width,
                        std::uint8_t* out, bool sum);

namespace scalar {
/// As libImaging does it: the twin that the kernels are tested against.
std::uint64_t apply_ops(std::span<const PointOp> ops, const std::uint8_t* in, std::size_t width,
                        std::uint8_t* out, bool sum);
}  // namespace scalar

}  // namespace headrace::server::transform

// What augmentations do to the pixels of a picture, their random parts drawn.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace headrace::server::transform {

/// One operation of a stage. Names are those of torchvision's functions.
struct PixelOp {
  enum class Kind : std::uint8_t {
    kBrightness,
    kContrast,  ///< blends with the mean gray of the whole picture
    kSaturation,
    kHue,
    kGrayscale,
  };
  Kind kind = Kind::kBrightness;
  float factor = 1;  ///< of the blends; kHue: turns
};

/// One operation on each pixel alone.
struct PointOp {
  /// A blend of a (all channels alike) and the pixel b is a + factor * (b - a), cut to 0..255 and to an
  /// integer: libImaging's Blend.c, in single precision without fused multiply-add.
  enum class Kind : std::uint8_t {
    kBlendConstant,
    kBlendGray,  ///< with the pixel's own gray
    kHue,        ///< libImaging's rgb2hsv and hsv2rgb; `shift` is added to H, modulo 256
  };
  Kind kind = Kind::kBlendConstant;
  float factor = 1;
  std::uint8_t constant = 0;
  std::uint8_t shift = 0;
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

// What is done to one picture of a batch on the device, its random parts drawn: the contract between the
// server, which draws, and the transform kernel. Part of the ring: a dense uint8 field of sizeof(RowSteps).
//
// A picture goes through these, in this order:
//   crop      of the picture; beyond its edges `padding` says what is there
//   resize    to `resized`, of which `window` is kept (else the window is the crop). Then the crop may reach
//             beyond the picture, which needs to have no more of it than the window is made of
//   flips     then a transposition: rows become columns
//   pixels    `op_count` of `ops`
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace headrace::pixels {

// The numbers of all of these are part of RowSteps.
enum class Interpolation : std::uint8_t { kBilinear, kBicubic, kNearest };
enum class PaddingMode : std::uint8_t { kConstant, kEdge, kReflect, kSymmetric };
enum class PixelLayout : std::uint8_t { kNchw, kNhwc };

enum class PixelStepKind : std::uint8_t {
  kBrightness,  ///< PIL's ImageEnhance by `factor`, as are the next two
  kContrast,
  kSaturation,
  kHue,    ///< `shift` is added to H, modulo 256
  kGray,   ///< PIL's "L" in all channels
  kLuma,   ///< BT.601's Y of 16 to 235 in all channels
  kCount,  ///< of kinds
};

struct PixelStep {
  PixelStepKind kind = PixelStepKind::kBrightness;
  std::uint8_t shift = 0;
  std::uint16_t reserved = 0;
  float factor = 1;
};

inline constexpr std::uint32_t kRowStepsVersion = 1;
inline constexpr std::size_t kMaxPixelSteps = 8;
/// Of what goes through the kernel: sides of a picture, of an output row, and of what lies between the two.
inline constexpr std::int32_t kMaxPictureSide = 65'535;
inline constexpr std::int32_t kMaxOutputSide = 16'384;
inline constexpr std::int32_t kMaxResizedSide = 1 << 20;
/// A resize makes a side at most so many times smaller, and longer sides than these are reflected at most
/// once at either end: all that a pixel is made of has room in the kernel's shared memory then.
inline constexpr std::int32_t kMaxShrink = 256;
inline constexpr std::int32_t kMaxReflectedOften = 128;

/// Left and top may be negative where pictures are padded.
struct PixelRect {
  std::int32_t left = 0, top = 0, width = 0, height = 0;
};

struct RowSteps {
  enum Flags : std::uint8_t {
    kResized = 1,
    kVerticalFirst = 2,  ///< the order of the resize's passes, each of which rounds to bytes
    kMirrored = 4,       ///< left to right
    kFlipped = 8,        ///< top to bottom
    kTransposed = 16,    ///< after the flips
    kAllFlags = 31,
  };
  std::uint32_t version = kRowStepsVersion;
  std::uint8_t flags = 0;
  Interpolation interpolation = Interpolation::kBilinear;
  PaddingMode padding = PaddingMode::kConstant;  ///< kConstant: `fill`
  std::uint8_t op_count = 0;
  std::uint8_t fill[3] = {0, 0, 0};
  std::uint8_t reserved = 0;
  PixelRect crop;
  std::int32_t resized_width = 0, resized_height = 0;  ///< the crop's if it is not resized
  PixelRect window;                                    ///< of `resized`; its size is the output's
  std::uint32_t reserved_words[3] = {0, 0, 0};
  PixelStep ops[kMaxPixelSteps];
};

static_assert(std::is_trivially_copyable_v<RowSteps> && std::is_standard_layout_v<RowSteps>);
static_assert(sizeof(PixelStep) == 8 && sizeof(RowSteps) == 128 && alignof(RowSteps) == 4);
static_assert(offsetof(RowSteps, flags) == 4 && offsetof(RowSteps, fill) == 8 &&
              offsetof(RowSteps, crop) == 12 && offsetof(RowSteps, resized_width) == 28 &&
              offsetof(RowSteps, window) == 36 && offsetof(RowSteps, ops) == 64 &&
              offsetof(PixelStep, factor) == 4);

}  // namespace headrace::pixels

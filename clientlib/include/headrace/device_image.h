// How a device computes an image field of a batch (`device: gpu`, `residence: gpu`). It applies the last
// transforms of the chain: those that move whole pixels, and those that change each pixel on its own.
//
//   source image (uint8, interleaved) -> geometric transforms (Move) -> color steps (PixelStep)
//     -> values, dtype and layout -> erasing
//
// CUDA's compiler reads this header as C++17: use nothing newer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace headrace {

namespace pixels {

enum class PaddingMode : std::uint8_t { kConstant, kEdge, kReflect, kSymmetric };
enum class PixelLayout : std::uint8_t { kNchw, kNhwc };

}  // namespace pixels

inline constexpr std::int32_t kMaxMoves = 8;
inline constexpr std::int32_t kMaxPixelSteps = 8;
inline constexpr std::int32_t kMaxDeviceSide = 4096;  ///< pixels a side, before and after each transform

/// A geometric transform: a crop, a flip or a 90-degree rotation.
struct Move {
  enum class Kind : std::uint8_t { kCrop, kHorizontalFlip, kVerticalFlip, kTurn };
  Kind kind = Kind::kCrop;
  std::uint32_t stage = 0;             ///< index in the chain; part of the key of its draws
  std::int32_t height = 0, width = 0;  ///< of the result
  std::int32_t top = 0, left = 0;      ///< kCrop: the smallest offset; negative in the padding
  std::int32_t rows = 1, columns = 1;  ///< kCrop: the number of offsets down and across; one is drawn
  pixels::PaddingMode padding = pixels::PaddingMode::kConstant;
  std::uint8_t fill[3] = {0, 0, 0};  ///< for PaddingMode::kConstant
  double p = 1;                      ///< flips: the probability

  friend bool operator==(const Move& a, const Move& b) {
    return a.kind == b.kind && a.stage == b.stage && a.height == b.height && a.width == b.width &&
           a.top == b.top && a.left == b.left && a.rows == b.rows && a.columns == b.columns &&
           a.padding == b.padding && a.fill[0] == b.fill[0] && a.fill[1] == b.fill[1] &&
           a.fill[2] == b.fill[2] && a.p == b.p;
  }
};

/// A color step: it changes each pixel on its own (kContrast also uses the image's mean gray). The values of
/// Kind are part of RowSteps' format.
struct PixelStep {
  enum class Kind : std::uint8_t {
    kBrightness,  ///< this and the next two: PIL's ImageEnhance with `factor`
    kContrast,    ///< blends with the mean gray of the image
    kSaturation,
    kHue,   ///< adds `shift` to H, modulo 256
    kGray,  ///< PIL's "L" in all channels
    kLuma,  ///< BT.601's Y (16 to 235) in all channels
  };
  Kind kind = Kind::kBrightness;
  std::uint8_t shift = 0;
  std::uint16_t reserved = 0;
  float factor = 1;
  std::uint64_t gray_sum = 0;  ///< kContrast: the server writes 0, the device sums the image's grays here
};

/// The server's random draws for one row of a batch. In the ring they follow the row's source image, at the
/// next multiple of 16 bytes. The kernel is safe with any bytes here.
struct alignas(16) RowSteps {
  /// For each geometric transform: 90-degree rotations, counter-clockwise; for a flip 1 if it is applied.
  std::uint8_t turns[kMaxMoves] = {};
  /// The rectangle to erase in the row; width 0: none.
  std::uint16_t erased_top = 0, erased_left = 0, erased_height = 0, erased_width = 0;
  std::uint32_t step_count = 0;
  std::uint32_t reserved = 0;
  PixelStep steps[kMaxPixelSteps];
  std::uint64_t reserved_end = 0;  ///< so that every byte in the ring is written
};

static_assert(std::is_trivially_copyable_v<RowSteps> && std::is_standard_layout_v<RowSteps>);
static_assert(sizeof(PixelStep) == 16 && offsetof(PixelStep, factor) == 4 &&
              offsetof(PixelStep, gray_sum) == 8);
static_assert(sizeof(RowSteps) == 160 && offsetof(RowSteps, erased_top) == 8 &&
              offsetof(RowSteps, step_count) == 16 && offsetof(RowSteps, steps) == 24);

/// How the device computes the rows of one field.
struct DeviceImage {
  std::uint32_t field = 0;                                  ///< index in StreamInfo::fields
  std::int32_t height = 0, width = 0, channels = 0;         ///< of source images; channels: 3, or 1 for gray
  std::vector<Move> moves;                                  ///< at most kMaxMoves
  std::uint32_t color_steps = 0;                            ///< the most color steps that a row can have
  std::uint32_t contrasts = 0;                              ///< the most contrast changes among them
  pixels::PixelLayout layout = pixels::PixelLayout::kNchw;  ///< of rows
  std::vector<double> mean, std;  ///< normalize: one per channel of the rows; both empty: x / 255 only
  std::vector<double> erased;     ///< random_erasing: one value, or one per channel; empty: no erasing

  /// Bytes of a source image and its RowSteps in the ring.
  [[nodiscard]] std::uint64_t row_bytes() const { return steps_offset() + sizeof(RowSteps); }
  [[nodiscard]] std::uint64_t steps_offset() const {
    constexpr std::uint64_t kAlignment = alignof(RowSteps);
    return (picture_bytes() + kAlignment - 1) / kAlignment * kAlignment;
  }
  [[nodiscard]] std::uint64_t picture_bytes() const {
    return static_cast<std::uint64_t>(height) * static_cast<std::uint64_t>(width) *
           static_cast<std::uint64_t>(channels);
  }

  friend bool operator==(const DeviceImage& a, const DeviceImage& b) {
    return a.field == b.field && a.height == b.height && a.width == b.width && a.channels == b.channels &&
           a.moves == b.moves && a.color_steps == b.color_steps && a.contrasts == b.contrasts &&
           a.layout == b.layout && a.mean == b.mean && a.std == b.std && a.erased == b.erased;
  }
};

}  // namespace headrace

// One transform of a chain, its arguments fixed. Each has a file in server/transform/ops; names and meaning
// are those of torchvision.transforms.v2's class, and pixels those of its PIL backend, bit for bit, unless
// the file says otherwise. What is drawn is distributed as there.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/device_image.h"
#include "server/sampler/philox.h"
#include "server/transform/geometry.h"
#include "server/transform/kernels.h"

namespace headrace::server::transform {

/// What a chain does to the values of its finished pixels.
struct Values {
  bool luma = false;              ///< of one channel, BT.601's
  std::vector<double> mean, std;  ///< one per channel; empty: not normalized
  std::vector<double> erased;     ///< what random_erasing writes: one value, or one per channel
  std::int32_t erasings = 0;      ///< how many transforms erase
  bool noise = false;             ///< one of them writes random values
};

/// What is known of the images between two transforms.
struct ChainState {
  std::size_t channels;
  DType dtype;               ///< of the output
  std::optional<Size> size;  ///< none: it differs between images
};

/// What a device has to hold for a transform: see RowSteps.
struct DeviceShare {
  std::int32_t moves = 0, steps = 0, contrasts = 0;
};

class Op {
 public:
  /// In this order along a chain.
  enum class Stage : std::uint8_t { kPixels, kLuma, kNormalize, kErase };
  struct Traits {
    Stage stage = Stage::kPixels;
    bool draws = true;      ///< what it does depends on the DrawKey
    bool geometry = false;  ///< it moves or resamples pixels, and does nothing else to them
    bool crops = false, resizes = false;
    bool masks = false;  ///< it has a meaning for masks, whose values are classes
  };

  virtual ~Op() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;
  /// All arguments in their canonical form.
  [[nodiscard]] virtual nlohmann::json arguments() const = 0;
  [[nodiscard]] virtual Traits traits() const = 0;

  /// What is wrong that the schema of the arguments cannot say; empty: nothing. `state` becomes that of what
  /// leaves the transform.
  virtual std::string check(ChainState& state) const;
  /// Adds what it does to the values.
  virtual void add_to(Values& values) const;
  /// Fills `step`, whose place in the chain is set, for an image of `size`; `size` becomes what leaves the
  /// transform. Refused where torchvision raises.
  virtual decode::Decoded<void> draw(DrawKey key, decode::ImageSize& size, Step& step) const;
  /// A step that it drew, as torchvision would be told; null: nothing.
  [[nodiscard]] virtual nlohmann::json describe(const Step& step) const;
  /// Writes its rectangle into a finished row; `step` is kErase.
  virtual void erase(const Step& step, const PixelFormat& format, Size size, std::byte* row) const;

  /// What a device behind the server's resize has to hold for it (`device: gpu`); none: the server does it.
  [[nodiscard]] virtual std::optional<DeviceShare> device_share() const;
  /// A device moves pixels instead (`residence: gpu`): how. `size`: of the image, becomes that of the result.
  [[nodiscard]] virtual std::optional<Move> move(Size& size) const;
  /// Why it cannot be done on a device out of a resident set, with images of so many channels; empty: it can.
  [[nodiscard]] virtual std::string resident_obstacle(std::int32_t channels) const;
};

/// A transform that does nothing, in the place of one that is for other fields: draws are keyed by the place.
const Transform& skipped();
bool is_skipped(const Transform& transform);

inline sampler::Draws draws_of(DrawKey key, const Step& step) {
  return sampler::Draws(key.seed, key.epoch, key.position, static_cast<std::uint32_t>(step.transform));
}

/// Makes `step` a resize to this size. Refused: a side of zero, or one longer than kLargestResize.
decode::Decoded<void> resize_to(std::int64_t height, std::int64_t width, Interpolation interpolation,
                                decode::ImageSize& size, Step& step);
/// Of a side before the window that is wanted of it: leaves room for padding in an int32.
inline constexpr std::int64_t kLargestResize = std::int64_t{1} << 28;

}  // namespace headrace::server::transform

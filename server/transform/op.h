// One transform of a chain, with fixed arguments. Each has a file in server/transform/ops; names and meaning
// are those of the class in torchvision.transforms.v2, and pixels equal its PIL backend's bit for bit, unless
// the file says otherwise. Random draws have the same distribution.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/device_image.h"
#include "server/sampler/philox.h"
#include "server/transform/draw_steps.h"
#include "server/transform/kernels/row_kernels.h"

namespace headrace::server::transform {

/// What a chain does to the values of its finished pixels.
struct Values {
  bool luma = false;              ///< one channel: BT.601's luma
  std::vector<double> mean, std;  ///< one per channel; empty: not normalized
  std::vector<double> erased;     ///< what random_erasing writes: one value, or one per channel
  std::int32_t erasings = 0;      ///< how many transforms erase
  bool noise = false;             ///< one of them writes random values
};

/// What is known about the images between two transforms.
struct ChainState {
  std::size_t channels;
  DType dtype;               ///< of the output
  std::optional<Size> size;  ///< none: it differs between images
};

/// What a device must store for a transform: see RowSteps.
struct DeviceShare {
  std::int32_t moves = 0, steps = 0, contrasts = 0;
};

class Op {
 public:
  /// Transforms of these stages must be in this order in a chain.
  enum class Stage : std::uint8_t { kPixels, kLuma, kNormalize, kErase };
  struct Traits {
    Stage stage = Stage::kPixels;
    bool draws = true;      ///< its effect depends on the DrawKey
    bool geometry = false;  ///< it moves or resamples pixels, and does nothing else to them
    bool crops = false, resizes = false;
    bool masks = false;  ///< it applies to masks, whose values are classes
  };

  virtual ~Op() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;
  /// All arguments in their canonical form.
  [[nodiscard]] virtual nlohmann::json arguments() const = 0;
  [[nodiscard]] virtual Traits traits() const = 0;

  /// What is wrong that the arguments' schema cannot express; empty: nothing. `state` becomes the state after
  /// the transform.
  virtual std::string check(ChainState& state) const;
  /// A warning for `headrace check`: the arguments are valid, but probably a mistake. Empty: no warning.
  [[nodiscard]] virtual std::string warning() const;
  /// Adds its effect on the values.
  virtual void add_to(Values& values) const;
  /// Fills `step`, whose index in the chain is set, for an image of `size`; `size` becomes the result's.
  /// Refuses what torchvision refuses.
  virtual decode::Decoded<void> draw(DrawKey key, decode::ImageSize& size, Step& step) const;
  /// A step that it drew, in torchvision's terms; null: nothing.
  [[nodiscard]] virtual nlohmann::json describe(const Step& step) const;
  /// Writes its rectangle into a finished row; `step` is kErase.
  virtual void erase(const Step& step, const PixelFormat& format, Size size, std::byte* row) const;

  /// What a device after the server's resize must store for it (`device: gpu`); none: the server does it.
  [[nodiscard]] virtual std::optional<DeviceShare> device_share() const;
  /// How a device moves pixels instead (`residence: gpu`). `size`: the image's, becomes the result's.
  [[nodiscard]] virtual std::optional<Move> move(Size& size) const;
  /// Why a device cannot apply it to a resident dataset of images with so many channels; empty: it can.
  [[nodiscard]] virtual std::string resident_obstacle(std::int32_t channels) const;
};

/// A transform that does nothing and replaces one for other fields: draws are keyed by the index in the
/// chain.
const Transform& skipped();
bool is_skipped(const Transform& transform);

inline sampler::Draws draws_of(DrawKey key, const Step& step) {
  return sampler::Draws(key.seed, key.epoch, key.position, static_cast<std::uint32_t>(step.transform));
}

/// Makes `step` a resize to this size. Refuses a side of zero, or one longer than kLargestResize.
decode::Decoded<void> resize_to(std::int64_t height, std::int64_t width, Interpolation interpolation,
                                decode::ImageSize& size, Step& step);
/// Limit of a side before a window is cut from it: leaves room for padding in an int32.
inline constexpr std::int64_t kLargestResize = std::int64_t{1} << 28;

}  // namespace headrace::server::transform

#include "server/transform/stages/stage.h"

#include <algorithm>
#include <utility>

namespace headrace::server::transform {
namespace {

using decode::ImageSize;
using decode::Rect;

class Builder {
 public:
  Builder(ImageSize size, Stages& stages) : stages_(stages) {
    stages_.clear();
    start(size);
  }

  // `crop` is in coordinates of the current image; `mode` and `fill` define what is outside the image.
  void crop(Rect crop, PaddingMode mode, std::array<std::uint8_t, 3> fill) {
    after_colors();
    const ImageSize seen = current();
    if (mirrored_) crop.left = seen.width - crop.left - crop.width;
    if (flipped_) crop.top = seen.height - crop.top - crop.height;
    if (transposed_) crop = {crop.top, crop.left, crop.height, crop.width};
    const ImageSize size{stage().window.width, stage().window.height};
    const bool inside = crop.left >= 0 && crop.top >= 0 && crop.left + crop.width <= size.width &&
                        crop.top + crop.height <= size.height;
    if (!inside && (stage().resized || stage().crop != Rect{0, 0, stage().input.width, stage().input.height}))
      finish();
    Rect& rect = stage().resized ? stage().window : stage().crop;
    rect = {rect.left + crop.left, rect.top + crop.top, crop.width, crop.height};
    if (!inside) {
      stage().padded = true;
      stage().mode = mode;
      stage().fill = fill;
    }
    if (!stage().resized) whole_crop();
  }

  void resize(ImageSize size, Interpolation interpolation) {
    const ImageSize seen = current();
    if (size == seen) return;  // torchvision returns the image unchanged
    after_colors();
    if (stage().resized || stage().padded || mirrored_ || flipped_ || transposed_) {
      orient();
      finish();
    }
    stage().resized = true;
    stage().size = size;
    stage().interpolation = interpolation;
    stage().window = {0, 0, size.width, size.height};
  }

  void color(const std::vector<PixelOp>& ops) {
    stage().ops.insert(stage().ops.end(), ops.begin(), ops.end());
  }
  void mirror() {
    before_turning();
    mirrored_ = !mirrored_;
  }
  void flip() {
    before_turning();
    flipped_ = !flipped_;
  }
  /// Counter-clockwise: rows become columns, then top and bottom are swapped.
  void turn() {
    before_turning();
    std::swap(mirrored_, flipped_);
    transposed_ = !transposed_;
    flip();
  }

  void end() { orient(); }

 private:
  void start(ImageSize size) {
    stages_.emplace_back();
    stage().input = size;
    stage().crop = {0, 0, size.width, size.height};
    whole_crop();
  }
  [[nodiscard]] ImageSize current() const {
    const Rect& window = stage().window;
    return transposed_ ? ImageSize{window.height, window.width} : ImageSize{window.width, window.height};
  }
  void whole_crop() {
    stage().size = {stage().crop.width, stage().crop.height};
    stage().window = {0, 0, stage().crop.width, stage().crop.height};
  }
  /// The stage flips before it transposes; the orientation is defined the other way round.
  void orient() {
    stage().mirrored = transposed_ ? flipped_ : mirrored_;
    stage().flipped = transposed_ ? mirrored_ : flipped_;
    stage().transposed = transposed_;
    mirrored_ = flipped_ = transposed_ = false;
  }
  /// Flips and turns may be done before colors change, but not before the picture moves.
  void before_turning() {
    if (std::any_of(stage().ops.begin(), stage().ops.end(), moves_pixels)) after_colors();
  }
  void after_colors() {
    if (stage().ops.empty()) return;
    orient();
    finish();
  }
  void finish() { start(stage().output()); }

  /// Built in place: copying single bytes that were just written would stall.
  [[nodiscard]] Stage& stage() { return stages_.back(); }
  [[nodiscard]] const Stage& stage() const { return stages_.back(); }

  Stages& stages_;
  // The current image relative to the stage's window: transposed first, then flipped.
  bool mirrored_ = false, flipped_ = false, transposed_ = false;
};

}  // namespace

void stages_of(const std::vector<Step>& steps, ImageSize size, Stages& stages) {
  Builder builder(size, stages);
  for (const auto& step : steps) {
    switch (step.kind) {
      case Step::Kind::kResize:
        // RandomResizedCrop includes its crop.
        if (step.crop.width > 0) builder.crop(step.crop, PaddingMode::kConstant, {});
        builder.resize({step.size.width, step.size.height}, step.interpolation);
        break;
      case Step::Kind::kCrop:
        builder.crop(
            {step.crop.left - step.left, step.crop.top - step.top, step.crop.width, step.crop.height},
            step.mode, step.fill);
        break;
      case Step::Kind::kHorizontalFlip:
        builder.mirror();
        break;
      case Step::Kind::kVerticalFlip:
        builder.flip();
        break;
      case Step::Kind::kTurn:
        for (std::int32_t i = 0; i < step.turns; ++i) builder.turn();
        break;
      case Step::Kind::kPixels:
        builder.color(step.ops);
        break;
      case Step::Kind::kErase:  // applied to the finished row
      case Step::Kind::kNone:
        break;
    }
  }
  builder.end();
}

bool vertical_first(const Stage& stage, ResizePasses passes) {
  const std::int64_t lost_rows = std::int64_t{stage.crop.height} - stage.size.height;
  const std::int64_t lost_columns = std::int64_t{stage.crop.width} - stage.size.width;
  return passes == ResizePasses::kPillow13 && lost_columns != 0 && lost_rows > 0 &&
         lost_rows > 2 * lost_columns;
}

std::size_t bytes_between(std::span<const Stage> stages, ResizePasses passes) {
  const auto bytes = [](std::int32_t width, std::int32_t height) {
    return static_cast<std::size_t>(width) * static_cast<std::size_t>(height) * 3;
  };
  std::size_t sum = 0;
  for (const Stage& stage : stages) {
    if (&stage != &stages.back()) sum += bytes(stage.window.width, stage.window.height);
    if (stage.transposed) sum += bytes(stage.window.width, stage.window.height);
    if (stage.resized && !vertical_first(stage, passes)) sum += bytes(stage.window.width, stage.crop.height);
  }
  return sum;
}

}  // namespace headrace::server::transform

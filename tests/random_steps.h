// Random pictures and steps for device transforms, without a server.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "headrace/gpu_transform.h"

namespace headrace::gpu::testing {

/// Reproducible everywhere: std's distributions are not.
class StepMaker {
 public:
  explicit StepMaker(std::uint32_t seed) : random_(seed) {}

  std::uint32_t bits() { return static_cast<std::uint32_t>(random_()); }
  std::int32_t between(std::int32_t low, std::int32_t high) {
    return low + static_cast<std::int32_t>(bits() % static_cast<std::uint32_t>(high - low + 1));
  }
  bool coin() { return bits() % 2 == 0; }

  /// What a server could draw for a picture of that size.
  pixels::RowSteps steps(std::int32_t width, std::int32_t height, const TransformOutput& output,
                         bool colours) {
    pixels::RowSteps steps;
    std::int32_t out_width = output.width, out_height = output.height;
    const auto flag = [&](pixels::RowSteps::Flags value) {
      steps.flags = static_cast<std::uint8_t>(steps.flags | value);
    };
    if (coin()) flag(pixels::RowSteps::kMirrored);
    if (between(0, 3) == 0) flag(pixels::RowSteps::kFlipped);
    if (between(0, 3) == 0) {
      flag(pixels::RowSteps::kTransposed);
      std::swap(out_width, out_height);
    }
    if (between(0, 3) == 0) {
      steps.padding = static_cast<pixels::PaddingMode>(between(0, 3));
      for (auto& value : steps.fill) value = static_cast<std::uint8_t>(bits());
      steps.crop = {between(-20, width), between(-20, height), out_width, out_height};
      steps.resized_width = out_width;
      steps.resized_height = out_height;
      steps.window = {0, 0, out_width, out_height};
    } else {
      flag(pixels::RowSteps::kResized);
      if (between(0, 3) == 0) flag(pixels::RowSteps::kVerticalFirst);
      steps.interpolation = static_cast<pixels::Interpolation>(between(0, 2));
      steps.crop.width = between(1, width);
      steps.crop.height = between(1, height);
      steps.crop.left = between(0, width - steps.crop.width);
      steps.crop.top = between(0, height - steps.crop.height);
      steps.resized_width = out_width + (coin() ? 0 : between(0, 40));
      steps.resized_height = out_height + (coin() ? 0 : between(0, 40));
      steps.window = {between(0, steps.resized_width - out_width),
                      between(0, steps.resized_height - out_height), out_width, out_height};
    }
    if (!colours) return steps;
    steps.op_count = static_cast<std::uint8_t>(between(0, pixels::kMaxPixelSteps));
    for (std::size_t i = 0; i < steps.op_count; ++i) {
      constexpr auto kKinds = static_cast<std::int32_t>(pixels::PixelStepKind::kCount);
      steps.ops[i].kind = static_cast<pixels::PixelStepKind>(between(0, kKinds - 1));
      steps.ops[i].shift = static_cast<std::uint8_t>(bits());
      steps.ops[i].factor = static_cast<float>(between(0, 3000)) / 1000.0F;
    }
    return steps;
  }

 private:
  std::mt19937 random_;
};

/// A batch in host memory.
struct StepBatch {
  TransformOutput output;
  std::int32_t channels = 3;
  std::vector<std::byte> pixels;
  std::vector<PictureAt> pictures;
  std::vector<pixels::RowSteps> steps;

  [[nodiscard]] PictureBatch view(const std::byte* where) const {
    return {where, pixels.size(), pictures, channels};
  }
};

inline StepBatch random_batch(StepMaker& maker, const TransformOutput& output, std::size_t rows,
                              std::int32_t most_width, std::int32_t most_height, bool colours) {
  StepBatch batch{.output = output, .channels = output.channels == 1 && maker.coin() ? 3 : output.channels};
  for (std::size_t row = 0; row < rows; ++row) {
    const std::int32_t width = maker.between(1, most_width), height = maker.between(1, most_height);
    batch.steps.push_back(maker.steps(width, height, output, colours));
    batch.pictures.push_back({batch.pixels.size(), height, width});
    batch.pixels.resize(batch.pixels.size() + static_cast<std::size_t>(width) *
                                                  static_cast<std::size_t>(height) *
                                                  static_cast<std::size_t>(batch.channels));
  }
  for (auto& value : batch.pixels) value = static_cast<std::byte>(maker.bits());
  return batch;
}

}  // namespace headrace::gpu::testing

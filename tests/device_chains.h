// Random chains and images for rows that a device computes, and the rows that the server computes from them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "clientlib/gpu/rows/plan.h"
#include "server/transform/device_rows.h"
#include "server/transform/plan.h"

namespace headrace::server::transform::testing {

inline std::vector<std::uint8_t> random_picture(std::int32_t width, std::int32_t height,
                                                std::int32_t channels, std::mt19937& random) {
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(width) * static_cast<std::size_t>(height) *
                                   static_cast<std::size_t>(channels));
  // Noise, large flat areas, or few values: for every kind of rounding.
  const auto kind = random() % 3;
  auto value = random();
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    if (kind != 1 || random() % 40 == 0) value = random();
    pixels[i] = static_cast<std::uint8_t>(kind == 2 ? (value % 2) * 255 : value >> (i % 3 * 8));
  }
  return pixels;
}

class ChainMaker {
 public:
  explicit ChainMaker(std::uint32_t seed) : random_(seed) {}

  std::mt19937& random() { return random_; }
  std::int32_t between(std::int32_t low, std::int32_t high) {
    return low + static_cast<std::int32_t>(random_() % static_cast<std::uint64_t>(high - low + 1));
  }
  bool coin() { return random_() % 2 == 0; }
  /// Mostly small, sometimes large.
  std::int32_t side(std::int32_t most) { return coin() ? between(1, std::min(most, 40)) : between(1, most); }

  Interpolation interpolation() { return static_cast<Interpolation>(random_() % 3); }

  /// Transforms of all kinds; the device gets what it can do at their end.
  PlanConfig chain() {
    PlanConfig config;
    config.channels = between(0, 3) == 0 ? 1 : 3;
    Size out{side(260), side(260)};
    const bool turns = between(0, 3) == 0;
    if (turns) out.width = out.height;
    if (between(0, 5) == 0) config.transforms.emplace_back(TrivialAugmentWide{});
    geometry(config, out);
    if (between(0, 5) == 0) config.transforms.emplace_back(RandAugment{});
    for (std::int32_t left = between(0, 5); left > 0; --left) pointwise(config, turns);
    const bool luma = between(0, 7) == 0;
    if (luma) config.transforms.emplace_back(ToY{});
    config.output.layout = coin() ? PixelLayout::kNchw : PixelLayout::kNhwc;
    constexpr DType kTypes[] = {DType::kUInt8, DType::kFloat16, DType::kBFloat16, DType::kFloat32};
    config.output.dtype = kTypes[random_() % 4];
    if (config.output.dtype != DType::kUInt8 && coin()) {
      Normalize normalize{{0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}};
      if (config.channels == 1 || luma) normalize.mean.resize(1), normalize.std.resize(1);
      config.transforms.emplace_back(normalize);
    }
    if (between(0, 3) == 0) {
      RandomErasing erasing{.p = 0.7};
      if (coin()) erasing.value.assign(config.channels == 1 || luma ? 1 : 3, 200);
      config.transforms.emplace_back(erasing);
    }
    if (between(0, 5) == 0) config.passes = ResizePasses::kHorizontalFirst;
    return config;
  }

 private:
  void geometry(PlanConfig& config, Size out) {
    auto& chain = config.transforms;
    switch (random_() % 4) {
      case 0: {
        RandomCrop crop{.size = out, .pad_if_needed = true};
        crop.mode = static_cast<PaddingMode>(random_() % 4);
        if (coin())
          crop.left = between(0, 9), crop.top = between(0, 70), crop.right = 3, crop.bottom = between(0, 9);
        for (auto& value : crop.fill) value = static_cast<std::uint8_t>(random_());
        if (config.channels == 1) crop.fill[1] = crop.fill[2] = crop.fill[0];
        chain.emplace_back(crop);
        return;
      }
      case 1:
        chain.emplace_back(CenterCrop{out});
        return;
      case 2:
        chain.emplace_back(Resize{.size = out, .interpolation = interpolation()});
        return;
      default:
        chain.emplace_back(RandomResizedCrop{.size = out, .interpolation = interpolation()});
    }
  }
  void pointwise(PlanConfig& config, bool turns) {
    auto& chain = config.transforms;
    switch (random_() % 6) {
      case 0:
        chain.emplace_back(RandomHorizontalFlip{});
        return;
      case 1:
        chain.emplace_back(RandomVerticalFlip{});
        return;
      case 2:
        if (turns) chain.emplace_back(RandomRotate90{});
        return;
      case 3:
        chain.emplace_back(RandomGrayscale{0.3});
        return;
      case 4:
        chain.emplace_back(NotHere{});
        return;
      default:
        chain.emplace_back(jitter());
    }
  }
  ColorJitter jitter() {
    ColorJitter jitter;
    if (coin()) jitter.brightness = Bounds{0, 2};
    if (coin()) jitter.contrast = Bounds{0, 3};
    if (coin()) jitter.saturation = Bounds{0, 3};
    if (coin()) jitter.hue = Bounds{-0.5, 0.5};
    if (!jitter.brightness && !jitter.contrast && !jitter.saturation) jitter.hue = Bounds{-0.1, 0.3};
    if (coin()) jitter.p = 0.5;  // rows of one batch with and without
    return jitter;
  }

  std::mt19937 random_;
};

/// A batch of one chain as it lies in the ring, and the rows that the server makes.
struct ChainBatch {
  gpu::RowJob job;                  ///< without memory for the rows
  std::vector<std::byte> pictures;  ///< each with its steps
  std::vector<std::byte> expected;
};

inline Result<ChainBatch> make_batch(const PlanConfig& config, ChainMaker& maker, std::int32_t rows,
                                     std::int32_t most_width, std::int32_t most_height) {
  const auto whole = Plan::compile(config);
  if (!whole) return fail(whole.error());
  const auto split = DeviceRows::split(config, *whole);
  if (!split) return fail(split.error());
  ChainBatch batch;
  if (const auto wrong =
          gpu::plan_rows(split->image(), whole->image_field(), gpu::Drawn::kByServer, batch.job);
      !wrong.empty())
    return fail(ErrorCode::kInternal, wrong);
  const auto count = static_cast<std::size_t>(rows);
  const std::uint64_t row_bytes = split->image().row_bytes();
  batch.pictures.assign(count * row_bytes, std::byte{0xEE});
  batch.expected.resize(count * whole->row_bytes());
  Scratch scratch;
  std::vector<Step> drawn;
  for (std::size_t row = 0; row < count; ++row) {
    const decode::ImageSize size{maker.side(most_width), maker.side(most_height)};
    const auto pixels = random_picture(size.width, size.height, config.channels, maker.random());
    const DrawKey key{maker.random()(), 3, row};
    const decode::ImageData image(pixels, {size.width, size.height, config.channels, false});
    std::byte* const at = batch.pictures.data() + row * row_bytes;
    const auto wanted = whole->render(image, key, scratch, batch.expected.data() + row * whole->row_bytes());
    const auto made = split->pictures().render(image, key, scratch, at);
    if (made.bad != wanted.bad) return fail(ErrorCode::kInternal, "differs: " + made.detail + wanted.detail);
    if (made.bad != BadReason::kNone) return fail(ErrorCode::kBadSample, made.detail);
    const RowSteps steps = split->draw(key, drawn);
    std::memcpy(at + split->image().steps_offset(), &steps, sizeof steps);
  }
  batch.job.pictures = reinterpret_cast<std::uint8_t*>(batch.pictures.data());
  batch.job.rows = rows;
  batch.job.parts = maker.coin() ? gpu::row_parts(batch.job) : maker.between(1, 4);
  return batch;
}

}  // namespace headrace::server::transform::testing

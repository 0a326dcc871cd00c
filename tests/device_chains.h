// Random chains and pictures for device transforms, and what the server's own path makes of them.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "headrace/gpu_transform.h"
#include "server/transform/device_steps.h"
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

  /// A chain that the device does as a whole, but for rare draws that are beyond the kernel's limits.
  PlanConfig chain() { return chain_after({}); }

  /// One of which the device does the end, or no more than values and layout.
  PlanConfig any_chain() {
    std::vector<Transform> first;
    switch (random_() % 6) {
      case 0:
        first.emplace_back(RandAugment{});
        break;
      case 1:
        first.emplace_back(RandomGrayscale{0.5});
        break;
      case 2:
        first.emplace_back(RandomHorizontalFlip{});
        break;
      case 3:
        first.emplace_back(Resize{.size = {between(30, 300), between(30, 300)}});
        break;
      case 4:
        first.emplace_back(CenterCrop{{between(30, 300), between(30, 300)}});
        break;
      default:
        first.emplace_back(RandomResizedCrop{.size = {between(30, 300), between(30, 300)}});
    }
    PlanConfig config = chain_after(std::move(first));
    // Behind it, what the kernel does not know; but nothing may follow to_y and normalize.
    auto& chain = config.transforms;
    if (coin() && !std::holds_alternative<ToY>(chain.back()) &&
        !std::holds_alternative<Normalize>(chain.back()))
      chain.emplace_back(TrivialAugmentWide{});
    return config;
  }

 private:
  PlanConfig chain_after(std::vector<Transform> first) {
    PlanConfig config;
    config.transforms = std::move(first);
    config.channels = between(0, 3) == 0 ? 1 : 3;
    Size out{std::max(3, side(260)), std::max(3, side(260))};  // kMaxShrink
    const bool turns = between(0, 3) == 0;
    if (turns) out.width = out.height;
    geometry(config, out);
    if (coin()) config.transforms.emplace_back(RandomHorizontalFlip{});
    if (coin()) config.transforms.emplace_back(RandomVerticalFlip{});
    if (turns) config.transforms.emplace_back(RandomRotate90{});
    if (coin()) colours(config);
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
    if (between(0, 5) == 0) config.passes = ResizePasses::kHorizontalFirst;
    return config;
  }

  RandomCrop padded_crop(Size out, bool gray) {
    RandomCrop crop{.size = out, .pad_if_needed = true};
    crop.mode = static_cast<PaddingMode>(random_() % 4);
    if (coin())
      crop.left = between(0, 9), crop.top = between(0, 70), crop.right = 3, crop.bottom = between(0, 9);
    for (auto& value : crop.fill) value = static_cast<std::uint8_t>(random_());
    if (gray) crop.fill[1] = crop.fill[2] = crop.fill[0];
    return crop;
  }
  void geometry(PlanConfig& config, Size out) {
    auto& chain = config.transforms;
    switch (random_() % 6) {
      case 0:
        chain.emplace_back(padded_crop(out, config.channels == 1));
        break;
      case 1:
        chain.emplace_back(CenterCrop{out});
        break;
      case 2:
        chain.emplace_back(Resize{.size = out, .interpolation = interpolation()});
        break;
      case 3: {
        const std::int32_t most = std::max(out.height, out.width);
        chain.emplace_back(Resize{.shorter = between(most, most + 60), .interpolation = interpolation()});
        chain.emplace_back(CenterCrop{out});
        break;
      }
      default: {
        RandomResizedCrop crop{.size = out, .interpolation = interpolation()};
        if (coin()) crop.scale_min = 0.001, crop.ratio_min = 0.1, crop.ratio_max = 10;
        chain.emplace_back(crop);
      }
    }
  }
  void colours(PlanConfig& config) {
    ColorJitter jitter;
    if (coin()) jitter.brightness = Bounds{0, 2};
    if (coin()) jitter.contrast = Bounds{0, 3};
    if (coin()) jitter.saturation = Bounds{0, 3};
    if (coin()) jitter.hue = Bounds{-0.5, 0.5};
    if (!jitter.brightness && !jitter.contrast && !jitter.saturation) jitter.hue = Bounds{-0.1, 0.3};
    if (coin()) jitter.p = 0.5;  // rows of one batch with and without
    config.transforms.emplace_back(jitter);
    if (coin()) config.transforms.emplace_back(RandomGrayscale{0.3});
    if (between(0, 3) == 0) config.transforms.emplace_back(ColorJitter{.contrast = Bounds{0.2, 1.8}});
  }

  std::mt19937 random_;
};

/// A batch of one chain: pictures end to end with gaps, their steps, and the rows that the server makes.
struct ChainBatch {
  gpu::TransformOutput output;
  std::int32_t channels = 3;
  std::vector<std::uint8_t> pixels;
  std::vector<gpu::PictureAt> pictures;
  std::vector<pixels::RowSteps> steps;
  std::vector<std::byte> expected;
  int finished = 0;  ///< rows of which only values and layout are left
  std::string because;

  [[nodiscard]] gpu::PictureBatch view() const {
    return {reinterpret_cast<const std::byte*>(pixels.data()), pixels.size(), pictures, channels};
  }
};

/// exactly: pictures are as large as they can be. `crowded`: now and then there is no room for a picture.
inline Result<ChainBatch> make_batch(const PlanConfig& config, ChainMaker& maker, std::size_t rows,
                                     std::int32_t most_width, std::int32_t most_height, bool exactly = false,
                                     bool crowded = false) {
  auto plan = Plan::compile(config);
  if (!plan) return fail(plan.error());
  ChainBatch batch;
  batch.output = device_output(config, *plan);
  batch.channels = config.channels;
  batch.expected.resize(rows * plan->row_bytes());
  Scratch scratch;
  std::vector<std::uint8_t> left;  // a picture
  std::vector<std::byte> finished(plan->finished_bytes());
  for (std::size_t row = 0; row < rows; ++row) {
    const decode::ImageSize size{exactly ? most_width : maker.side(most_width),
                                 exactly ? most_height : maker.side(most_height)};
    const auto picture = random_picture(size.width, size.height, config.channels, maker.random());
    const DrawKey key{maker.random()(), 3, row};
    const decode::ImageData image(picture, {size.width, size.height, config.channels, false});
    const auto wanted = plan->render(image, key, scratch, batch.expected.data() + row * plan->row_bytes());
    LeftPicture out;
    const PictureRoom room{[&](std::uint64_t bytes) -> std::byte* {
                             if (crowded && maker.between(0, 3) == 0) return nullptr;
                             left.assign(bytes, 0xEE);
                             return reinterpret_cast<std::byte*>(left.data());
                           },
                           finished.data()};
    const auto report = plan->leave(image, key, scratch, room, out);
    if (report.bad != wanted.bad)
      return fail(ErrorCode::kInternal, "differs: " + report.detail + wanted.detail);
    if (report.bad != BadReason::kNone) return fail(ErrorCode::kBadSample, report.detail);
    batch.finished += out.finished ? 1 : 0;
    batch.because = out.because;
    batch.pixels.resize(batch.pixels.size() + maker.random()() % 20);
    batch.pictures.push_back({batch.pixels.size(), out.size.height, out.size.width});
    const auto* const at = reinterpret_cast<const std::uint8_t*>(out.at);
    batch.pixels.insert(batch.pixels.end(), at,
                        at + std::ptrdiff_t{out.size.height} * out.size.width * config.channels);
    batch.steps.push_back(out.steps);
  }
  return batch;
}

}  // namespace headrace::server::transform::testing

// Random chains and images for rows that a device computes, and the rows that the server computes from them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "clientlib/gpu/rows/plan.h"
#include "server/transform/device_rows.h"
#include "server/transform/op.h"
#include "server/transform/ops/ops.h"
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

  const char* interpolation() {
    constexpr const char* kWays[] = {"bilinear", "bicubic", "nearest"};
    return kWays[random_() % 3];
  }
  const char* padding_mode() {
    constexpr const char* kModes[] = {"constant", "edge", "reflect", "symmetric"};
    return kModes[random_() % 4];
  }
  /// A color for images of that many channels.
  nlohmann::json fill(std::int32_t channels) {
    nlohmann::json color = nlohmann::json::array();
    for (int i = 0; i < 3; ++i) color.push_back(static_cast<std::uint8_t>(random_()));
    if (channels == 1) color[1] = color[2] = color[0];
    return color;
  }
  static nlohmann::json both(Size size) { return {size.height, size.width}; }
  /// ImageNet's, or any other one: for some, half types cannot be computed by an affine function.
  Transform normalize(std::int32_t channels) {
    if (coin()) {
      std::vector<double> mean, std;
      for (std::int32_t c = 0; c < channels; ++c) {
        mean.push_back(between(0, 1000) / 1000.0);
        std.push_back(between(50, 1000) / 1000.0);
      }
      if (between(0, 4) == 0)
        mean[0] = between(1, 254) / 255.0, std[0] = 1e-3;  // large values, and one near 0
      return make_op("normalize", {{"mean", mean}, {"std", std}});
    }
    if (channels == 1) return make_op("normalize", {{"mean", {0.485}}, {"std", {0.229}}});
    return make_op("normalize", {{"mean", {0.485, 0.456, 0.406}}, {"std", {0.229, 0.224, 0.225}}});
  }

  /// Transforms of all kinds; the device gets those at the end that it supports.
  PlanConfig chain() {
    PlanConfig config;
    config.channels = between(0, 3) == 0 ? 1 : 3;
    Size out{side(260), side(260)};
    const bool turns = between(0, 3) == 0;
    if (turns) out.width = out.height;
    if (between(0, 5) == 0) config.transforms.emplace_back(make_op("trivial_augment_wide"));
    geometry(config, out);
    if (between(0, 5) == 0) config.transforms.emplace_back(make_op("rand_augment"));
    for (std::int32_t left = between(0, 5); left > 0; --left) pointwise(config, turns);
    const bool luma = between(0, 7) == 0;
    if (luma) config.transforms.emplace_back(make_op("to_y"));
    config.output.layout = coin() ? PixelLayout::kNchw : PixelLayout::kNhwc;
    constexpr DType kTypes[] = {DType::kUInt8, DType::kFloat16, DType::kBFloat16, DType::kFloat32};
    config.output.dtype = kTypes[random_() % 4];
    if (config.output.dtype != DType::kUInt8 && coin()) {
      config.transforms.push_back(normalize(luma ? 1 : config.channels));
    }
    if (between(0, 3) == 0) {
      nlohmann::json erasing = {{"p", 0.7}};
      if (coin()) erasing["value"] = std::vector<double>(config.channels == 1 || luma ? 1 : 3, 200);
      config.transforms.push_back(make_op("random_erasing", erasing));
    }
    if (between(0, 5) == 0) config.passes = ResizePasses::kHorizontalFirst;
    return config;
  }

 private:
  void geometry(PlanConfig& config, Size out) {
    auto& chain = config.transforms;
    switch (random_() % 4) {
      case 0: {
        nlohmann::json crop = {{"size", both(out)}, {"pad_if_needed", true}};
        crop["padding_mode"] = padding_mode();
        if (coin()) crop["padding"] = {between(0, 9), between(0, 70), 3, between(0, 9)};
        crop["fill"] = fill(config.channels);
        chain.push_back(make_op("random_crop", crop));
        return;
      }
      case 1:
        chain.emplace_back(make_op("center_crop", {{"size", both(out)}}));
        return;
      case 2:
        chain.emplace_back(make_op("resize", {{"size", both(out)}, {"interpolation", interpolation()}}));
        return;
      default:
        chain.emplace_back(
            make_op("random_resized_crop", {{"size", both(out)}, {"interpolation", interpolation()}}));
    }
  }
  void pointwise(PlanConfig& config, bool turns) {
    auto& chain = config.transforms;
    switch (random_() % 6) {
      case 0:
        chain.emplace_back(make_op("random_horizontal_flip"));
        return;
      case 1:
        chain.emplace_back(make_op("random_vertical_flip"));
        return;
      case 2:
        if (turns) chain.emplace_back(make_op("random_rotate90"));
        return;
      case 3:
        chain.emplace_back(make_op("random_grayscale", {{"p", 0.3}}));
        return;
      case 4:
        chain.emplace_back(skipped());
        return;
      default:
        chain.emplace_back(jitter());
    }
  }
  Transform jitter() {
    nlohmann::json jitter = nlohmann::json::object();
    if (coin()) jitter["brightness"] = {0, 2};
    if (coin()) jitter["contrast"] = {0, 3};
    if (coin()) jitter["saturation"] = {0, 3};
    if (coin()) jitter["hue"] = {-0.5, 0.5};
    if (jitter.empty()) jitter["hue"] = {-0.1, 0.3};
    if (coin()) jitter["p"] = 0.5;  // rows of one batch with and without
    return make_op("color_jitter", jitter);
  }

  std::mt19937 random_;
};

/// A batch of one chain as it is in the ring, and the rows that the server makes.
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
  batch.job.blocks_at_once = maker.between(1, 2000);
  batch.job.parts = maker.coin() ? gpu::row_parts(batch.job) : maker.between(1, 4);
  return batch;
}

}  // namespace headrace::server::transform::testing

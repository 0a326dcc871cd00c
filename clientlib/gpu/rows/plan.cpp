#include "clientlib/gpu/rows/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "clientlib/gpu/rows/affine_values.h"
#include "clientlib/gpu/rows/pixels.h"
#include "clientlib/pixels/value_table.h"

namespace headrace::gpu {
namespace {

using pixels::PixelLayout;

bool is_side(std::int64_t side) {
  return side >= 1 && side <= kMaxDeviceSide;
}

std::string wrong_crop(const Move& move) {
  constexpr std::int32_t kFarthest = 1 << 20;  // of offsets and their number, so that sums cannot overflow
  const auto far = [](std::int32_t value) { return value < -kFarthest || value > kFarthest; };
  if (far(move.top) || far(move.left) || move.rows < 1 || move.columns < 1 || far(move.rows) ||
      far(move.columns))
    return fmt::format(
        "a crop has {} x {} offsets (across x down) from ({}, {}) (left, top) on: expected 1 to {} offsets "
        "each way, at most {} pixels outside the image",
        move.columns, move.rows, move.left, move.top, kFarthest, kFarthest);
  return {};
}

/// Adds the geometric transforms, and follows the image's size through them.
std::string take_moves(const DeviceImage& image, Drawn drawn, RowJob& job) {
  if (image.moves.size() > std::size_t{kMaxMoves})
    return fmt::format("{} crops, flips and rotations: expected at most {}", image.moves.size(), kMaxMoves);
  std::int32_t height = image.height, width = image.width;
  for (const Move& move : image.moves) {
    if (!is_side(move.height) || !is_side(move.width))
      return fmt::format(
          "a crop, flip or rotation gives {} x {} pixels (width x height): expected 1 to {} pixels a side",
          move.width, move.height, kMaxDeviceSide);
    const bool same = move.height == height && move.width == width;
    switch (move.kind) {
      case Move::Kind::kCrop:
        if (drawn == Drawn::kByServer)
          return "found a crop: expected none, because the server crops the images of a stream with `device: "
                 "gpu`";
        if (auto wrong = wrong_crop(move); !wrong.empty()) return wrong;
        break;
      case Move::Kind::kTurn:
        if (!same || height != width)
          return fmt::format(
              "a 90-degree rotation of {} x {} pixels (width x height) gives {} x {}: expected a square "
              "image, and the same size",
              width, height, move.width, move.height);
        break;
      case Move::Kind::kHorizontalFlip:
      case Move::Kind::kVerticalFlip:
        if (!same)
          return fmt::format(
              "a flip of {} x {} pixels (width x height) gives {} x {}: expected the same size", width,
              height, move.width, move.height);
        if (!(move.p >= 0 && move.p <= 1)) return fmt::format("a flip has p {}: expected 0 to 1", move.p);
        break;
      default:
        return "the server uses a transform that this client does not know: upgrade the client to the "
               "server's version";
    }
    job.moves[job.move_count++] = move;
    height = move.height;
    width = move.width;
  }
  job.out_height = height;
  job.out_width = width;
  return {};
}

std::string take_values(const DeviceImage& image, const FieldSpec& spec, RowJob& job) {
  const bool is_float =
      spec.dtype == DType::kFloat16 || spec.dtype == DType::kBFloat16 || spec.dtype == DType::kFloat32;
  if (!is_float && spec.dtype != DType::kUInt8)
    return fmt::format("dtype {}: expected uint8, float16, bfloat16 or float32", name_of(spec.dtype));
  const auto channels = static_cast<std::size_t>(job.out_channels);
  const auto fits = [&](const std::vector<double>& values) {
    return values.empty() || values.size() == channels;
  };
  if (image.mean.size() != image.std.size() || !fits(image.mean) || (!image.mean.empty() && !is_float))
    return fmt::format(
        "normalize has {} means and {} stds for {} channels of {}: expected one of each per channel, or "
        "none, and none for uint8",
        image.mean.size(), image.std.size(), channels, name_of(spec.dtype));
  if (!fits(image.erased) && image.erased.size() != 1)
    return fmt::format("random_erasing has {} values for {} channels: expected one, or one per channel",
                       image.erased.size(), channels);
  const auto finite = [](double value) { return std::isfinite(static_cast<float>(value)); };
  const auto positive = [&](double value) { return finite(value) && static_cast<float>(value) > 0.0F; };
  if (!std::ranges::all_of(image.std, positive) || !std::ranges::all_of(image.mean, finite) ||
      !std::ranges::all_of(image.erased, finite))
    return "normalize or random_erasing has a value that is not finite, or a std that is not above 0";
  job.element_bytes = static_cast<std::int32_t>(size_of(spec.dtype));
  job.type = pixels::value_type(spec.dtype);
  for (std::size_t c = 0; c < channels && !image.mean.empty(); ++c)
    job.how[c] = {true, static_cast<float>(image.mean[c]), static_cast<float>(image.std[c])};
  choose_conversion(job);
  const bool is_affine =
      job.conversion == Conversion::kAffineFloat16 || job.conversion == Conversion::kAffineBFloat16;
  for (std::size_t c = 0; c < channels && !image.erased.empty(); ++c) {
    const auto value = static_cast<float>(image.erased[c % image.erased.size()]);
    job.erased[c] = is_affine  ? pixels::bits_of(value)
                    : is_float ? pixels::bits_of(value, job.type)
                               : static_cast<std::uint32_t>(std::clamp(value, 0.0F, 255.0F));
  }
  return {};
}

std::string plan_image(const DeviceImage& image, const FieldSpec& spec, Drawn drawn, RowJob& job) {
  if (spec.kind != FieldKind::kDense || spec.shape.size() != 3)
    return fmt::format("expected an image (dense, 3 dimensions), found a {} field with {} dimensions",
                       spec.kind == FieldKind::kDense ? "dense" : "ragged", spec.shape.size());
  if (image.channels != 1 && image.channels != 3)
    return fmt::format("images have {} channels: expected 1 or 3", image.channels);
  if (!is_side(image.height) || !is_side(image.width))
    return fmt::format("images have {} x {} pixels (width x height): expected 1 to {} pixels a side",
                       image.width, image.height, kMaxDeviceSide);
  if (drawn == Drawn::kOnDevice && (image.color_steps > 0 || !image.erased.empty()))
    return "found color changes or random_erasing: expected only crops, flips, rotations and normalize with "
           "`residence: gpu`";
  if (image.color_steps > std::uint32_t{kMaxPixelSteps})
    return fmt::format("rows have up to {} color steps: expected at most {}", image.color_steps,
                       kMaxPixelSteps);
  if (image.contrasts > image.color_steps)
    return fmt::format(
        "rows have up to {} contrast changes among {} color steps: expected no more contrast changes than "
        "color steps",
        image.contrasts, image.color_steps);
  job.height = image.height;
  job.width = image.width;
  job.channels = image.channels;
  job.changes_colors = image.color_steps > 0;
  job.contrasts = static_cast<std::int32_t>(image.contrasts);
  job.picture_step = drawn == Drawn::kByServer ? image.row_bytes() : image.picture_bytes();
  job.steps_offset = drawn == Drawn::kByServer ? image.steps_offset() : 0;
  if (auto wrong = take_moves(image, drawn, job); !wrong.empty()) return wrong;
  const bool planar = image.layout == PixelLayout::kNchw;
  const std::int64_t channels = spec.shape[planar ? 0 : 2];
  const std::int64_t height = spec.shape[planar ? 1 : 0], width = spec.shape[planar ? 2 : 1];
  if (height != job.out_height || width != job.out_width || (channels != 1 && channels != image.channels))
    return fmt::format(
        "the transforms give {} x {} pixels (width x height) from images with {} channels, but the field has "
        "{} x {} pixels and {} channels",
        job.out_width, job.out_height, image.channels, width, height, channels);
  job.out_channels = static_cast<std::int32_t>(channels);
  job.interleaved = !planar && channels == 3;
  return take_values(image, spec, job);
}

}  // namespace

std::string plan_rows(const DeviceImage& image, const FieldSpec& spec, Drawn drawn, RowJob& job) {
  auto wrong = plan_image(image, spec, drawn, job);
  return wrong.empty() ? wrong : fmt::format("field '{}': {}", spec.name, wrong);
}

std::int32_t row_parts(const RowJob& job) {
  constexpr std::int64_t kMostParts = 64;
  constexpr std::int64_t kSetUp = 2;  // building a row's tables takes as long as this many runs of a thread
  const std::int64_t rows = std::max(job.rows, 1), pixels = std::int64_t{job.out_height} * job.out_width;
  const std::int64_t run = pixels % kRun != 0                                        ? 1
                           : job.element_bytes == 4 || job.out_width % kWideRun != 0 ? kRun
                                                                                     : kWideRun;
  std::int64_t runs = (pixels + run - 1) / run;
  for (std::int32_t f = 0; f < job.field_count; ++f)
    runs =
        std::max(runs, (std::int64_t{job.fields[f].row_bytes} + job.fields[f].unit - 1) / job.fields[f].unit);
  const std::int64_t most = std::clamp<std::int64_t>((runs + kRowThreads - 1) / kRowThreads, 1, kMostParts);
  // Chooses the parts with the shortest time. Blocks run in waves of `blocks_at_once`; a wave takes as long
  // as a block.
  std::int64_t best = 1, least = std::numeric_limits<std::int64_t>::max();
  for (std::int64_t parts = 1; parts <= most; ++parts) {
    const std::int64_t waves = (rows * parts + job.blocks_at_once - 1) / job.blocks_at_once;
    const std::int64_t time = waves * ((runs + parts * kRowThreads - 1) / (parts * kRowThreads) + kSetUp);
    if (time < least) best = parts, least = time;
  }
  return static_cast<std::int32_t>(best);
}

}  // namespace headrace::gpu

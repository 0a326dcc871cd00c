#include "clientlib/gpu/transform/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "clientlib/gpu/transform/shared.h"

namespace headrace::gpu {
namespace {

using pixels::Interpolation;
using pixels::kMaxOutputSide;
using pixels::kMaxPictureSide;
using pixels::kMaxResizedSide;
using pixels::PaddingMode;
using pixels::PixelRect;
using pixels::PixelStep;
using pixels::PixelStepKind;
using pixels::RowSteps;

bool lies_within(const PixelRect& rect, std::int32_t width, std::int32_t height) {
  return rect.width >= 1 && rect.height >= 1 && rect.left >= 0 && rect.top >= 0 && rect.width <= width &&
         rect.height <= height && rect.left <= width - rect.width && rect.top <= height - rect.height;
}

std::string text_of(const PixelRect& rect) {
  return fmt::format("{} x {} pixels at ({}, {})", rect.width, rect.height, rect.left, rect.top);
}

std::string wrong_picture(const RowTask& task, std::int32_t channels, std::size_t bytes) {
  if (task.height < 1 || task.width < 1 || task.height > kMaxPictureSide || task.width > kMaxPictureSide)
    return fmt::format("a picture of {} x {} pixels: each side must be between 1 and {}", task.width,
                       task.height, kMaxPictureSide);
  const auto size = static_cast<std::uint64_t>(task.height) * static_cast<std::uint64_t>(task.width) *
                    static_cast<std::uint64_t>(channels);
  if (size > bytes || task.offset > bytes - size)
    return fmt::format("a picture of {} x {} pixels at byte {} reaches beyond the batch's {} bytes",
                       task.width, task.height, task.offset, bytes);
  return {};
}

std::string wrong_geometry(const RowTask& task) {
  const RowSteps& steps = task.steps;
  const PixelRect& crop = steps.crop;
  if ((steps.flags & RowSteps::kResized) != 0) {
    if (std::min(crop.width, crop.height) < 1 || std::max(crop.width, crop.height) > kMaxPictureSide ||
        std::min(crop.left, crop.top) < -kMaxPictureSide || std::max(crop.left, crop.top) > kMaxPictureSide)
      return fmt::format("a crop of {}: each side must be between 1 and {}", text_of(crop), kMaxPictureSide);
    if (std::min(steps.resized_width, steps.resized_height) < 1 ||
        std::max(steps.resized_width, steps.resized_height) > kMaxResizedSide)
      return fmt::format("a resize to {} x {} pixels: each side must be between 1 and {}",
                         steps.resized_width, steps.resized_height, kMaxResizedSide);
  } else {
    if (std::min(crop.width, crop.height) < 1 || std::max(crop.width, crop.height) > kMaxOutputSide ||
        std::min(crop.left, crop.top) < -kMaxResizedSide || std::max(crop.left, crop.top) > kMaxResizedSide)
      return fmt::format("a crop of {}: each side must be between 1 and {}", text_of(crop), kMaxOutputSide);
    if (steps.resized_width != crop.width || steps.resized_height != crop.height)
      return fmt::format("a crop of {} is {} x {} afterwards, without a resize", text_of(crop),
                         steps.resized_width, steps.resized_height);
    if (steps.window.left != 0 || steps.window.top != 0)
      return fmt::format("a window of {} without a resize: it must begin at (0, 0)", text_of(steps.window));
  }
  if (!lies_within(steps.window, steps.resized_width, steps.resized_height))
    return fmt::format("the window, {}, does not lie within {} x {}", text_of(steps.window),
                       steps.resized_width, steps.resized_height);
  if ((steps.flags & RowSteps::kResized) == 0) return {};
  // Parts of a window read parts of this.
  const Span across = columns_of(task).span(0, steps.window.width);
  const Span down = rows_of(task).span(0, steps.window.height);
  if (across.begin < 0 || down.begin < 0 || across.end > task.width || down.end > task.height)
    return fmt::format("what is read of the crop, {}, does not lie within the picture of {} x {}",
                       text_of(crop), task.width, task.height);
  return {};
}

std::string wrong_step(const PixelStep& step) {
  if (step.kind >= PixelStepKind::kCount)
    return fmt::format("a pixel step of kind {}, which is none", static_cast<int>(step.kind));
  if (!std::isfinite(step.factor)) return "a pixel step whose factor is not finite";
  return {};
}

// Samples that `outputs` neighbours of an axis read at most.
std::int32_t samples_of(const Axis& axis, std::int32_t outputs, double scale, double support) {
  double most = outputs + 1.0;
  if (axis.kind == Axis::Kind::kCopy) {
    const bool mirrors = axis.padding == PaddingMode::kReflect || axis.padding == PaddingMode::kSymmetric;
    if (mirrors && (axis.from <= -axis.length || axis.from + axis.out >= 2 * axis.length)) return axis.length;
  } else if (axis.length != axis.out || axis.kind == Axis::Kind::kNearest) {
    most = (outputs - 1) * scale + 2 * support + 4;
  }
  return static_cast<std::int32_t>(std::min<double>(most, axis.length));
}

// What does not depend on a tile's size.
struct Reach {
  Axis axis;
  double scale = 1, support = 1;
  std::int32_t taps = 0;

  explicit Reach(const Axis& of) : axis(of) {
    if (axis.kind == Axis::Kind::kCopy) return;
    const pixels::Filter filter = axis.filter();
    scale = filter.scale;
    if (axis.kind == Axis::Kind::kNearest) return;
    support = filter.support;
    taps = axis.length == axis.out ? 1 : filter.taps();
  }
  [[nodiscard]] std::int32_t samples(std::int32_t outputs) const {
    return samples_of(axis, outputs, scale, support);
  }
};

// Where a tile of that size has things, of whose source `chunk` is there at a time (RowTask::chunk); size 0
// if that is too much for shared memory.
SharedPlan shared_plan(const RowTask& task, const Reach& across, const Reach& down, std::int32_t channels,
                       std::int32_t rows, std::int32_t columns, std::int32_t chunk) {
  constexpr std::int32_t kSlack = 16;  // words are read whole
  constexpr auto kLimit = static_cast<std::int64_t>(kSharedBytes);
  const bool vertical_first = (task.steps.flags & RowSteps::kVerticalFirst) != 0;
  const std::int32_t source_rows = down.samples(rows), source_columns = across.samples(columns);
  // Rows that a horizontal pass writes come in groups.
  const auto grouped = [](std::int32_t count) { return std::int64_t{round_up(count, kRowGroup)}; };
  const std::int64_t finished = grouped(rows) * pixel_pitch(columns * channels);
  const std::int64_t source =
      vertical_first ? std::int64_t{source_rows} * source_pitch(std::min(source_columns, chunk) * channels)
                     : std::int64_t{std::min(source_rows, chunk)} * source_pitch(source_columns * channels);
  std::int64_t middle = finished;
  if (across.axis.kind == Axis::Kind::kFilter)
    middle = vertical_first ? std::int64_t{rows} * pixel_pitch(source_columns * channels)
                            : grouped(source_rows) * pixel_pitch(columns * channels);
  const std::int64_t tables =
      std::int64_t{columns} * (2 + across.taps) + std::int64_t{rows} * (2 + down.taps);
  if (std::max({finished, source, middle, tables * 4}) > kLimit) return {};
  SharedPlan plan;
  plan.columns = round_up(static_cast<std::int32_t>(sizeof(SharedHead)), 16);
  plan.rows = plan.columns + table_bytes(columns, across.taps);
  plan.picture = round_up(plan.rows + table_bytes(rows, down.taps), 16);
  plan.middle = plan.picture + round_up(static_cast<std::int32_t>(std::max(source, finished)) + kSlack, 16);
  plan.size = plan.middle + static_cast<std::int32_t>(middle) + kSlack;
  return plan.size <= kLimit ? plan : SharedPlan{};
}

}  // namespace

std::string wrong_with(const RowTask& task, const TransformOutput& output, std::int32_t channels,
                       std::size_t bytes) {
  const RowSteps& steps = task.steps;
  if (steps.version != pixels::kRowStepsVersion)
    return fmt::format("steps of version {}, this Headrace knows {}: use one version on both sides",
                       steps.version, pixels::kRowStepsVersion);
  if ((steps.flags & ~RowSteps::kAllFlags) != 0) return fmt::format("unknown flags {:#x}", steps.flags);
  if (steps.interpolation > Interpolation::kNearest)
    return fmt::format("interpolation {}, which is none", static_cast<int>(steps.interpolation));
  if (steps.padding > PaddingMode::kSymmetric)
    return fmt::format("padding mode {}, which is none", static_cast<int>(steps.padding));
  if (steps.op_count > pixels::kMaxPixelSteps)
    return fmt::format("{} pixel steps, at most {} can be", steps.op_count, pixels::kMaxPixelSteps);
  if (auto wrong = wrong_picture(task, channels, bytes); !wrong.empty()) return wrong;
  if (auto wrong = wrong_geometry(task); !wrong.empty()) return wrong;
  const bool turned = (steps.flags & RowSteps::kTransposed) != 0;
  const std::int32_t width = turned ? steps.window.height : steps.window.width;
  const std::int32_t height = turned ? steps.window.width : steps.window.height;
  if (width != output.width || height != output.height)
    return fmt::format("{} x {} pixels, the output's rows have {} x {}", width, height, output.width,
                       output.height);
  for (std::size_t i = 0; i < steps.op_count; ++i)
    if (auto wrong = wrong_step(steps.ops[i]); !wrong.empty()) return wrong;
  return {};
}

bool plan_tiles(RowTask& task, std::int32_t channels) {
  constexpr std::int32_t kMostRows = 32, kFewRows = 8, kFewColumns = 32, kAll = kMaxPictureSide + 1;
  static_assert(kRowGroup % 4 == 0);  // chunks of columns are whole words
  const PixelRect& window = task.steps.window;
  const Reach across(columns_of(task)), down(rows_of(task));
  const bool resampled = across.axis.kind == Axis::Kind::kFilter;
  task.column_taps = across.taps;
  task.row_taps = down.taps;
  const auto try_tile = [&](std::int32_t rows, std::int32_t columns, std::int32_t chunk) {
    task.shared = shared_plan(task, across, down, channels, rows, columns, chunk);
    task.tile_rows = rows;
    task.tile_columns = columns;
    task.chunk = chunk;
    return task.shared.size > 0;
  };
  const auto try_rows = [&](std::int32_t most, std::int32_t least, std::int32_t columns) {
    for (const std::int32_t chunk : {kAll, 2 * kRowGroup, kRowGroup}) {
      if (chunk != kAll && !resampled) return false;
      // All tiles about alike, so that no block has a small rest.
      for (std::int32_t tiles = (window.height + most - 1) / most;; ++tiles) {
        const std::int32_t rows = (window.height + tiles - 1) / tiles;
        if (try_tile(rows, columns, chunk)) return true;
        if (rows <= least) break;
      }
    }
    return false;
  };
  for (std::int32_t columns = window.width;; columns = (columns + 1) / 2) {
    if (try_rows(kMostRows, kFewRows, columns)) return true;
    if (columns <= kFewColumns) break;
  }
  for (std::int32_t columns = window.width;; columns = (columns + 1) / 2) {
    if (try_rows(kFewRows, 1, columns)) return true;
    if (columns == 1) return false;
  }
}

}  // namespace headrace::gpu

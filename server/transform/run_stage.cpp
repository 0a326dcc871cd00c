#include <algorithm>
#include <cstring>

#include "server/transform/render.h"

namespace headrace::server::transform {
namespace {

using decode::Decoded;
using decode::kBlockRows;
using decode::Rect;
using decode::Rows;

tl::unexpected<decode::Bad> pass_on(decode::Bad& error) {
  return tl::make_unexpected(std::move(error));
}

std::size_t padded_stride(std::int32_t width) {
  return (static_cast<std::size_t>(width) * 3 + kWriteSlack + 63) & ~std::size_t{63};
}

// Source index of each output index of a crop along one axis, or -1 where there is only fill. numpy.pad's
// rules.
std::vector<std::int32_t> crop_indices(std::int32_t begin, std::int32_t count, std::int32_t length,
                                       PaddingMode mode) {
  std::vector<std::int32_t> index(static_cast<std::size_t>(count));
  for (std::int32_t i = 0; i < count; ++i) {
    std::int32_t at = begin + i;
    if (at < 0 || at >= length) {
      const std::int32_t period = mode == PaddingMode::kReflect ? 2 * length - 2 : 2 * length;
      switch (mode) {
        case PaddingMode::kConstant:
          at = -1;
          break;
        case PaddingMode::kEdge:
          at = std::clamp(at, 0, length - 1);
          break;
        default:
          at = period == 0 ? 0 : ((at % period) + period) % period;
          if (at >= length) at = (mode == PaddingMode::kReflect ? period : period - 1) - at;
      }
    }
    index[static_cast<std::size_t>(i)] = at;
  }
  return index;
}

// For nearest: through the resize's window to the crop, then to the input.
std::vector<std::int32_t> input_indices(const Axis& axis, bool resized, std::int32_t begin,
                                        std::int32_t length, PaddingMode mode) {
  if (!resized) return crop_indices(begin, axis.outputs, length, mode);
  auto index = nearest_of(axis);
  for (auto& i : index) i = i < 0 ? -1 : i + begin;
  return index;
}

// No arithmetic: crops, padding, nearest neighbour, flips.
Decoded<void> copy_stage(const Stage& stage, RowSource& source, RowSink& sink, Scratch::State& scratch) {
  const auto& window = stage.window;
  const Axis horizontal{stage.crop.width, stage.size.width, window.left, window.width, stage.interpolation};
  const Axis vertical{stage.crop.height, stage.size.height, window.top, window.height, stage.interpolation};
  auto columns = input_indices(horizontal, stage.resized, stage.crop.left, stage.input.width, stage.mode);
  const auto rows = input_indices(vertical, stage.resized, stage.crop.top, stage.input.height, stage.mode);
  if (stage.mirrored) std::reverse(columns.begin(), columns.end());

  const auto span_of = [](const std::vector<std::int32_t>& index) {
    std::int32_t begin = INT32_MAX, end = 0;
    for (const auto i : index) {
      if (i < 0) continue;
      begin = std::min(begin, i);
      end = std::max(end, i + 1);
    }
    return begin < end ? std::pair{begin, end} : std::pair{0, 1};  // nothing but fill: any pixel will do
  };
  const auto [left, right] = span_of(columns);
  const auto [top, bottom] = span_of(rows);
  bool contiguous = true, ordered = true;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    contiguous = contiguous && columns[i] == left + static_cast<std::int32_t>(i);
  }
  std::int32_t highest = 0;
  for (const auto y : rows) {
    ordered = ordered && (y < 0 || y >= highest);
    highest = std::max(highest, y);
  }

  scratch.row.resize(padded_stride(window.width));
  const auto emit = [&](std::size_t y, const std::uint8_t* from) {
    const auto target = static_cast<std::int32_t>(stage.flipped ? rows.size() - 1 - y : y);
    if (from != nullptr && contiguous) return sink.write(target, from);
    auto* to = scratch.row.data();
    for (const auto x : columns) {
      std::memcpy(to, from == nullptr || x < 0 ? stage.fill.data() : from + std::ptrdiff_t{x - left} * 3, 3);
      to += 3;
    }
    sink.write(target, scratch.row.data());
  };

  if (auto begun = source.begin({left, top, right - left, bottom - top}); !begun)
    return pass_on(begun.error());
  const std::size_t stride = padded_stride(right - left);
  if (!ordered) scratch.whole.resize(stride * static_cast<std::size_t>(bottom - top));
  std::size_t y = 0;
  for (std::int32_t done = top; done < bottom;) {
    auto block = source.next();
    if (!block) return pass_on(block.error());
    if (ordered) {
      for (; y < rows.size() && rows[y] < done + block->count; ++y) {
        emit(y, rows[y] < 0 ? nullptr : block->data + (rows[y] - done) * block->stride);
      }
    } else {
      for (std::int32_t i = 0; i < block->count; ++i) {
        std::memcpy(scratch.whole.data() + static_cast<std::size_t>(done - top + i) * stride,
                    block->data + i * block->stride, static_cast<std::size_t>(right - left) * 3);
      }
    }
    done += block->count;
  }
  for (; y < rows.size(); ++y) {
    emit(y, rows[y] < 0 ? nullptr : scratch.whole.data() + static_cast<std::size_t>(rows[y] - top) * stride);
  }
  return {};
}

// Pillow's two passes. Vertical output rows follow as soon as their inputs are there, while those are in the
// cache.
Decoded<void> resample_stage(const Stage& stage, RowSource& source, RowSink& sink, Scratch::State& scratch) {
  const auto& window = stage.window;
  std::shared_ptr<const Coefficients> columns, rows;
  if (stage.size.width != stage.crop.width) {
    columns = scratch.coefficients.get(
        {stage.crop.width, stage.size.width, window.left, window.width, stage.interpolation});
  }
  if (stage.size.height != stage.crop.height) {
    rows = scratch.coefficients.get(
        {stage.crop.height, stage.size.height, window.top, window.height, stage.interpolation});
  }
  const auto across =
      columns ? columns->inputs() : Coefficients::Range{window.left, window.left + window.width};
  const auto down = rows ? rows->inputs() : Coefficients::Range{window.top, window.top + window.height};

  const std::size_t stride = padded_stride(window.width);
  const std::size_t bytes = static_cast<std::size_t>(window.width) * 3;
  scratch.middle.resize(stride * static_cast<std::size_t>(down.end - down.begin));
  scratch.row.resize(stride);
  scratch.spare.resize(stride);
  const auto middle = [&](std::int32_t y) {
    return scratch.middle.data() + static_cast<std::size_t>(y - down.begin) * stride;
  };
  const auto emit = [&](std::int32_t y, const std::uint8_t* row) {
    sink.write(stage.flipped ? window.height - 1 - y : y, row);
  };

  if (auto begun = source.begin({stage.crop.left + across.begin, stage.crop.top + down.begin,
                                 across.end - across.begin, down.end - down.begin});
      !begun) {
    return pass_on(begun.error());
  }
  std::int32_t y = 0;
  for (std::int32_t done = down.begin; done < down.end;) {
    auto block = source.next();
    if (!block) return pass_on(block.error());
    if (columns) {
      HorizontalJob job{columns.get(), stage.mirrored, across.begin, {}, {}};
      for (std::int32_t i = 0; i < kBlockRows; ++i) {
        const auto slot = static_cast<std::size_t>(i);
        job.in[slot] = block->data + std::min(i, block->count - 1) * block->stride;
        job.out[slot] = i < block->count ? middle(done + i) : scratch.spare.data();
      }
      resample_rows(job, scratch.transposed);
    } else {
      for (std::int32_t i = 0; i < block->count; ++i) {
        const auto* from = block->data + i * block->stride;
        auto* to = middle(done + i);
        if (!stage.mirrored) {
          std::memcpy(to, from, bytes);
          continue;
        }
        for (std::size_t x = 0; x < bytes; x += 3) std::memcpy(to + x, from + (bytes - 3 - x), 3);
      }
    }
    done += block->count;
    for (; y < window.height; ++y) {
      if (!rows) {
        if (window.top + y >= done) break;
        emit(y, middle(window.top + y));
        continue;
      }
      const auto i = static_cast<std::size_t>(y);
      if (rows->first[i] + rows->count[i] > done) break;
      resample_column(middle(rows->first[i]), static_cast<std::ptrdiff_t>(stride),
                      rows->weights.data() + i * static_cast<std::size_t>(rows->taps), rows->count[i], bytes,
                      scratch.row.data());
      emit(y, scratch.row.data());
    }
  }
  return {};
}

}  // namespace

Decoded<void> run_stage(const Stage& stage, RowSource& source, RowSink& sink, Scratch::State& scratch) {
  if (stage.resized && stage.interpolation != Interpolation::kNearest) {
    return resample_stage(stage, source, sink, scratch);
  }
  return copy_stage(stage, source, sink, scratch);
}

}  // namespace headrace::server::transform

#include <algorithm>
#include <cstring>

#include "server/decode/grow.h"
#include "server/transform/stages/render.h"

namespace headrace::server::transform {
namespace {

using decode::Decoded;
using decode::Rows;

tl::unexpected<decode::Bad> pass_on(decode::Bad& error) {
  return tl::make_unexpected(std::move(error));
}

// The source index of each output index along one axis, or -1 for fill. Maps outputs to the crop (for
// nearest, through the resize's window), then to the input.
void input_indices(const Axis& axis, bool resized, std::int32_t begin, std::int32_t length, PaddingMode mode,
                   std::vector<std::int32_t>& index) {
  if (resized) {
    index = nearest_of(axis);
    for (auto& i : index) i = i < 0 ? -1 : i + begin;
    return;
  }
  index.resize(static_cast<std::size_t>(axis.outputs));
  for (std::int32_t i = 0; i < axis.outputs; ++i)
    index[static_cast<std::size_t>(i)] = padded_index(begin + i, length, mode);
}

}  // namespace

Decoded<void> copy_stage(const Stage& stage, RowSource& source, RowSink& sink, Scratch::State& scratch) {
  const auto& window = stage.window;
  const Axis horizontal{stage.crop.width, stage.size.width, window.left, window.width, stage.interpolation};
  const Axis vertical{stage.crop.height, stage.size.height, window.top, window.height, stage.interpolation};
  auto& columns = scratch.column_indices;
  input_indices(horizontal, stage.resized, stage.crop.left, stage.input.width, stage.mode, columns);
  input_indices(vertical, stage.resized, stage.crop.top, stage.input.height, stage.mode, scratch.row_indices);
  const auto& rows = scratch.row_indices;
  if (stage.mirrored) std::reverse(columns.begin(), columns.end());

  const auto span_of = [](const std::vector<std::int32_t>& index) {
    std::int32_t begin = INT32_MAX, end = 0;
    for (const auto i : index) {
      if (i < 0) continue;
      begin = std::min(begin, i);
      end = std::max(end, i + 1);
    }
    return begin < end ? std::pair{begin, end} : std::pair{0, 1};  // only fill: any pixel will do
  };
  const auto wanted_columns = span_of(columns), wanted_rows = span_of(rows);
  const std::int32_t left = wanted_columns.first, right = wanted_columns.second;
  const std::int32_t top = wanted_rows.first, bottom = wanted_rows.second;
  bool contiguous = true, ordered = true;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    contiguous = contiguous && columns[i] == left + static_cast<std::int32_t>(i);
  }
  std::int32_t highest = 0;
  for (const auto y : rows) {
    ordered = ordered && (y < 0 || y >= highest);
    highest = std::max(highest, y);
  }

  decode::grow(scratch.row, padded_stride(window.width));
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

  if (auto begun = source.begin({left, top, right - left, bottom - top}, !ordered); !begun)
    return pass_on(begun.error());
  std::size_t y = 0;
  Rows all;  // valid when kept
  for (std::int32_t done = top; done < bottom;) {
    auto block = source.next();
    if (!block) return pass_on(block.error());
    if (done == top) all = *block;
    const auto* origin = ordered ? block->data - (done - top) * block->stride : all.data;
    done += block->count;
    if (!ordered && done < bottom) continue;
    for (; y < rows.size() && (!ordered || rows[y] < done); ++y) {
      emit(y, rows[y] < 0 ? nullptr : origin + (rows[y] - top) * block->stride);
    }
  }
  return {};
}

}  // namespace headrace::server::transform

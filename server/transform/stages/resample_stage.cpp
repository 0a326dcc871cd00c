#include <algorithm>
#include <cstring>

#include "server/decode/grow.h"
#include "server/transform/stages/render.h"

namespace headrace::server::transform {
namespace {

using decode::Decoded;
using decode::kBlockRows;
using Range = Coefficients::Range;

tl::unexpected<decode::Bad> pass_on(decode::Bad& error) {
  return tl::make_unexpected(std::move(error));
}

// The inputs of both orders of the passes. A missing table means that the axis keeps its length.
struct Job {
  const Stage& stage;
  RowSource& source;
  RowSink& sink;
  Scratch::State& scratch;
  std::shared_ptr<const Coefficients> columns, rows;
  Range across, down;  // of the crop

  Decoded<void> begin(bool keep) {
    return source.begin({stage.crop.left + across.begin, stage.crop.top + down.begin,
                         across.end - across.begin, down.end - down.begin},
                        keep);
  }
  void emit(std::int32_t y, const std::uint8_t* row) {
    sink.write(stage.flipped ? stage.window.height - 1 - y : y, row);
  }
  // Processes up to 16 rows: from[i * from_stride] to to[i * to_stride].
  void horizontal(const std::uint8_t* from, std::ptrdiff_t from_stride, std::uint8_t* to,
                  std::size_t to_stride, std::int32_t count) {
    HorizontalJob job{columns.get(), stage.mirrored, across.begin, {}, {}};
    for (std::int32_t i = 0; i < kBlockRows; ++i) {
      const auto slot = static_cast<std::size_t>(i);
      job.in[slot] = from + std::min(i, count - 1) * from_stride;
      job.out[slot] = i < count ? to + slot * to_stride : scratch.spare.data();
    }
    resample_rows(job, scratch.transposed);
  }
  void vertical(const std::uint8_t* row0, std::ptrdiff_t stride, std::int32_t y, std::size_t bytes,
                std::uint8_t* to) {
    const auto i = static_cast<std::size_t>(y);
    resample_column(row0 + (rows->first[i] - down.begin) * stride, stride,
                    rows->weights.data() + i * static_cast<std::size_t>(rows->taps), rows->count[i], bytes,
                    to);
  }
};

// Makes each vertical output row as soon as its inputs exist, while they are in the cache.
Decoded<void> make_horizontal_first(Job& job) {
  const auto& window = job.stage.window;
  const std::size_t stride = padded_stride(window.width);
  const std::size_t bytes = static_cast<std::size_t>(window.width) * 3;
  decode::grow(job.scratch.middle, stride * static_cast<std::size_t>(job.down.end - job.down.begin));
  const auto middle = [&](std::int32_t y) {
    return job.scratch.middle.data() + static_cast<std::size_t>(y - job.down.begin) * stride;
  };
  if (auto begun = job.begin(false); !begun) return begun;
  std::int32_t y = 0;
  for (std::int32_t done = job.down.begin; done < job.down.end;) {
    auto block = job.source.next();
    if (!block) return pass_on(block.error());
    if (job.columns) {
      job.horizontal(block->data, block->stride, middle(done), stride, block->count);
    } else {
      for (std::int32_t i = 0; i < block->count; ++i) {
        const auto* from = block->data + i * block->stride;
        auto* to = middle(done + i);
        if (!job.stage.mirrored) {
          std::memcpy(to, from, bytes);
          continue;
        }
        for (std::size_t x = 0; x < bytes; x += 3) std::memcpy(to + x, from + (bytes - 3 - x), 3);
      }
    }
    done += block->count;
    for (; y < window.height; ++y) {
      if (!job.rows) {
        if (window.top + y >= done) break;
        job.emit(y, middle(window.top + y));
        continue;
      }
      const auto i = static_cast<std::size_t>(y);
      if (job.rows->first[i] + job.rows->count[i] > done) break;
      job.vertical(job.scratch.middle.data(), static_cast<std::ptrdiff_t>(stride), y, bytes,
                   job.scratch.row.data());
      job.emit(y, job.scratch.row.data());
    }
  }
  return {};
}

Decoded<void> make_vertical_first(Job& job) {
  const auto& window = job.stage.window;
  const std::size_t bytes = static_cast<std::size_t>(job.across.end - job.across.begin) * 3;
  const std::size_t middle_stride = padded_stride(job.across.end - job.across.begin);
  const std::size_t out_stride = padded_stride(window.width);
  decode::grow(job.scratch.middle, (middle_stride + out_stride) * kBlockRows);
  auto* const middle = job.scratch.middle.data();
  auto* const out = middle + middle_stride * kBlockRows;
  if (auto begun = job.begin(true); !begun) return begun;
  const std::uint8_t* first = nullptr;
  std::int32_t y = 0, waiting = 0;
  for (std::int32_t done = job.down.begin; done < job.down.end;) {
    auto block = job.source.next();
    if (!block) return pass_on(block.error());
    if (first == nullptr) first = block->data;
    done += block->count;
    for (; y < window.height; ++y) {
      const auto i = static_cast<std::size_t>(y);
      if (job.rows->first[i] + job.rows->count[i] > done) break;
      job.vertical(first, block->stride, y, bytes,
                   middle + static_cast<std::size_t>(waiting) * middle_stride);
      if (++waiting < kBlockRows && y + 1 < window.height) continue;
      job.horizontal(middle, static_cast<std::ptrdiff_t>(middle_stride), out, out_stride, waiting);
      for (std::int32_t k = 0; k < waiting; ++k) {
        job.emit(y + 1 - waiting + k, out + static_cast<std::size_t>(k) * out_stride);
      }
      waiting = 0;
    }
  }
  return {};
}

}  // namespace

std::size_t padded_stride(std::int32_t width) {
  return (static_cast<std::size_t>(width) * 3 + kWriteSlack + 63) & ~std::size_t{63};
}

Decoded<void> resample_stage(const Stage& stage, ResizePasses passes, RowSource& source, RowSink& sink,
                             Scratch::State& scratch) {
  const auto& window = stage.window;
  Job job{stage,
          source,
          sink,
          scratch,
          nullptr,
          nullptr,
          {window.left, window.left + window.width},
          {window.top, window.top + window.height}};
  if (stage.size.width != stage.crop.width) {
    job.columns = scratch.coefficients.get(
        {stage.crop.width, stage.size.width, window.left, window.width, stage.interpolation});
    job.across = job.columns->inputs;
  }
  if (stage.size.height != stage.crop.height) {
    job.rows = scratch.coefficients.get(
        {stage.crop.height, stage.size.height, window.top, window.height, stage.interpolation});
    job.down = job.rows->inputs;
  }
  decode::grow(scratch.row, padded_stride(window.width));
  decode::grow(scratch.spare, padded_stride(window.width));
  if (vertical_first(stage, passes)) return make_vertical_first(job);
  return make_horizontal_first(job);
}

}  // namespace headrace::server::transform

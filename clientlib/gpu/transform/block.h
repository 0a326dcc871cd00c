// The kernel: what one block of threads does, step by step. Kernel (cuda/) and host twin (host/) both run
// this text; they differ in Block alone.
//
//   source (device memory) -> picture -> first pass -> middle -> second pass -> picture -> colours -> output
//                             [                  shared memory                              ]
//
// Block: each(f) calls f(thread) for all threads, and none goes on before all are done; shared() is the
// block's memory, aligned to 16; add(to, value) adds to device memory that other blocks add to, too.
#pragma once

#include <cstdint>

#include "clientlib/gpu/transform/paint.h"
#include "clientlib/gpu/transform/resample.h"
#include "clientlib/gpu/transform/source.h"
#include "clientlib/gpu/transform/write.h"

namespace headrace::gpu {

/// A part of a task's window, and what of the picture it is made of.
struct Tile {
  std::int32_t top = 0, left = 0, rows = 0, columns = 0;
  Axis across, down;
  Span source_columns, source_rows;
  AxisTable column_table, row_table;
};

HEADRACE_HD inline std::int32_t tiles_across(const RowTask& task) {
  return (task.steps.window.width + task.tile_columns - 1) / task.tile_columns;
}
HEADRACE_HD inline std::int32_t tiles_of(const RowTask& task) {
  return (task.steps.window.height + task.tile_rows - 1) / task.tile_rows * tiles_across(task);
}

HEADRACE_HD inline Tile tile_of(const RowTask& task, std::int32_t number, std::uint8_t* shared) {
  const std::int32_t across = tiles_across(task), y = number / across, x = number - y * across;
  const pixels::PixelRect& window = task.steps.window;
  Tile tile;
  tile.top = y * task.tile_rows;
  tile.left = x * task.tile_columns;
  tile.rows = window.height - tile.top < task.tile_rows ? window.height - tile.top : task.tile_rows;
  tile.columns = window.width - tile.left < task.tile_columns ? window.width - tile.left : task.tile_columns;
  tile.across = columns_of(task);
  tile.down = rows_of(task);
  tile.source_columns = tile.across.span(tile.left, tile.columns);
  tile.source_rows = tile.down.span(tile.top, tile.rows);
  tile.column_table = table_at(shared + task.shared.columns, task.tile_columns, false, task.column_taps);
  tile.row_table = table_at(shared + task.shared.rows, task.tile_rows, true, task.row_taps);
  return tile;
}

HEADRACE_HD inline RowsView tile_view(std::uint8_t* shared, std::int32_t offset, std::int32_t columns,
                                      std::int32_t channels) {
  return {shared, offset, pixel_pitch(columns * channels), 0, 0};
}

/// Loads a chunk of the source; with the first one, the tables are made.
template <int kChannels>
HEADRACE_HD void begin_chunk(std::int32_t thread, const TransformJob& job, const RowTask& task,
                             const Tile& tile, Span across, Span down, bool first, const RowsView& source) {
  load_source<kChannels>(thread, job, task, across, down, source);
  if (!first) return;
  for (std::int32_t i = thread; i < tile.columns; i += kThreads)
    tile.column_table.make(tile.across, tile.left, i);
  // From the other end, where threads had no column.
  for (std::int32_t i = kThreads - 1 - thread; i < tile.rows; i += kThreads)
    tile.row_table.make(tile.down, tile.top, i);
}

HEADRACE_HD inline Span chunk_of(Span all, std::int32_t begin, std::int32_t size) {
  return {begin, all.end - begin < size ? all.end : begin + size};
}

/// The passes of a resize; each reads what is in shared memory and writes elsewhere in it: `out` takes the
/// source's place.
HEADRACE_EXEC_CHECK_OFF
template <int kChannels, class Block>
HEADRACE_HD void make_horizontal_first(Block& block, const TransformJob& job, const RowTask& task,
                                       const Tile& tile, const RowsView& middle, const RowsView& out) {
  const Span across = tile.source_columns, down = tile.source_rows;
  for (std::int32_t begin = down.begin; begin < down.end; begin += task.chunk) {
    const Span rows = chunk_of(down, begin, task.chunk);
    const RowsView source = source_view<kChannels>(job, task, across, rows, out.shared, out.offset);
    RowsView to = middle;
    to.offset += (begin - down.begin) * middle.pitch;
    block.each([&](std::int32_t thread) {
      begin_chunk<kChannels>(thread, job, task, tile, across, rows, begin == down.begin, source);
    });
    block.each([&](std::int32_t thread) {
      resample_rows<kChannels>(thread, source, rows.end - rows.begin, across.begin, tile.column_table,
                               tile.columns, to);
    });
  }
  block.each([&](std::int32_t thread) {
    resample_columns<true>(thread, middle, tile.columns * kChannels, down.begin, tile.row_table, tile.rows,
                           out);
  });
}

HEADRACE_EXEC_CHECK_OFF
template <int kChannels, class Block>
HEADRACE_HD void make_vertical_first(Block& block, const TransformJob& job, const RowTask& task,
                                     const Tile& tile, const RowsView& middle, const RowsView& out) {
  const Span across = tile.source_columns, down = tile.source_rows;
  for (std::int32_t begin = across.begin; begin < across.end; begin += task.chunk) {
    const Span columns = chunk_of(across, begin, task.chunk);
    const RowsView source = source_view<kChannels>(job, task, columns, down, out.shared, out.offset);
    RowsView to = middle;
    to.offset += (begin - across.begin) * kChannels;
    block.each([&](std::int32_t thread) {
      begin_chunk<kChannels>(thread, job, task, tile, columns, down, begin == across.begin, source);
    });
    block.each([&](std::int32_t thread) {
      resample_columns<false>(thread, source, (columns.end - columns.begin) * kChannels, down.begin,
                              tile.row_table, tile.rows, to);
    });
  }
  block.each([&](std::int32_t thread) {
    resample_rows<kChannels>(thread, middle, tile.rows, across.begin, tile.column_table, tile.columns, out);
  });
}

/// The tile's pixels, in the window's orientation: where they lie.
HEADRACE_EXEC_CHECK_OFF
template <int kChannels, class Block>
HEADRACE_HD RowsView make_tile(Block& block, const TransformJob& job, const RowTask& task, const Tile& tile) {
  std::uint8_t* const shared = block.shared();
  const Span across = tile.source_columns, down = tile.source_rows;
  if (tile.across.kind != Axis::Kind::kFilter) {
    const RowsView source = source_view<kChannels>(job, task, across, down, shared, task.shared.picture);
    const RowsView out = tile_view(shared, task.shared.middle, tile.columns, kChannels);
    block.each([&](std::int32_t thread) {
      begin_chunk<kChannels>(thread, job, task, tile, across, down, true, source);
    });
    block.each([&](std::int32_t thread) {
      copy_pixels<kChannels>(thread, source, across.begin, down.begin, tile.column_table, tile.columns,
                             tile.row_table, tile.rows, task.steps.fill, out);
    });
    return out;
  }
  const RowsView out = tile_view(shared, task.shared.picture, tile.columns, kChannels);
  if ((task.steps.flags & pixels::RowSteps::kVerticalFirst) != 0) {
    make_vertical_first<kChannels>(
        block, job, task, tile, tile_view(shared, task.shared.middle, across.end - across.begin, kChannels),
        out);
  } else {
    make_horizontal_first<kChannels>(block, job, task, tile,
                                     tile_view(shared, task.shared.middle, tile.columns, kChannels), out);
  }
  return out;
}

/// What a block does before its first tile.
HEADRACE_HD inline void begin_block(std::int32_t thread, const TransformJob& job, SharedHead& head,
                                    std::int32_t row, std::int32_t steps, bool sum) {
  const RowTask& task = head.task;
  if (sum) {
    head.grays[thread] = 0;
  } else if (job.element_bytes > 1) {
    for (std::int32_t i = thread; i < kValueEntries; i += kThreads) head.values[i] = job.values[i];
  }
  if (thread != 0) return;
  const unsigned long long* sums = job.sums + static_cast<std::int64_t>(row) * job.contrasts;
  const auto pixels = static_cast<std::uint64_t>(task.steps.window.width) *
                      static_cast<std::uint64_t>(task.steps.window.height);
  for (std::int32_t i = 0; i < steps; ++i)
    if (task.steps.ops[i].kind == pixels::PixelStepKind::kContrast)
      head.means[i] = mean_gray(*sums++, pixels);
}

/// Tiles first_tile, first_tile + tile_step, ... of a row. contrast >= 0: instead of writing them, sums the
/// grays of what the row's contrast of that number is applied to.
HEADRACE_EXEC_CHECK_OFF
template <int kChannels, bool kColours, bool kSum, class Block>
HEADRACE_HD void run_block(Block& block, const TransformJob& job, std::int32_t row, std::int32_t first_tile,
                           std::int32_t tile_step, std::int32_t contrast) {
  const RowTask& given = job.tasks[row];
  if (first_tile >= tiles_of(given) || (kSum && contrast >= given.contrasts)) return;
  auto& head = *reinterpret_cast<SharedHead*>(block.shared());
  block.each([&](std::int32_t thread) {
    constexpr auto kWords = static_cast<std::int32_t>(sizeof(RowTask) / sizeof(std::uint32_t));
    const auto* const from = reinterpret_cast<const std::uint32_t*>(&given);
    auto* const to = reinterpret_cast<std::uint32_t*>(&head.task);
    for (std::int32_t i = thread; i < kWords; i += kThreads) to[i] = from[i];
  });
  const RowTask& task = head.task;
  const std::int32_t steps = kSum ? steps_before(task.steps, contrast) : task.steps.op_count;
  block.each([&](std::int32_t thread) { begin_block(thread, job, head, row, steps, kSum); });
  const std::int64_t row_bytes =
      static_cast<std::int64_t>(job.channels) * job.height * job.width * job.element_bytes;
  for (std::int32_t number = first_tile; number < tiles_of(task); number += tile_step) {
    const Tile tile = tile_of(task, number, block.shared());
    const RowsView made = make_tile<kChannels>(block, job, task, tile);
    if (kSum || (kColours && steps > 0)) {
      block.each([&](std::int32_t thread) {
        paint<kChannels, kSum>(thread, head, steps, made, tile.rows, tile.columns);
      });
    }
    if (kSum) continue;
    const Lines lines = lines_of(task, made, kChannels, tile.top, tile.rows, tile.left, tile.columns);
    block.each([&](std::int32_t thread) {
      write_tile(thread, job, lines, block.shared(), head.values, job.output + row * row_bytes);
    });
  }
  if (!kSum) return;
  constexpr std::int32_t kAtOnce = 16;
  block.each([&](std::int32_t thread) {
    if (thread % kAtOnce != 0) return;
    for (std::int32_t i = 1; i < kAtOnce; ++i) head.grays[thread] += head.grays[thread + i];
  });
  block.each([&](std::int32_t thread) {
    if (thread != 0) return;
    unsigned long long sum = 0;
    for (std::int32_t i = 0; i < kThreads; i += kAtOnce) sum += head.grays[i];
    block.add(job.sums + static_cast<std::int64_t>(row) * job.contrasts + contrast, sum);
  });
}

}  // namespace headrace::gpu

// The kernel. A block of threads computes one row of a batch, or a part of it. CUDA (cuda/) and the CPU
// backend (host/) compile the same code and differ only in the type Block.
//
//   position --permutation--> sample                  (dataset in GPU memory; else the sample is the row)
//   draws, made here or by the server --> tables of source rows and columns
//   source image --tables--> 8, 4 or 1 pixels --color steps--> values --> row
//
// Block: each(f) calls f(thread) for all threads and returns when all have finished; shared() is the block's
// memory, aligned to 16; add(to, value) adds atomically to device memory that all blocks share.
#pragma once

#include <cstdint>
#include <type_traits>

#include "clientlib/gpu/rows/colors.h"
#include "clientlib/gpu/rows/moves.h"
#include "clientlib/gpu/rows/pixels.h"

namespace headrace::gpu {

/// The start of a block's shared memory. Two tables of int32 follow. For each output column, then for each
/// output row, they give its source in bytes from the start of the source image, or Traced::at if negative.
struct RowHead {
  std::uint64_t sample;
  DrawnMove drawn[kMaxMoves];
  PixelSteps colors;
  Erased erased;
  std::int32_t step;  ///< PixelTables::step
  bool wide;          ///< PixelTables::wide
  std::uint32_t values[3 * 256];
};

HEADRACE_HD inline std::int32_t row_shared_bytes(const RowJob& job) {
  return static_cast<std::int32_t>(sizeof(RowHead)) + 4 * (job.out_width + job.out_height);
}

/// For sum_grays(), which needs no tables.
HEADRACE_HD inline std::int32_t sum_shared_bytes() {
  return static_cast<std::int32_t>(sizeof(RowHead));
}

HEADRACE_HD inline std::uint8_t* picture_of(const RowJob& job, std::uint64_t sample) {
  return job.pictures + sample * job.picture_step;
}

/// The batch of a row within the launch, and the row's number within that batch.
struct RowOfBatch {
  std::int32_t batch, row;
};

HEADRACE_HD inline RowOfBatch row_of_batch(const RowJob& job, std::int32_t row) {
  if (job.batch_rows == 0) return {0, row};
  const std::int32_t batch = row / job.batch_rows;
  return {batch, row - batch * job.batch_rows};
}

template <class Word>
HEADRACE_HD void move_words(const std::uint8_t* from, std::uint8_t* to, std::uint32_t bytes,
                            std::uint32_t first, std::uint32_t step) {
  const auto words = static_cast<std::uint32_t>(bytes / sizeof(Word));
  for (std::uint32_t i = first; i < words; i += step)
    reinterpret_cast<Word*>(to)[i] = reinterpret_cast<const Word*>(from)[i];
}

HEADRACE_HD inline void move_field(const MovedField& field, std::uint64_t sample, std::uint8_t* to,
                                   std::uint32_t first, std::uint32_t step) {
  const std::uint8_t* const from = field.from + sample * field.row_bytes;
  if (field.unit == 16) return move_words<Vector16>(from, to, field.row_bytes, first, step);
  if (field.unit == 8) return move_words<std::uint64_t>(from, to, field.row_bytes, first, step);
  if (field.unit == 4) return move_words<std::uint32_t>(from, to, field.row_bytes, first, step);
  if (field.unit == 2) return move_words<std::uint16_t>(from, to, field.row_bytes, first, step);
  move_words<std::uint8_t>(from, to, field.row_bytes, first, step);
}

HEADRACE_HD inline std::int32_t step_count(const RowSteps& from) {
  return from.step_count < kMaxPixelSteps ? static_cast<std::int32_t>(from.step_count) : kMaxPixelSteps;
}

/// Reads a row's color step `i`, which may hold any bytes, and limits it to safe values.
HEADRACE_HD inline void read_step(const RowJob& job, const RowSteps& from, std::int32_t i, RowHead& head) {
  PixelStep step = from.steps[i];
  if (!(step.factor > -1e9F && step.factor < 1e9F)) step.factor = 0;  // NaN included
  head.colors.steps[i] = step;
  const auto pixels = static_cast<std::uint64_t>(job.height) * static_cast<std::uint64_t>(job.width);
  if (step.kind == PixelStep::Kind::kContrast) head.colors.means[i] = mean_gray(step.gray_sum, pixels);
}

/// Fills in `head`: the row's sample, draws, color steps and value table. Each part has its own threads.
HEADRACE_HD inline void begin_row(std::int32_t thread, const RowJob& job, RowHead& head, std::int32_t row) {
  constexpr std::int32_t kStepThread = 32, kCountThread = 48, kSampleThread = 64, kFirstValueThread = 96;
  static_assert(kMaxMoves <= kStepThread && kStepThread + kMaxPixelSteps <= kCountThread &&
                kFirstValueThread < kRowThreads);
  const RowOfBatch at = row_of_batch(job, row);
  std::uint64_t position = job.first + static_cast<std::uint64_t>(at.batch) * job.batch_positions +
                           static_cast<std::uint64_t>(at.row);
  if (job.samples != 0 && position >= job.samples) position %= job.samples;  // wrapped duplicates
  const bool resident = job.samples != 0;
  const RowSteps* steps = nullptr;
  if (job.steps_offset != 0)
    steps = reinterpret_cast<const RowSteps*>(picture_of(job, static_cast<std::uint64_t>(row)) +
                                              job.steps_offset);
  if (thread < job.move_count) {
    head.drawn[thread] = steps == nullptr ? draw_move(job.moves[thread], job.seed, job.epoch, position)
                                          : DrawnMove{0, 0, steps->turns[thread]};
  } else if (thread >= kStepThread && thread < kStepThread + kMaxPixelSteps) {
    if (job.changes_colors) read_step(job, *steps, thread - kStepThread, head);
  } else if (thread == kCountThread) {
    head.colors.count = job.changes_colors ? step_count(*steps) : 0;
    head.erased = {0, 0, 0, 0};
    if (steps != nullptr)
      head.erased = {steps->erased_top, steps->erased_left, steps->erased_top + steps->erased_height,
                     steps->erased_left + steps->erased_width};
  } else if (thread == kSampleThread) {
    head.sample = resident && job.shuffled ? draws::permuted(job.order, position)
                  : resident               ? position
                                           : static_cast<std::uint64_t>(row);
  } else if (thread >= kFirstValueThread &&
             (job.conversion == Conversion::kTableHalf || job.conversion == Conversion::kTableFloat32)) {
    for (std::int32_t i = thread - kFirstValueThread; i < job.out_channels * 256;
         i += kRowThreads - kFirstValueThread)
      head.values[i] = pixels::value_bits(static_cast<std::uint8_t>(i & 255), job.how[i >> 8], job.type);
  }
}

HEADRACE_HD inline void make_tables(std::int32_t thread, const RowJob& job, RowHead& head,
                                    std::int32_t* across) {
  if (thread == kRowThreads - 1) {
    // Neighboring columns have neighboring or equal sources. So where the first and the last one are as far
    // apart in the source as in the row, every column is one source column from the column before.
    const std::int32_t far = job.out_width - 1;
    const Traced first = trace(job, head.drawn, {0, true}), last = trace(job, head.drawn, {far, true});
    const bool inside = first.at >= 0 && last.at >= 0 && first.column;
    head.step = inside && last.at - first.at == far   ? job.channels
                : inside && first.at - last.at == far ? -job.channels
                                                      : 0;
    const std::int32_t begin = (head.step > 0 ? first.at : last.at) * job.channels;
    const auto picture = reinterpret_cast<std::uintptr_t>(picture_of(job, head.sample));
    head.wide = head.step != 0 && job.out_width % kWideRun == 0 && begin % kWideRun == 0 &&
                job.width * job.channels % kWideRun == 0 && picture % kWideRun == 0;
  }
  for (std::int32_t i = thread; i < job.out_width + job.out_height; i += kRowThreads) {
    const bool column = i < job.out_width;
    const Traced from = trace(job, head.drawn, {column ? i : i - job.out_width, column});
    across[i] = from.at < 0 ? from.at : from.at * (from.column ? job.channels : job.width * job.channels);
  }
}

/// Runs block number `number` of the launch.
HEADRACE_EXEC_CHECK_OFF
template <int kChannels, Conversion kConversion, bool kColors, class Block>
HEADRACE_HD void run_rows(Block& block, const RowJob& job, std::int32_t number) {
  const std::int32_t row = number / job.parts, part = number - row * job.parts;
  auto& head = *reinterpret_cast<RowHead*>(block.shared());
  auto* const across = reinterpret_cast<std::int32_t*>(block.shared() + sizeof(RowHead));
  block.each([&](std::int32_t thread) { begin_row(thread, job, head, row); });
  if (job.pictures != nullptr) {
    block.each([&](std::int32_t thread) { make_tables(thread, job, head, across); });
  }
  block.each([&](std::int32_t thread) {
    const RowOfBatch at = row_of_batch(job, row);
    std::uint8_t* const batch = job.out + static_cast<std::uint64_t>(at.batch) * job.batch_bytes;
    const auto to_row = static_cast<std::uint64_t>(at.row);
    const std::int32_t first = part * kRowThreads + thread, step = job.parts * kRowThreads;
    for (std::int32_t f = 0; f < job.field_count; ++f) {
      const MovedField& field = job.fields[f];
      move_field(field, head.sample, batch + field.to + to_row * field.row_bytes,
                 static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(step));
    }
    if (job.pictures == nullptr) return;
    const PixelTables tables{across, across + job.out_width, picture_of(job, head.sample), head.step,
                             head.wide};
    const RowValues values{head.values, head.erased};
    const std::int32_t pixels = job.out_height * job.out_width;
    constexpr int kBytes = kElementBytes<kConversion>;
    std::uint8_t* const to =
        batch + job.image_to +
        to_row * static_cast<std::uint64_t>(pixels) * static_cast<std::uint64_t>(job.out_channels) * kBytes;
    using Pixel =
        std::conditional_t<kColors || std::is_same_v<Element<kConversion>, float>, LiftedRgb, pixels::Rgb>;
    const auto make = [&](auto count) {
      constexpr int kCount = decltype(count)::value;
      PixelPosition here(first * kCount, job.out_width);
      const PixelPosition stride(step * kCount, job.out_width);
      for (; here.pixel < pixels; here.advance(stride, job.out_width)) {
        Pixel made[kCount];
        fetch<kChannels>(job, tables, here, made);
        if constexpr (kColors) change_pixels(head.colors, head.colors.count, made);
        store<kConversion>(job, values, made, here.pixel, to);
      }
    };
    // By runs of pixels, if each channel's elements are aligned and the runs fill the row.
    const auto fits = [&](int run) {
      return pixels % run == 0 && (reinterpret_cast<std::uintptr_t>(to) & (run * kBytes - 1)) == 0;
    };
    if constexpr (kBytes < 4)
      if (head.wide && fits(kWideRun)) return make(std::integral_constant<int, kWideRun>());
    if (fits(kRun))
      make(std::integral_constant<int, kRun>());
    else
      make(std::integral_constant<int, 1>());
  });
}

/// Runs before run_rows(), once for contrast change 0, 1, ...: sums the grays of the image that the change is
/// applied to, into the row's PixelStep::gray_sum. The sum is the same before and after the geometric
/// transforms, because a row with RowSteps is not cropped.
HEADRACE_EXEC_CHECK_OFF
template <int kChannels, class Block>
HEADRACE_HD void sum_grays(Block& block, const RowJob& job, std::int32_t contrast, std::int32_t number) {
  const std::int32_t row = number / job.parts, part = number - row * job.parts;
  auto& head = *reinterpret_cast<RowHead*>(block.shared());
  std::uint8_t* const picture = picture_of(job, static_cast<std::uint64_t>(row));
  auto& steps = *reinterpret_cast<RowSteps*>(picture + job.steps_offset);
  block.each([&](std::int32_t thread) {
    if (thread < kMaxPixelSteps) read_step(job, steps, thread, head);
    if (thread == kMaxPixelSteps) head.colors.count = step_count(steps);
  });
  const std::int32_t before = steps_before(head.colors, contrast);
  if (before < 0) return;
  auto* const grays = head.values;  // a sum for each thread
  block.each([&](std::int32_t thread) {
    std::uint32_t sum = 0;
    const std::int32_t pixels = job.height * job.width, step = job.parts * kRowThreads * kWideRun;
    for (std::int32_t pixel = (part * kRowThreads + thread) * kWideRun; pixel < pixels; pixel += step) {
      const std::int32_t end = pixels - pixel < kWideRun ? pixels - pixel : kWideRun;
      LiftedRgb made[kWideRun];
      const std::uint8_t* const at = picture + static_cast<std::int64_t>(pixel) * kChannels;
      if (end == kWideRun) {
        read_run<kChannels>(at, true, made);  // source images are aligned to 16 bytes
      } else {
        HEADRACE_UNROLL
        for (int i = 0; i < kWideRun; ++i)
          made[i] = pixel_at<kChannels, LiftedRgb>(i < end ? at + i * kChannels : at);
      }
      change_pixels(head.colors, before, made);
      HEADRACE_UNROLL
      for (int i = 0; i < kWideRun; ++i) sum += pixels::bits_of(gray_of(made[i])) - kLiftBits;
      // A short last run is filled with copies of its first pixel. Subtracting their grays costs less than a
      // branch for each pixel.
      sum -= static_cast<std::uint32_t>(kWideRun - end) * (pixels::bits_of(gray_of(made[0])) - kLiftBits);
    }
    grays[thread] = sum;
  });
  constexpr std::int32_t kGroup = 16;  // adds in two levels: one thread that adds all sums takes longer
  static_assert(kGroup * kGroup == kRowThreads);
  block.each([&](std::int32_t thread) {
    if (thread >= kGroup) return;
    std::uint32_t sum = 0;
    for (std::int32_t i = 0; i < kGroup; ++i) sum += grays[thread + i * kGroup];
    grays[thread] = sum;
  });
  block.each([&](std::int32_t thread) {
    if (thread != 0) return;
    unsigned long long sum = 0;
    for (std::int32_t i = 0; i < kGroup; ++i) sum += grays[i];
    block.add(reinterpret_cast<unsigned long long*>(&steps.steps[before].gray_sum), sum);
  });
}

/// Calls run(channels, conversion, colors), each a std::integral_constant: what run_rows is compiled for.
template <class F>
auto with_variant(const RowJob& job, F&& run) {
  const auto with_conversion = [&](auto channels, auto colors) {
    switch (job.conversion) {
      case Conversion::kTableHalf:
        return run(channels, std::integral_constant<Conversion, Conversion::kTableHalf>(), colors);
      case Conversion::kTableFloat32:
        return run(channels, std::integral_constant<Conversion, Conversion::kTableFloat32>(), colors);
      case Conversion::kAffineFloat16:
        return run(channels, std::integral_constant<Conversion, Conversion::kAffineFloat16>(), colors);
      case Conversion::kAffineBFloat16:
        return run(channels, std::integral_constant<Conversion, Conversion::kAffineBFloat16>(), colors);
      default:
        return run(channels, std::integral_constant<Conversion, Conversion::kBytes>(), colors);
    }
  };
  const auto with_colors = [&](auto channels) {
    return job.changes_colors ? with_conversion(channels, std::true_type())
                              : with_conversion(channels, std::false_type());
  };
  if (job.channels == 3) return with_colors(std::integral_constant<int, 3>());
  return with_colors(std::integral_constant<int, 1>());
}

}  // namespace headrace::gpu

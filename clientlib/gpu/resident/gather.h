// The kernel: what one block of threads does for one row of a batch, or a part of it. Kernel (cuda/) and host
// twin (host/) both run this text; they differ in Block alone.
//
//   position ---permutation---> sample            resident pictures ---bytes---> values ---16 bytes---> batch
//   position ---draws---> steps ---> tables of source rows and columns
//
// Block: each(f) calls f(thread) for all threads, and none goes on before all are done; shared() is the
// block's memory, aligned to 16.
#pragma once

#include <cstdint>
#include <type_traits>

#include "clientlib/gpu/resident/trace.h"
#include "clientlib/gpu/transform/write.h"

namespace headrace::gpu {

/// At the begin of a block's shared memory; two tables of int32 follow: a source for each output column, then
/// for each output row, as offsets in elements, or negative as Traced::at.
struct GatherHead {
  std::uint64_t sample;
  DrawnStep drawn[kGatherSteps];
  std::uint32_t values[kValueEntries];
};

HEADRACE_HD inline std::int32_t gather_shared_bytes(const GatherJob& job) {
  return static_cast<std::int32_t>(sizeof(GatherHead)) + 4 * (job.out_width + job.out_height);
}

/// Elements of a row in the order of the output.
template <int kStored, bool kTable>
class RowReader {
 public:
  HEADRACE_HD RowReader(const GatherJob& job, const GatherHead& head, const std::int32_t* across)
      : job_(job),
        values_(head.values),
        across_(across),
        down_(across + job.out_width),
        channel_step_(job.interleaved ? 1 : job.height * job.width) {
    const auto picture = static_cast<std::uint64_t>(job.height) * static_cast<std::uint64_t>(job.width) *
                         static_cast<std::uint64_t>(job.channels) * kStored;
    picture_ = job.pictures + head.sample * picture;
  }

  HEADRACE_HD void seek(std::int32_t element) {
    if (job_.interleaved) {
      const std::int32_t pixel = element / job_.channels;
      channel_ = element - pixel * job_.channels;
      y_ = pixel / job_.out_width;
      x_ = pixel - y_ * job_.out_width;
    } else {
      const std::int32_t line = element / job_.out_width;
      x_ = element - line * job_.out_width;
      channel_ = line / job_.out_height;
      y_ = line - channel_ * job_.out_height;
    }
  }

  HEADRACE_HD std::uint32_t next() {
    const std::int32_t column = across_[x_], row = down_[y_];
    // The step that comes last says what is there: of two, the lower number.
    const std::int32_t outside = column < row ? column : row;
    std::uint32_t value = 0;
    if (outside < 0) {
      value = job_.steps[-1 - outside].fill[channel_];
    } else {
      const std::int32_t at = column + row + channel_ * channel_step_;
      value = kStored == 1 ? picture_[at] : reinterpret_cast<const std::uint16_t*>(picture_)[at];
    }
    if (kTable) value = values_[channel_ * 256 + static_cast<std::int32_t>(value)];
    advance();
    return value;
  }

 private:
  HEADRACE_HD void advance() {
    if (job_.interleaved) {
      if (++channel_ < job_.channels) return;
      channel_ = 0;
      if (++x_ < job_.out_width) return;
      x_ = 0;
      ++y_;
      return;
    }
    if (++x_ < job_.out_width) return;
    x_ = 0;
    if (++y_ < job_.out_height) return;
    y_ = 0;
    ++channel_;
  }

  const GatherJob& job_;
  const std::uint32_t* values_;
  const std::int32_t *across_, *down_;
  const std::int32_t channel_step_;
  const std::uint8_t* picture_;
  std::int32_t x_ = 0, y_ = 0, channel_ = 0;
};

/// One of a row's vectors of 16 bytes, which lie where memory's do; less at its ends.
template <int kBytes, class Reader>
HEADRACE_HD void write_vector(Reader& reader, std::uint8_t* to, std::int32_t elements, std::int32_t vector) {
  constexpr int kElements = Packed<kBytes>::kElements;
  const auto skew = static_cast<std::int32_t>(reinterpret_cast<std::uintptr_t>(to) & 15U) / kBytes;
  const std::int32_t first = vector * kElements - skew;
  if (first >= 0 && first + kElements <= elements) {
    reader.seek(first);
    Packed<kBytes> packed;
    HEADRACE_UNROLL
    for (int i = 0; i < kElements; ++i) packed.put(i, reader.next());
    *reinterpret_cast<Vector16*>(to + static_cast<std::int64_t>(first) * kBytes) = packed.vector;
    return;
  }
  const std::int32_t begin = first < 0 ? 0 : first;
  const std::int32_t end = first + kElements < elements ? first + kElements : elements;
  if (begin >= end) return;
  reader.seek(begin);
  HEADRACE_ROLLED
  for (std::int32_t i = begin; i < end; ++i)
    store_element<kBytes>(to + static_cast<std::int64_t>(i) * kBytes, reader.next());
}

template <class Word>
HEADRACE_HD void move_words(const std::uint8_t* from, std::uint8_t* to, std::uint32_t bytes,
                            std::uint32_t first, std::uint32_t step) {
  const auto words = static_cast<std::uint32_t>(bytes / sizeof(Word));
  for (std::uint32_t i = first; i < words; i += step)
    reinterpret_cast<Word*>(to)[i] = reinterpret_cast<const Word*>(from)[i];
}

HEADRACE_HD inline void move_field(const GatherField& field, std::uint64_t sample, std::uint8_t* to,
                                   std::uint32_t first, std::uint32_t step) {
  const std::uint8_t* const from = field.from + sample * field.row_bytes;
  if (field.unit == 16) return move_words<Vector16>(from, to, field.row_bytes, first, step);
  if (field.unit == 8) return move_words<std::uint64_t>(from, to, field.row_bytes, first, step);
  if (field.unit == 4) return move_words<std::uint32_t>(from, to, field.row_bytes, first, step);
  if (field.unit == 2) return move_words<std::uint16_t>(from, to, field.row_bytes, first, step);
  move_words<std::uint8_t>(from, to, field.row_bytes, first, step);
}

/// What the row at `position` is made of. Order and draws are the work of different warps.
HEADRACE_HD inline void begin_row(std::int32_t thread, const GatherJob& job, GatherHead& head,
                                  std::uint64_t position, bool table) {
  if (thread < job.step_count) {
    head.drawn[thread] = draw_step(job.steps[thread], job.seed, job.epoch, position);
  } else if (thread == kGatherThreads - 1) {
    head.sample = job.shuffled ? draws::permuted(job.order, position) : position;
  } else if (table) {
    constexpr std::int32_t kLoaders = kGatherThreads - kGatherSteps - 1;
    for (std::int32_t i = thread - kGatherSteps; i >= 0 && i < job.channels * 256; i += kLoaders)
      head.values[i] = job.values[i];
  }
}

HEADRACE_HD inline void make_table(std::int32_t thread, const GatherJob& job, const GatherHead& head,
                                   std::int32_t* across) {
  const std::int32_t pixel = job.interleaved ? job.channels : 1;
  for (std::int32_t i = thread; i < job.out_width + job.out_height; i += kGatherThreads) {
    const bool column = i < job.out_width;
    const Traced from = trace(job, head.drawn, {column ? i : i - job.out_width, column});
    across[i] = from.at < 0 ? from.at : from.at * (from.column ? pixel : job.width * pixel);
  }
}

/// Block `number` of the launch. kStored and kBytes: of an element as it is resident and in the batch.
HEADRACE_EXEC_CHECK_OFF
template <int kStored, int kBytes, class Block>
HEADRACE_HD void run_gather(Block& block, const GatherJob& job, std::int32_t number) {
  constexpr bool kTable = kStored == 1 && kBytes > 1;
  const std::int32_t row_of_all = number / job.parts, part = number - row_of_all * job.parts;
  const std::int32_t batch = row_of_all / job.rows, row = row_of_all - batch * job.rows;
  std::uint64_t position =
      job.first + static_cast<std::uint64_t>(batch) * job.batch_positions + static_cast<std::uint64_t>(row);
  if (position >= job.samples) position %= job.samples;  // wrapped duplicates
  auto& head = *reinterpret_cast<GatherHead*>(block.shared());
  auto* const across = reinterpret_cast<std::int32_t*>(block.shared() + sizeof(GatherHead));
  std::uint8_t* const out = job.out + static_cast<std::uint64_t>(batch) * job.batch_bytes;
  block.each([&](std::int32_t thread) { begin_row(thread, job, head, position, kTable); });
  if (job.pictures != nullptr) {
    block.each([&](std::int32_t thread) { make_table(thread, job, head, across); });
  }
  block.each([&](std::int32_t thread) {
    const std::int32_t first = part * kGatherThreads + thread, step = job.parts * kGatherThreads;
    for (std::int32_t f = 0; f < job.field_count; ++f) {
      const GatherField& field = job.fields[f];
      move_field(field, head.sample, out + field.to + static_cast<std::uint64_t>(row) * field.row_bytes,
                 static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(step));
    }
    if (job.pictures == nullptr) return;
    const std::int32_t elements = job.channels * job.out_height * job.out_width;
    std::uint8_t* const to =
        out + job.image_to + static_cast<std::uint64_t>(row) * static_cast<std::uint64_t>(elements) * kBytes;
    RowReader<kStored, kTable> reader(job, head, across);
    for (std::int32_t vector = first; vector < parts_of<kBytes>(elements); vector += step)
      write_vector<kBytes>(reader, to, elements, vector);
  });
}

/// Calls run(stored, bytes), each a std::integral_constant: of an element as it is resident and in the batch.
template <class F>
auto with_elements(const GatherJob& job, F&& run) {
  constexpr std::integral_constant<int, 1> one;
  constexpr std::integral_constant<int, 2> two;
  constexpr std::integral_constant<int, 4> four;
  if (job.stored_bytes == 2) return run(two, two);
  if (job.element_bytes == 4) return run(one, four);
  if (job.element_bytes == 2) return run(one, two);
  return run(one, one);
}

}  // namespace headrace::gpu

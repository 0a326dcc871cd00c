#include "server/exec/fill_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>

#include "clientlib/ring/futex.h"
#include "server/exec/stream.h"

namespace headrace::server::exec {
namespace {

/// An exception in a worker would end the server and with it the healthy streams.
Result<Row> make_row(const SampleMaker& maker, const FillJob& job, std::uint64_t position, RowTargets out,
                     RowScratch& scratch, metrics::StreamCounters& counters) try {
  return maker.make(job.order, job.key.cursor.epoch, position, out, scratch, counters);
} catch (const std::exception& error) {
  return fail(ErrorCode::kInternal, fmt::format("position {} of epoch {}: a worker threw: {}", position,
                                                job.key.cursor.epoch, error.what()));
}

}  // namespace

bool FillJob::ready(std::uint32_t first) const {
  if (samples.empty() || first >= rows.rows) return true;
  const auto all = std::span(samples);
  return stream.maker().read_ahead()->ready(all.subspan(first, end_of(first) - first));
}

bool FillJob::claim(std::uint32_t& first) {
  if (samples.empty()) {
    first = begin_of(claimed.fetch_add(slice, std::memory_order_relaxed));
    return first < rows.rows;
  }
  std::uint32_t now = claimed.load(std::memory_order_relaxed);
  do {
    first = begin_of(now);
    if (first >= rows.rows || !ready(first)) return false;
  } while (!claimed.compare_exchange_weak(now, now + slice, std::memory_order_relaxed));
  return true;
}

void FillJob::aim(std::vector<FieldTarget>& out, std::uint32_t row) {
  const SampleMaker& maker = stream.maker();
  out.resize(values.size());
  for (std::size_t f = 0; f < out.size(); ++f)
    out[f] = {.dense = values[f] + row * maker.ring_row_size(f), .for_device = maker.for_device(f)};
  for (RaggedField& field : ragged) out[field.field] = {.ragged = &field.rows[row]};
}

void FillJob::describe(std::uint32_t row, std::uint64_t sample_index, bool replaced) {
  descs[row] = {.sample_index = sample_index,
                .flags = (row < rows.valid ? ring::kRowValid : 0U) | (replaced ? ring::kRowReplaced : 0U)};
}

std::uint64_t FillJob::bytes() const {
  std::uint64_t sum = 0;
  for (std::size_t f = 0; f < values.size(); ++f) sum += rows.rows * stream.maker().ring_row_size(f);
  return sum;
}

void FillJob::join_ragged() {
  for (RaggedField& field : ragged) {
    const std::size_t value_size = stream.maker().row_size(field.field);
    const auto capacity = static_cast<std::size_t>(field.capacity) * value_size;
    std::size_t at = 0;
    for (std::size_t row = 0; row < field.rows.size(); ++row) {
      const std::vector<std::uint8_t>& bytes = field.rows[row];
      field.offsets[row] = static_cast<std::int64_t>(at / value_size);
      if (bytes.size() > capacity - at)
        return stream.stop({ErrorCode::kInternal,
                            fmt::format("field `{}`: a batch has more than the {} values that its source "
                                        "announced",
                                        stream.info().fields[field.field].name, field.capacity)});
      if (!bytes.empty()) std::memcpy(values[field.field] + at, bytes.data(), bytes.size());
      at += bytes.size();
    }
    field.offsets[field.rows.size()] = static_cast<std::int64_t>(at / value_size);
  }
}

Result<void> FillJob::mix(std::uint32_t first, RowScratch& scratch) try {
  aim(scratch.targets, first);
  return stream.maker().mix_rows(order, key.cursor.epoch, scratch.placed, scratch.targets, scratch);
} catch (const std::exception& error) {
  return fail(ErrorCode::kInternal, fmt::format("row {} of epoch {}: a worker threw: {}", rows.first + first,
                                                key.cursor.epoch, error.what()));
}

bool FillJob::work(RowScratch& scratch, metrics::StreamCounters& counters, std::uint64_t until_ns) {
  const SampleMaker& maker = stream.maker();
  const std::uint64_t size = maker.size();
  std::vector<FieldTarget>& out = scratch.targets;
  scratch.pixels.set_streamed(stream.streamed());
  for (std::uint64_t now = ring::monotonic_ns();;) {
    std::uint32_t first = 0;
    if (!claim(first)) return false;
    const std::uint32_t last = end_of(first);
    scratch.placed.clear();
    aim(out, first);
    const auto made = stream.failed() ? std::span<const SliceRow>()
                                      : maker.make_slice(order, key.cursor.epoch, rows.first + first,
                                                         last - first, out, scratch, counters);
    for (std::uint32_t i = first; i < last && !stream.failed(); ++i) {
      if (!made.empty() && made[i - first].made) {
        describe(i, made[i - first].sample_index, false);
        if (maker.mixes()) scratch.placed.push_back({(rows.first + i) % size, made[i - first].label});
        continue;
      }
      const std::uint64_t position = (rows.first + i) % size;
      aim(out, i);
      auto row = make_row(maker, *this, position, out, scratch, counters);
      if (!row) {
        stream.stop(row.error());
        break;
      }
      describe(i, row->sample_index, row->replaced);
      if (maker.mixes()) scratch.placed.push_back({position, row->label});
    }
    if (maker.mixes() && !stream.failed()) {
      if (auto mixed = mix(first, scratch); !mixed) stream.stop(mixed.error());
    }
    if (stream.streamed()) transform::Scratch::finish_streaming();
    const std::uint64_t after = ring::monotonic_ns();
    counters.busy_ns.add(after - now);
    now = after;
    if (done.fetch_add(last - first, std::memory_order_acq_rel) + (last - first) == rows.rows) {
      if (const auto lost = maker.fault()) stream.stop(*lost);
      if (!stream.failed()) join_ragged();
      return true;
    }
    if (now > until_ns) return false;
  }
}

}  // namespace headrace::server::exec

#include "server/exec/fill_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <numeric>

#include "clientlib/ring/futex.h"

namespace headrace::server::exec {
namespace {

/// An exception in a worker would end the server and with it the healthy streams.
template <class F>
auto contain(std::uint64_t position, std::uint64_t epoch, F make) -> decltype(make()) try {
  return make();
} catch (const std::exception& error) {
  return fail(ErrorCode::kInternal,
              fmt::format("position {} of epoch {}: a worker threw: {}", position, epoch, error.what()));
}

}  // namespace

std::size_t bytes_per_row(const SampleMaker& maker) {
  const auto& fields = maker.fields();
  return std::accumulate(fields.begin(), fields.end(), std::size_t{0},
                         [](std::size_t sum, const FieldSpec& field) { return sum + row_bytes(field); });
}

std::uint32_t rows_per_slice(const SampleMaker& maker, std::uint32_t batch_size) {
  constexpr std::size_t kSliceBytes = 256 * 1024;
  const auto rows =
      static_cast<std::uint32_t>(std::clamp<std::size_t>(kSliceBytes / bytes_per_row(maker), 1, batch_size));
  return maker.mixes() ? rows + rows % 2 : rows;  // partners are neighbors
}

bool FillJob::ready(std::uint32_t first) const {
  if (samples.empty() || first >= rows.rows) return true;
  const auto all = std::span(samples);
  return maker.read_ahead()->ready(all.subspan(first, end_of(first) - first));
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
  out.resize(values.size());
  for (std::size_t f = 0; f < out.size(); ++f)
    out[f] = {.dense = values[f] + row * maker.ring_row_size(f),
              .part = maker.for_device(f) ? FieldTarget::Part::kDevice : FieldTarget::Part::kRow};
  for (RaggedField& field : ragged) out[field.field] = {.ragged = &field.rows[row]};
}

void FillJob::describe(std::uint32_t row, std::uint64_t sample_index, bool replaced) {
  descs[row] = {.sample_index = sample_index,
                .flags = (row < rows.valid ? ring::kRowValid : 0U) | (replaced ? ring::kRowReplaced : 0U)};
}

std::uint64_t FillJob::bytes() const {
  std::uint64_t sum = 0;
  for (std::size_t f = 0; f < values.size(); ++f) sum += rows.rows * maker.ring_row_size(f);
  return sum;
}

void FillJob::join_ragged() {
  for (RaggedField& field : ragged) {
    const std::size_t value_size = maker.row_size(field.field);
    std::size_t at = 0;
    for (std::size_t row = 0; row < field.rows.size(); ++row) {
      const std::vector<std::uint8_t>& bytes = field.rows[row];
      field.offsets[row] = static_cast<std::int64_t>(at / value_size);
      if (bytes.size() > field.capacity - at)
        return failure.stop({ErrorCode::kInternal,
                             fmt::format("field `{}`: a batch has more than the {} values that its source "
                                         "announced",
                                         maker.fields()[field.field].name, field.capacity / value_size)});
      if (!bytes.empty()) std::memcpy(values[field.field] + at, bytes.data(), bytes.size());
      at += bytes.size();
    }
    field.offsets[field.rows.size()] = static_cast<std::int64_t>(at / value_size);
  }
}

Result<void> FillJob::mix(std::uint32_t first, RowScratch& scratch) {
  aim(scratch.targets, first);
  return contain(rows.first + first, key.cursor.epoch, [&] {
    return maker.mix_rows(order, key.cursor.epoch, scratch.placed, scratch.targets, scratch);
  });
}

std::optional<Row> FillJob::make(std::uint32_t row, bool wait, RowScratch& scratch,
                                 metrics::StreamCounters& counters) {
  const std::uint64_t epoch = key.cursor.epoch, position = (rows.first + row) % maker.size();
  aim(scratch.targets, row);
  auto made = contain(position, epoch, [&]() -> Result<std::optional<Row>> {
    if (maker.window() != nullptr && (keep_unless || !maker.window()->empty()))
      return maker.make_shared(order, epoch, position, keep_unless, wait, scratch.targets, scratch, counters);
    return maker.make(order, epoch, position, scratch.targets, scratch, counters);
  });
  if (!made) {
    failure.stop(made.error());
    return std::nullopt;
  }
  if (*made) describe(row, (*made)->sample_index, (*made)->replaced);
  return *made;
}

bool FillJob::finish(std::uint32_t count) {
  if (done.fetch_add(count, std::memory_order_acq_rel) + count != rows.rows) return false;
  if (const auto lost = maker.fault()) failure.stop(*lost);
  if (!failure.failed()) join_ragged();
  if (slot) checksum = slot->checksum(rows.rows);  // here, because the next step holds the engine's lock
  return true;
}

bool FillJob::copy_slice(std::uint32_t first, std::uint32_t count, RowScratch& scratch,
                         metrics::StreamCounters& counters) {
  const RemoteRows* const from = remote->rows();
  if (from == nullptr) return false;
  RemoteScratch& copy = scratch.remote;
  copy.samples.resize(count);
  copy.replaced.resize(count);
  copy.to.clear();
  copy.from.clear();
  const auto add = [&](void* to, std::uint64_t address, std::size_t row_size) {
    copy.to.push_back({.iov_base = to, .iov_len = count * row_size});
    copy.from.push_back(RemoteRows::part(address, first, count, row_size));
  };
  for (std::size_t f = 0; f < values.size(); ++f)
    add(values[f] + first * maker.ring_row_size(f), from->fields[f], maker.ring_row_size(f));
  add(copy.samples.data(), from->samples, sizeof copy.samples[0]);
  add(copy.replaced.data(), from->replaced, sizeof copy.replaced[0]);
  const auto right = [&] {  // of a row that is replaced, make() finds the sample
    for (std::uint32_t i = 0; i < count; ++i)
      if (copy.replaced[i] == 0 &&
          copy.samples[i] != maker.source().whole_index(order(rows.first + first + i)))
        return false;
    return true;
  };
  if (from->memory->read(copy.to, copy.from) && right()) {
    const auto kept = static_cast<std::uint32_t>(std::count(copy.replaced.begin(), copy.replaced.end(), 0));
    remote->count_copied(kept);
    counters.remote.add(kept);
    counters.samples.add(kept);
    return true;
  }
  remote->forget_rows();
  return false;
}

bool FillJob::make_slice(std::uint32_t first, RowScratch& scratch, metrics::StreamCounters& counters) {
  const std::uint32_t last = end_of(first);
  const std::size_t deferred = scratch.deferred.size();
  const bool copied = remote && !failure.failed() && copy_slice(first, last - first, scratch, counters);
  scratch.placed.clear();
  aim(scratch.targets, first);
  const auto made = copied || failure.failed()
                        ? std::span<const SliceRow>()
                        : maker.make_slice(order, key.cursor.epoch, rows.first + first, last - first,
                                           scratch.targets, scratch, counters);
  for (std::uint32_t i = first; i < last && !failure.failed(); ++i) {
    std::int64_t label = 0;
    // A replaced sample is made here, where bad samples are counted.
    if (copied && scratch.remote.replaced[i - first] == 0) {
      describe(i, scratch.remote.samples[i - first], false);
    } else if (!made.empty() && made[i - first].made) {
      describe(i, made[i - first].sample_index, false);
      label = made[i - first].label;
    } else {
      // Rows that are mixed are needed together.
      const auto row = make(i, maker.mixes(), scratch, counters);
      if (!row) {
        if (!failure.failed()) scratch.deferred.push_back(i);
        continue;
      }
      label = row->label;
    }
    if (maker.mixes()) scratch.placed.push_back({(rows.first + i) % maker.size(), label});
  }
  if (maker.mixes() && !failure.failed()) {
    if (auto mixed = mix(first, scratch); !mixed) failure.stop(mixed.error());
  }
  if (streamed) transform::Scratch::finish_streaming();
  return finish(last - first - static_cast<std::uint32_t>(scratch.deferred.size() - deferred));
}

bool FillJob::make_deferred(RowScratch& scratch, metrics::StreamCounters& counters) {
  if (scratch.deferred.empty()) return false;
  for (const std::uint32_t row : scratch.deferred)
    if (!failure.failed()) make(row, true, scratch, counters);
  if (streamed) transform::Scratch::finish_streaming();
  return finish(static_cast<std::uint32_t>(scratch.deferred.size()));
}

bool FillJob::make_slices(RowScratch& scratch, metrics::StreamCounters& counters, std::uint64_t until_ns) {
  for (std::uint64_t now = ring::monotonic_ns();;) {
    std::uint32_t first = 0;
    if (!claim(first)) return false;
    const bool completed = make_slice(first, scratch, counters);
    const std::uint64_t after = ring::monotonic_ns();
    counters.busy_ns.add(after - now);
    now = after;
    if (completed || now > until_ns) return completed;
  }
}

bool FillJob::work(RowScratch& scratch, metrics::StreamCounters& counters, std::uint64_t until_ns) {
  scratch.deferred.clear();
  scratch.pixels.set_streamed(streamed);
  if (make_slices(scratch, counters, until_ns)) return true;
  const std::uint64_t begin = ring::monotonic_ns();
  const bool completed = make_deferred(scratch, counters);
  counters.busy_ns.add(ring::monotonic_ns() - begin);
  return completed;
}

}  // namespace headrace::server::exec

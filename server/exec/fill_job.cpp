#include "server/exec/fill_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "clientlib/ring/futex.h"
#include "server/exec/stream.h"

namespace headrace::server::exec {
namespace {

/// A worker that throws would end the server and with it the streams that are well.
Result<Row> make_row(const SampleMaker& maker, const FillJob& job, std::uint64_t position, RowTargets out,
                     RowScratch& scratch, metrics::StreamCounters& counters) try {
  return maker.make(job.order, job.key.cursor.epoch, position, out, scratch, counters);
} catch (const std::exception& error) {
  return fail(ErrorCode::kInternal, fmt::format("position {} of epoch {}: a worker threw: {}", position,
                                                job.key.cursor.epoch, error.what()));
}

}  // namespace

bool FillJob::work(RowScratch& scratch, metrics::StreamCounters& counters, std::uint64_t until_ns) {
  const SampleMaker& maker = stream.maker();
  std::vector<std::byte*>& out = scratch.targets;
  for (std::uint64_t now = ring::monotonic_ns();;) {
    const std::uint32_t first = claimed.fetch_add(slice, std::memory_order_relaxed);
    if (first >= rows.rows) return false;
    const std::uint32_t last = std::min(rows.rows, first + slice);
    out = values;
    for (std::size_t f = 0; f < out.size(); ++f) out[f] += first * maker.row_size(f);
    for (std::uint32_t i = first; i < last && !stream.failed(); ++i) {
      const std::uint64_t position = (rows.first + i) % maker.size();
      auto row = make_row(maker, *this, position, out, scratch, counters);
      if (!row) {
        stream.stop(row.error());
        break;
      }
      descs[i].sample_index = row->sample_index;
      descs[i].flags = (i < rows.valid ? ring::kRowValid : 0U) | (row->replaced ? ring::kRowReplaced : 0U);
      descs[i].reserved = 0;
      for (std::size_t f = 0; f < out.size(); ++f) out[f] += maker.row_size(f);
    }
    const std::uint64_t after = ring::monotonic_ns();
    counters.busy_ns.add(after - now);
    now = after;
    if (done.fetch_add(last - first, std::memory_order_acq_rel) + (last - first) == rows.rows) return true;
    if (now > until_ns) return false;
  }
}

}  // namespace headrace::server::exec

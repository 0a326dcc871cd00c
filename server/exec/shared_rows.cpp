// Rows in two parts: the first one comes from the window or goes there.
#include <fmt/format.h>

#include <cstring>

#include "clientlib/ring/futex.h"
#include "server/exec/sample_maker.h"

namespace headrace::server::exec {

using transform::BadReason;

void SampleMaker::share(SharedFields fields, std::shared_ptr<RowWindow> window, std::uint32_t stream) {
  shared_ = std::move(fields);
  window_ = std::move(window);
  window_stream_ = stream;
}

Result<std::optional<Row>> SampleMaker::make_shared(const sampler::EpochOrder& order, std::uint64_t epoch,
                                                    std::uint64_t position,
                                                    const std::optional<RowWindow::Lanes>& keep_unless,
                                                    bool wait, RowTargets out, RowScratch& scratch,
                                                    metrics::StreamCounters& counters) const {
  const auto number = window_->number(epoch, position);
  RowWindow::Found found = number ? window_->find(*number, keep_unless, wait) : RowWindow::Found{};
  if (found.busy) return std::nullopt;
  const transform::DrawKey key{options_.seed, epoch, position};
  if (found.row) {
    const std::uint64_t sample = order(position);
    if (options_.read_ahead) options_.read_ahead->forget({&sample, 1});
    Row row{.sample_index = found.row->sample_index, .label = found.row->label};
    if (auto finished = finish_shared(found.row->bytes.get(), key, out, scratch, counters); !finished)
      return fail(finished.error());
    if (plans_.size() < fields_.size() && !options_.mixer)
      std::memcpy(out.back().dense, &row.label, sizeof row.label);
    counters.samples.add(1);
    counters.shared.add(1);
    return row;
  }
  if (!found.claim)
    return make(order, epoch, position, out, scratch, counters).map([](Row&& row) {
      return std::optional(std::move(row));
    });
  std::byte* const bytes = found.claim->bytes();
  scratch.shared.assign(out.begin(), out.end());
  for (std::size_t f = 0; f < plans_.size(); ++f)
    scratch.shared[f] = {.dense = bytes + shared_.fields[f].offset, .part = FieldTarget::Part::kShared};
  const metrics::Count& warnings = counters.errors[static_cast<std::size_t>(BadReason::kWarning)];
  const std::uint64_t warned = warnings.get();
  // It is read again at once.
  const bool streamed = scratch.pixels.set_streamed(false);
  auto row = make(order, epoch, position, scratch.shared, scratch, counters);
  scratch.pixels.set_streamed(streamed);
  if (!row) return fail(row.error());
  if (auto finished = finish_shared(bytes, key, out, scratch, counters); !finished)
    return fail(finished.error());
  // Each stream counts the bad samples that it meets, so it has to meet them itself.
  if (!row->replaced && warnings.get() == warned) std::move(*found.claim).done(row->sample_index, row->label);
  return std::move(*row);
}

Result<void> SampleMaker::finish_shared(const std::byte* shared, const transform::DrawKey& key,
                                        RowTargets out, RowScratch& scratch,
                                        metrics::StreamCounters& counters) const {
  for (std::size_t f = 0; f < plans_.size(); ++f) {
    const SharedField& field = shared_.fields[f];
    const std::byte* const begin = shared + field.offset;
    if (!field.second) {
      std::memcpy(out[f].dense, begin, field.bytes);
      continue;
    }
    const std::span bytes(reinterpret_cast<const std::uint8_t*>(begin), field.bytes);
    const std::uint64_t start = ring::monotonic_ns();
    transform::Size base;
    if (!field.second->cut({bytes, field.pixels}, key, scratch.pixels, out[f].dense, base)) {
      const auto report = field.second->render({bytes, field.pixels}, key, scratch.pixels, out[f].dense);
      if (report.bad != BadReason::kNone)
        return fail(ErrorCode::kInternal,
                    fmt::format("field `{}`: the second part of a row: {}", fields_[f].name, report.detail));
    }
    if (out[f].part == FieldTarget::Part::kDevice) add_steps(f, key, out[f].dense, scratch);
    counters.stage(metrics::Stage::kTransform).observe(ring::monotonic_ns() - start);
  }
  return {};
}

}  // namespace headrace::server::exec

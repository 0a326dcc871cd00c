// Makes rows for which nothing has to be read or decoded, one slice at a time.
#include <algorithm>
#include <cstring>
#include <exception>
#include <numeric>
#include <utility>

#include "clientlib/ring/futex.h"
#include "server/exec/sample_maker.h"
#include "server/transform/kernels/prefetch.h"

namespace headrace::server::exec {
namespace {

/// Samples are scattered over memory: prefetch a sample this many rows before it is used.
constexpr std::size_t kRowsAhead = 6;

}  // namespace

template <class ItemOf>
bool SampleMaker::cut_row(ItemOf item_of, const transform::DrawKey& key, std::size_t row, RowTargets out,
                          RowScratch& scratch) const {
  const transform::Size* first = nullptr;  // first of the fields that are cut together
  transform::Size first_size, size;
  for (std::size_t f = 0; f < plans_.size(); ++f) {
    const cache::Piece item = item_of(f);
    std::byte* const to = out[f].dense + row * ring_row_sizes_[f];
    if (!plans_[f].plan) {
      if (item.bytes.size() != row_sizes_[f]) return false;
      std::memcpy(to, item.bytes.data(), item.bytes.size());
      continue;
    }
    const transform::Plan& plan = plans_[f].ring_plan();
    if (options_.decoded) {
      size = {item.base.height, item.base.width};
      if (!plan.cut(transform::Prepared{item.bytes, item.pixels, size}, key, scratch.pixels, to))
        return false;
    } else if (!plan.cut({item.bytes, item.pixels}, key, scratch.pixels, to, size)) {
      return false;
    }
    if (plans_[f].on_device) [[unlikely]]
      add_steps(f, key, to, scratch);
    if (!plans_[f].aligned) continue;
    if (first == nullptr) first_size = size;
    first = &first_size;
    if (size.height != first->height || size.width != first->width) return false;
  }
  return true;
}

std::span<const SliceRow> SampleMaker::make_slice(const sampler::EpochOrder& order, std::uint64_t epoch,
                                                  std::uint64_t first, std::uint32_t count, RowTargets out,
                                                  RowScratch& scratch,
                                                  metrics::StreamCounters& counters) const try {
  if (!cuts_ || (!options_.decoded && options_.read_ahead)) return {};
  const std::uint64_t begin = ring::monotonic_ns(), positions = size();
  scratch.samples.resize(count);
  const auto next = [&](std::uint64_t position) { return position + 1 == positions ? 0 : position + 1; };
  std::uint64_t position = first % positions;
  for (std::uint64_t& sample : scratch.samples) sample = std::exchange(position, next(position));
  order.apply(scratch.samples);
  source::SampleView& view = scratch.view;
  if (!options_.decoded) {
    view.indices = scratch.samples;
    if (!source_->view_samples(view)) return {};
  }
  const std::uint64_t found = ring::monotonic_ns();
  const std::size_t fields = source_->fields().size();
  const auto viewed_item = [&](std::size_t row, std::size_t field) {
    return view.items[row * fields + plans_[field].source_field];
  };
  const auto prefetch_row = [&](std::size_t row) {
    for (std::size_t f = 0; f < plans_.size() && row < count; ++f) transform::prefetch(viewed_item(row, f));
  };
  if (!options_.decoded)
    for (std::size_t i = 0; i < kRowsAhead; ++i) prefetch_row(i);

  scratch.rows.assign(count, {});
  std::uint64_t made = 0, bytes = 0;
  transform::DrawKey key{options_.seed, epoch, first % positions};
  for (std::uint32_t i = 0; i < count; ++i, key.position = next(key.position)) {
    const std::uint64_t sample = scratch.samples[i];
    SliceRow& row = scratch.rows[i];
    if (options_.decoded) {
      if (!options_.decoded.find(source_->index_in_distinct(sample), scratch.kept)) continue;
      row.made = cut_row([&](std::size_t f) { return *scratch.kept[f]; }, key, i, out, scratch);
      if (row.made && options_.read_ahead) options_.read_ahead->forget({&sample, 1});
    } else {
      prefetch_row(i + kRowsAhead);
      const auto item_of = [&](std::size_t f) {
        return cache::Piece{viewed_item(i, f), view.pixels[plans_[f].source_field], {}};
      };
      row.made = cut_row(item_of, key, i, out, scratch);
      if (row.made)
        for (const std::size_t field : source_fields_) bytes += view.items[i * fields + field].size();
    }
    if (!row.made) continue;
    row.sample_index = source_->whole_index(sample);
    row.label = source_->label(sample);
    if (options_.mixer) {
      row.made = options_.mixer->check_label(row.label).has_value();  // make() reports the error
    } else if (plans_.size() < fields_.size()) {
      std::memcpy(out.back().dense + i * sizeof row.label, &row.label, sizeof row.label);
    }
    if (row.made) ++made;
  }
  const auto images = static_cast<std::uint64_t>(std::count_if(
      plans_.begin(), plans_.end(), [](const FieldPlan& field) { return field.plan.has_value(); }));
  counters.samples.add(made);
  counters.read_bytes.add(bytes);
  if (options_.decoded) {
    counters.cached.add(made);
  } else {
    counters.stage(metrics::Stage::kRead).observe(found - begin, made);
    counters.stage(metrics::Stage::kDecode).observe(0, made * images);
  }
  counters.stage(metrics::Stage::kTransform).observe(ring::monotonic_ns() - found, made * images);
  return scratch.rows;
} catch (const std::exception&) {
  return {};  // make() makes each row again and reports the error with its position
}

}  // namespace headrace::server::exec

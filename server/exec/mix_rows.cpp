#include "server/exec/sample_maker.h"

namespace headrace::server::exec {

Result<void> SampleMaker::mix_rows(const sampler::EpochOrder& order, std::uint64_t epoch,
                                   std::span<const PlacedRow> rows, RowTargets first,
                                   RowScratch& scratch) const {
  const RowMixer& mixer = *options_.mixer;
  const std::size_t image = mixer.image_field(), label = fields_.size() - 1;
  const auto row_at = [&](const PlacedRow& row, RowTargets fields, std::size_t index) {
    return RowMixer::MixedRow{{options_.seed, epoch, row.position},
                              row.label,
                              fields[image].dense + index * row_sizes_[image],
                              fields[label].dense + index * row_sizes_[label]};
  };
  const auto partner = [this](const PlacedRow& row) { return transform::partner_of(row.position, size()); };
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const bool both = i + 1 < rows.size() && partner(rows[i]) == rows[i + 1].position &&
                      partner(rows[i + 1]) == rows[i].position;
    if (both) {
      mixer.mix_pair(row_at(rows[i], first, i), row_at(rows[i + 1], first, i + 1));
      ++i;
      continue;
    }
    LooseRow other(*this);
    metrics::StreamCounters uncounted;
    const PlacedRow place{partner(rows[i]), 0};
    auto made = make_row(order, epoch, place.position, other.fields, scratch, uncounted, Purpose::kShown);
    if (!made) return fail(made.error());
    mixer.mix(row_at(rows[i], first, i), row_at({place.position, made->label}, other.fields, 0));
  }
  return {};
}

}  // namespace headrace::server::exec

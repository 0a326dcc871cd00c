#include "clientlib/gpu/device/batch_layout.h"

#include <fmt/format.h>

#include <algorithm>

#include "clientlib/ring/slot_layout.h"

namespace headrace::gpu {

Result<BatchLayout> BatchLayout::plan(const StreamInfo& info) {
  auto layout = plan(info.fields, info.most_rows());
  if (layout)
    for (const DeviceImage& image : info.on_device) layout->fields.at(image.field).finished_here = true;
  return layout;
}

Result<BatchLayout> BatchLayout::plan(const std::vector<FieldSpec>& specs, std::uint32_t rows) {
  const auto slot = ring::SlotLayout::plan(specs, rows);
  if (!slot) return fail(slot.error());
  BatchLayout layout{.specs = std::make_shared<const std::vector<FieldSpec>>(specs), .rows = rows};
  for (const ring::FieldDesc& field : slot->fields)
    layout.fields.push_back({field.values_offset, field.offsets_offset});
  layout.bytes = (slot->rows_offset + kAlignment - 1) / kAlignment * kAlignment;
  return layout;
}

Result<std::vector<std::int64_t>> BatchLayout::add_transfers(const BatchView& batch, std::byte* base,
                                                             std::vector<Transfer>& out) const {
  std::vector<std::int64_t> counts;
  for (std::size_t f = 0; f < fields.size(); ++f) {
    const FieldSpec& spec = (*specs)[f];
    const FieldView view = *batch.field(spec.name);
    const bool ragged = spec.kind == FieldKind::kRagged;
    const std::int64_t most = ragged ? spec.ragged_capacity : std::int64_t{rows};
    if (view.shape[0] > most || batch.rows() > rows)
      return fail(ErrorCode::kInternal,
                  fmt::format("field '{}': the batch has {} values in {} rows, expected at most {} in {}",
                              spec.name, view.shape[0], batch.rows(), most, rows));
    counts.push_back(view.shape[0]);
    if (fields[f].finished_here) continue;
    out.push_back({view.data, base + fields[f].values, view.bytes()});
    if (ragged)
      out.push_back({reinterpret_cast<const std::byte*>(view.offsets.data()), base + fields[f].offsets,
                     view.offsets.size_bytes()});
  }
  return counts;
}

}  // namespace headrace::gpu

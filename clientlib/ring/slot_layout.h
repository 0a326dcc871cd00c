// The offset of each field within a slot. The server computes it once and writes it to the control segment;
// clients check it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "clientlib/ring/layout.h"
#include "headrace/error.h"
#include "headrace/field.h"

namespace headrace::ring {

struct SlotLayout {
  std::vector<FieldDesc> fields;
  std::uint64_t rows_offset = 0;
  std::uint64_t slot_stride = 0;  ///< a multiple of the page size
  std::uint32_t row_capacity = 0;

  /// kInvalidArgument: no field, a duplicate or malformed name, a negative or overflowing size.
  static Result<SlotLayout> plan(std::span<const FieldSpec> fields, std::uint32_t rows);
};

/// The memory of one slot: in the ring, or elsewhere with the same layout. A view.
class SlotMemory {
 public:
  /// `layout` must outlive it; `begin` has layout.slot_stride bytes, aligned to a cache line.
  SlotMemory(std::byte* begin, const SlotLayout& layout) : begin_(begin), layout_(&layout) {}

  /// The start of a field's values. A dense row begins at `row_bytes * row`.
  [[nodiscard]] std::byte* values(std::size_t field) const;
  [[nodiscard]] std::size_t value_bytes(std::size_t field) const;  ///< of all values that fit
  [[nodiscard]] std::int64_t* offsets(std::size_t field) const;    ///< ragged only
  [[nodiscard]] RowDesc* rows() const;

 private:
  std::byte* begin_;
  const SlotLayout* layout_;
};

/// Reads a field's description from a control segment. kBadMessage if an offset or size exceeds the segment.
Result<FieldSpec> to_spec(const FieldDesc& desc);

}  // namespace headrace::ring

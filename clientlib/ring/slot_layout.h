// The offset of each field within a slot. The server computes it once and writes it to the control segment;
// clients check it.
#pragma once

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

/// Reads a field's description from a control segment. kBadMessage if an offset or size exceeds the segment.
Result<FieldSpec> to_spec(const FieldDesc& desc);

}  // namespace headrace::ring

// How rows are made in two parts, so that others can use the first one: uint8 images after the transforms
// that streams have in common, kept in a RowWindow.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "server/exec/field_plans.h"

namespace headrace::server::exec {

struct SharedField {
  std::size_t offset = 0, bytes = 0;  ///< within the shared row
  /// For images: make the shared part from the source's item, and the field from the shared part.
  std::optional<transform::Plan> first, second;
  decode::PixelShape pixels{};  ///< of the shared part
};

struct SharedFields {
  std::vector<SharedField> fields;  ///< in the order of the plans
  std::size_t row_bytes = 0;
};

/// The two parts of each field if the first `transforms` transforms are shared, which the server applies
/// itself. None: images have no fixed size after them, there is nothing to decode, or a field's size differs
/// between samples.
std::optional<SharedFields> share_fields(const source::Source& source, const std::vector<FieldPlan>& plans,
                                         std::size_t transforms);

}  // namespace headrace::server::exec

// What a client sees of a batch, for comparisons.
#pragma once

#include <string>

#include "headrace/client.h"

namespace headrace {

/// Everything that a client sees of a batch, except whether its memory is private.
inline std::string content_of(const BatchView& batch) {
  std::string all = std::to_string(batch.epoch()) + " " + std::to_string(batch.rows()) + " " +
                    std::to_string(batch.valid_rows()) + "\n";
  for (const RowInfo& row : batch.all_rows())
    all += std::to_string(row.sample_index) + (row.valid ? " valid" : "") +
           (row.replaced ? " replaced" : "") + "\n";
  for (const FieldSpec& spec : batch.fields()) {
    const FieldView field = batch.field(spec.name).value();
    all += spec.name + " " + std::string(name_of(spec.dtype));
    for (const std::int64_t size : field.shape) all += " " + std::to_string(size);
    for (const std::int64_t offset : field.offsets) all += " at " + std::to_string(offset);
    all += "\n" + std::string(reinterpret_cast<const char*>(field.data), field.bytes());
  }
  return all;
}

}  // namespace headrace

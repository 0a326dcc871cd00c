#include "headrace/stream_info.h"

namespace headrace {

std::vector<FieldSpec> ring_fields(const StreamInfo& info) {
  std::vector<FieldSpec> fields = info.fields;
  for (const DevicePictures& pictures : info.on_device) {
    FieldSpec& field = fields.at(pictures.field);
    field = {
        field.name, DType::kUInt8, FieldKind::kDense, {static_cast<std::int64_t>(pictures.row_bytes)}, 0};
  }
  return fields;
}

}  // namespace headrace

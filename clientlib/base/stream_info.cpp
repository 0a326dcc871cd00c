#include "headrace/stream_info.h"

namespace headrace {

std::vector<FieldSpec> ring_fields(const StreamInfo& info) {
  std::vector<FieldSpec> fields = info.fields;
  for (const DeviceImage& image : info.on_device) {
    FieldSpec& field = fields.at(image.field);
    field = {field.name, DType::kUInt8, FieldKind::kDense, {static_cast<std::int64_t>(image.row_bytes())}, 0};
  }
  return fields;
}

}  // namespace headrace

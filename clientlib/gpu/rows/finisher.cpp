#include "clientlib/gpu/rows/finisher.h"

#include <fmt/format.h>

#include "clientlib/gpu/rows/plan.h"

namespace headrace::gpu {

Result<std::vector<FinishedField>> plan_fields(const StreamInfo& info) {
  std::vector<FinishedField> fields;
  for (const DeviceImage& image : info.on_device) {
    const FieldSpec& spec = info.fields.at(image.field);
    RowJob& job = fields.emplace_back(FinishedField{image.field, spec.name, {}}).job;
    const auto wrong = plan_rows(image, spec, Drawn::kByServer, job);
    if (!wrong.empty())
      return fail(
          ErrorCode::kBadMessage,
          fmt::format("stream '{}': the device cannot compute rows as the server describes them (client and "
                      "server may differ in version): {}",
                      info.name, wrong));
  }
  return fields;
}

Result<RowFinisher> RowFinisher::open(std::vector<FinishedField> fields, std::uint32_t rows,
                                      std::shared_ptr<Device> device) {
  RowFinisher finisher(std::move(device));
  for (FinishedField& field : fields) {
    auto memory = finisher.device_->allocate(rows * field.job.picture_step);
    if (!memory) return fail(memory.error());
    field.job.pictures = reinterpret_cast<std::uint8_t*>(*memory);
    field.job.blocks_at_once = finisher.device_->blocks_at_once(field.job);
    finisher.fields_.push_back(std::move(field));
  }
  return finisher;
}

RowFinisher::~RowFinisher() {
  if (device_ == nullptr) return;
  device_->synchronize();
  for (const FinishedField& field : fields_) device_->free(reinterpret_cast<std::byte*>(field.job.pictures));
}

void RowFinisher::add_transfers(const BatchView& batch, std::vector<Transfer>& out) {
  for (const FinishedField& field : fields_) {
    const FieldView view = *batch.field(field.name);
    out.push_back({view.data, reinterpret_cast<std::byte*>(field.job.pictures), view.bytes()});
  }
}

Result<void> RowFinisher::launch(std::byte* base, std::uint32_t rows, const BatchLayout& layout) {
  for (FinishedField& field : fields_) {
    field.job.out = reinterpret_cast<std::uint8_t*>(base);
    field.job.image_to = layout.fields[field.at].values;
    field.job.rows = static_cast<std::int32_t>(rows);
    field.job.parts = row_parts(field.job);
    if (auto launched = device_->launch(field.job); !launched) return launched;
  }
  return {};
}

}  // namespace headrace::gpu

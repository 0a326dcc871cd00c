#include "clientlib/gpu/rows/finisher.h"

#include <fmt/format.h>

#include "clientlib/gpu/rows/plan.h"

namespace headrace::gpu {

Result<RowFinisher> RowFinisher::open(const StreamInfo& info, std::shared_ptr<Device> device) {
  if (auto ready = device->prepare_rows(); !ready) return fail(ready.error());
  RowFinisher finisher(std::move(device));
  for (const DeviceImage& image : info.on_device) {
    const FieldSpec& spec = info.fields.at(image.field);
    Field field{image.field, spec.name, {}};
    if (const auto wrong = plan_rows(image, spec, Drawn::kByServer, field.job); !wrong.empty())
      return fail(ErrorCode::kBadMessage,
                  fmt::format("stream '{}' cannot be finished on the device: {}", info.name, wrong));
    auto memory = finisher.device_->allocate(info.batch_size * field.job.picture_step);
    if (!memory) return fail(memory.error());
    field.job.pictures = reinterpret_cast<std::uint8_t*>(*memory);
    field.job.parts = row_parts(field.job);
    finisher.fields_.push_back(std::move(field));
  }
  return finisher;
}

RowFinisher::~RowFinisher() {
  if (device_ == nullptr) return;
  device_->synchronise();
  for (const Field& field : fields_) device_->free(reinterpret_cast<std::byte*>(field.job.pictures));
}

void RowFinisher::add_transfers(const BatchView& batch, std::vector<Transfer>& out) {
  for (const Field& field : fields_) {
    const FieldView view = *batch.field(field.name);
    out.push_back({view.data, reinterpret_cast<std::byte*>(field.job.pictures), view.bytes()});
  }
}

Result<void> RowFinisher::launch(std::byte* base, std::uint32_t rows, const BatchLayout& layout) {
  for (Field& field : fields_) {
    field.job.out = reinterpret_cast<std::uint8_t*>(base);
    field.job.image_to = layout.fields[field.at].values;
    field.job.rows = static_cast<std::int32_t>(rows);
    if (auto launched = device_->launch(field.job); !launched) return launched;
  }
  return {};
}

}  // namespace headrace::gpu

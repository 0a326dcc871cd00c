#include "clientlib/gpu/rows/finisher.h"

#include <fmt/format.h>

#include "clientlib/gpu/rows/plan.h"

namespace headrace::gpu {

namespace {

Result<RowJob> plan_field(const StreamInfo& info, const DeviceImage& image) {
  RowJob job;
  const auto wrong = plan_rows(image, info.fields.at(image.field), Drawn::kByServer, job);
  if (!wrong.empty())
    return fail(ErrorCode::kBadMessage,
                fmt::format("stream '{}' cannot be finished on the device: {}", info.name, wrong));
  return job;
}

}  // namespace

Result<void> check_rows(const StreamInfo& info) {
  for (const DeviceImage& image : info.on_device)
    if (auto planned = plan_field(info, image); !planned) return fail(planned.error());
  return {};
}

Result<RowFinisher> RowFinisher::open(const StreamInfo& info, std::uint32_t rows,
                                      std::shared_ptr<Device> device) {
  if (auto ready = device->prepare_rows(); !ready) return fail(ready.error());
  RowFinisher finisher(std::move(device));
  for (const DeviceImage& image : info.on_device) {
    auto job = plan_field(info, image);
    if (!job) return fail(job.error());
    auto memory = finisher.device_->allocate(rows * job->picture_step);
    if (!memory) return fail(memory.error());
    job->pictures = reinterpret_cast<std::uint8_t*>(*memory);
    job->parts = row_parts(*job);
    finisher.fields_.push_back({image.field, info.fields.at(image.field).name, *job});
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

#include "server/assembly/residence.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "server/transform/resident_steps.h"

namespace headrace::server::assembly {
namespace {

/// The size of an upload batch: small enough for a small ring, large enough for a small cost per batch.
constexpr std::size_t kUploadBytes = std::size_t{512} << 10;
constexpr std::size_t kUploadRows = 65'536;

tl::unexpected<Error> invalid(std::string what) {
  return fail(ErrorCode::kConfigInvalid, "residence: " + std::move(what));
}

/// The image field. Null: there is none.
Result<const exec::FieldPlan*> image_of(const source::Source& source,
                                        const std::vector<exec::FieldPlan>& fields) {
  const exec::FieldPlan* image = nullptr;
  for (const exec::FieldPlan& field : fields) {
    if (field.spec.kind == FieldKind::kRagged)
      return invalid(fmt::format(
          "field `{}` is ragged, but fields in GPU memory need rows of one size: name the other fields in "
          "`fields`, or leave `residence` out",
          field.spec.name));
    if (!field.plan) continue;
    const source::SourceField& own = source.fields()[field.source_field];
    if (own.mask || own.scale != 1 || image != nullptr)
      return invalid(fmt::format(
          "field `{}`: a dataset in GPU memory has one image per sample, not pairs or masks: name the other "
          "fields in `fields`, or leave `residence` out",
          field.spec.name));
    image = &field;
  }
  return image;
}

config::StreamConfig upload_config(const config::StreamConfig& config, std::size_t row_bytes,
                                   std::size_t samples) {
  config::StreamConfig out = config;
  out.shuffle = false;
  out.sampler.reset();
  out.resident = false;
  out.seed = 0;
  out.last = LastBatch::kShort;
  out.delivery = config::Delivery::kBroadcast;
  // A replacement would stay in GPU memory and be used in every epoch.
  out.on_error = config::OnError::kFail;
  const std::size_t fit = kUploadBytes / std::max<std::size_t>(row_bytes, 1);
  out.batch_size = static_cast<std::uint32_t>(
      std::clamp<std::size_t>(fit, 1, std::min<std::size_t>(kUploadRows, samples)));
  out.ring.prefetch = 3;
  out.ring.max_leases = 3;
  out.sharing = {.max_lag = 3};
  return out;
}

}  // namespace

Result<ResidentStream> resident_stream(const std::string& name, const config::StreamConfig& config,
                                       const source::Source& source,
                                       const std::vector<exec::FieldPlan>& fields) {
  const auto image = image_of(source, fields);
  if (!image) return fail(image.error());
  ResidentStream out{.name = name + ".resident"};
  std::size_t row = 0;
  for (const exec::FieldPlan& field : fields) row += row_bytes(field.spec);
  transform::StreamPlan plan = config.plan;
  if (*image != nullptr) {
    const FieldSpec& spec = (*image)->spec;
    const source::SourceField& own = source.fields()[(*image)->source_field];
    transform::PlanConfig chain = config.plan.chain_of(spec.name, false);
    chain.channels = own.channels;
    chain.input = (*image)->ring_chain.input;
    auto parts = transform::resident_chain(chain);
    if (!parts) return fail(parts.error());
    DeviceImage& made = out.residence.image.emplace(std::move(parts->image));
    made.field = static_cast<std::uint32_t>(*image - fields.data());
    plan.chain = std::move(parts->upload);
    plan.only.assign(plan.chain.transforms.size(), {});
    row += made.picture_bytes() - row_bytes(spec);
  }
  out.residence.upload = out.name;
  out.residence.seed = config.seed;
  out.config = upload_config(config, row, std::max<std::size_t>(source.size(), 1));
  out.config.plan = std::move(plan);
  return out;
}

}  // namespace headrace::server::assembly

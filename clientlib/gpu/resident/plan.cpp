#include "clientlib/gpu/resident/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "clientlib/gpu/rows/plan.h"

namespace headrace::gpu {
namespace {

constexpr std::size_t kAlignment = BatchLayout::kAlignment;
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 48;  // of a dataset; keeps sums from overflowing
constexpr std::uint64_t kMostRowBytes = std::numeric_limits<std::int32_t>::max();

/// Adds a field to the dataset's layout. Returns what is wrong with it, or an empty string.
std::string add_field(const StreamInfo& info, FieldSpec spec, SetPlan& plan) {
  const std::uint64_t row = row_bytes(spec);
  std::uint64_t bytes = 0, end = 0;
  if (row > kMostRowBytes || __builtin_mul_overflow(row, info.samples, &bytes) ||
      __builtin_add_overflow(bytes, plan.bytes + kAlignment - 1, &end) || end > kMostBytes)
    return fmt::format(
        "field '{}' has {} samples of {} bytes: expected at most {} bytes a sample and {} in all", spec.name,
        info.samples, row, kMostRowBytes, kMostBytes);
  plan.fields.push_back({std::move(spec), plan.bytes});
  plan.bytes = end / kAlignment * kAlignment;
  return {};
}

/// The alignment, at most 16, of all addresses offset + i * bytes from an aligned base.
std::uint32_t unit_of(std::uint64_t bytes, std::uint64_t offset) {
  std::uint32_t unit = 16;
  while (bytes % unit != 0 || offset % unit != 0) unit /= 2;
  return unit;
}

std::string take_fields(const StreamInfo& info, const BatchLayout& layout, SetPlan& plan) {
  const std::optional<DeviceImage>& image = info.residence->image;
  if (image && image->field >= info.fields.size())
    return fmt::format(
        "the server names field {} as the image, but the stream has {} fields (client and server may differ "
        "in version)",
        image->field, info.fields.size());
  for (std::size_t f = 0; f < info.fields.size(); ++f) {
    FieldSpec spec = info.fields[f];
    if (spec.kind != FieldKind::kDense)
      return fmt::format(
          "field '{}' is ragged: expected fields whose rows have one size; name those in `fields`, or leave "
          "`residence` out of the stream",
          spec.name);
    const std::size_t to = layout.fields[f].values;
    if (image && image->field == f) {
      if (auto wrong = plan_rows(*image, spec, Drawn::kOnDevice, plan.job); !wrong.empty())
        return wrong + " (client and server may differ in version)";
      spec.dtype = DType::kUInt8;
      spec.shape = {image->height, image->width, image->channels};
      plan.image = f;
      plan.job.image_to = to;
    } else {
      if (plan.job.field_count == kMaxMovedFields)
        return fmt::format(
            "it has more than {} fields besides the image: name fewer in `fields`, or leave `residence` out "
            "of the stream",
            kMaxMovedFields);
      MovedField& field = plan.job.fields[plan.job.field_count++];
      const std::uint64_t row = row_bytes(spec);
      field.to = to;
      field.row_bytes = static_cast<std::uint32_t>(std::min(row, kMostRowBytes));
      field.unit = unit_of(row, to);
    }
    if (auto wrong = add_field(info, std::move(spec), plan); !wrong.empty()) return wrong;
  }
  return {};
}

}  // namespace

Result<SetPlan> plan_set(const StreamInfo& info, const BatchLayout& layout) {
  SetPlan plan;
  std::string wrong =
      info.residence ? take_fields(info, layout, plan) : "the stream does not have `residence: gpu`";
  if (wrong.empty() && (info.samples == 0 || info.batch_size == 0))
    wrong = fmt::format("it has {} samples and batch size {}: expected 1 or more of each", info.samples,
                        info.batch_size);
  if (!wrong.empty())
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("stream '{}': its dataset cannot be kept in GPU memory: {}", info.name, wrong));
  plan.job.samples = info.samples;
  plan.job.seed = info.residence->seed;
  plan.job.shuffled = info.shuffle;
  return plan;
}

void SetPlan::place(std::byte* base) {
  std::int32_t moved = 0;
  for (std::size_t f = 0; f < fields.size(); ++f) {
    auto* const at = reinterpret_cast<std::uint8_t*>(base + fields[f].offset);
    if (job.channels > 0 && f == image)
      job.pictures = at;
    else
      job.fields[moved++].from = at;
  }
}

}  // namespace headrace::gpu

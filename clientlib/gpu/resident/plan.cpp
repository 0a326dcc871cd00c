#include "clientlib/gpu/resident/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace headrace::gpu {
namespace {

using pixels::PixelLayout;

constexpr std::size_t kAlignment = BatchLayout::kAlignment;
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 48;  // of a set: what is added to it cannot overflow
constexpr std::uint64_t kMostRowBytes = std::numeric_limits<std::int32_t>::max();

bool is_side(std::int64_t side) {
  return side >= 1 && side <= kMaxResidentSide;
}

/// Shape of a picture of `height` x `width`; a mask's has no channels.
std::vector<std::int64_t> shape_of(const Residence& residence, std::int64_t height, std::int64_t width) {
  if (residence.layout == PixelLayout::kNchw) return {residence.channels, height, width};
  return {height, width, residence.channels};
}

/// The steps, followed from size to size; what is wrong with them, or nothing.
std::string take_steps(const Residence& residence, GatherJob& job) {
  constexpr std::int32_t kFarthest = 1 << 20;  // of padding and places: sums cannot overflow
  const auto far = [](std::int32_t value) { return value < -kFarthest || value > kFarthest; };
  if (residence.steps.size() > std::size_t{kMaxResidentSteps})
    return fmt::format("{} steps: at most {}", residence.steps.size(), kMaxResidentSteps);
  std::int32_t height = job.height, width = job.width;
  const auto values = pixels::value_table(residence.stored, residence.mean, residence.std);
  for (const ResidentStep& from : residence.steps) {
    GatherStep& step = job.steps[job.step_count++];
    step.kind = from.kind;
    step.padding = from.padding;
    step.stage = from.stage;
    step.from_height = height;
    step.from_width = width;
    step.p = from.p;
    if (!is_side(from.height) || !is_side(from.width))
      return fmt::format("a step to {} x {} pixels: each side must be between 1 and {}", from.width,
                         from.height, kMaxResidentSide);
    const bool same = from.height == height && from.width == width;
    switch (from.kind) {
      case ResidentStep::Kind::kCrop:
        if (far(from.top) || far(from.left) || from.rows < 1 || from.columns < 1 || far(from.rows) ||
            far(from.columns))
          return fmt::format("a crop at {}, {} of {} x {} places", from.left, from.top, from.columns,
                             from.rows);
        break;
      case ResidentStep::Kind::kTurn:
        if (!same || height != width)
          return fmt::format("a turn of {} x {} pixels into {} x {}", width, height, from.width, from.height);
        break;
      case ResidentStep::Kind::kHorizontalFlip:
      case ResidentStep::Kind::kVerticalFlip:
        if (!same)
          return fmt::format("a flip of {} x {} pixels into {} x {}", width, height, from.width, from.height);
        if (!(from.p >= 0 && from.p <= 1)) return fmt::format("a flip with p {}", from.p);
        break;
      default:
        return "a step that this library does not know: it is older than the server";
    }
    step.top = from.top;
    step.left = from.left;
    step.rows = from.rows;
    step.columns = from.columns;
    for (std::size_t c = 0; c < 3; ++c)
      step.fill[c] = residence.stored == DType::kUInt8 ? from.fill[c]
                                                       : static_cast<std::uint16_t>(values[c][from.fill[c]]);
    height = from.height;
    width = from.width;
  }
  job.out_height = height;
  job.out_width = width;
  return {};
}

std::string take_picture(const Residence& residence, const FieldSpec& spec, GatherPlan& plan) {
  GatherJob& job = plan.job;
  if (residence.channels != 1 && residence.channels != 3)
    return fmt::format("pictures of {} channels: 1 or 3 can be", residence.channels);
  if (!is_side(residence.height) || !is_side(residence.width))
    return fmt::format("pictures of {} x {} pixels: each side must be between 1 and {}", residence.width,
                       residence.height, kMaxResidentSide);
  const bool is_float =
      spec.dtype == DType::kFloat16 || spec.dtype == DType::kBFloat16 || spec.dtype == DType::kFloat32;
  if (!is_float && spec.dtype != DType::kUInt8)
    return fmt::format("batches of {}: uint8, float16, bfloat16 or float32 can be", name_of(spec.dtype));
  if (residence.stored != DType::kUInt8 &&
      (residence.stored != DType::kFloat16 || spec.dtype != DType::kFloat16))
    return fmt::format("{} on the device for batches of {}: uint8 serves all, float16 those of float16",
                       name_of(residence.stored), name_of(spec.dtype));
  const auto channels = static_cast<std::size_t>(residence.channels);
  if (residence.mean.size() != residence.std.size() ||
      (!residence.mean.empty() && (residence.mean.size() != channels || !is_float)))
    return fmt::format("{} means and {} stds for {} channels of {}", residence.mean.size(),
                       residence.std.size(), channels, name_of(spec.dtype));
  const auto positive = [](double value) { return static_cast<float>(value) > 0.0F; };
  const auto finite = [](double value) { return std::isfinite(static_cast<float>(value)); };
  if (!std::ranges::all_of(residence.std, positive) || !std::ranges::all_of(residence.std, finite) ||
      !std::ranges::all_of(residence.mean, finite))
    return "a mean or std that is no number, or a std that is not above 0";
  job.height = residence.height;
  job.width = residence.width;
  job.channels = residence.channels;
  job.interleaved = residence.layout == PixelLayout::kNhwc && residence.channels == 3;
  job.stored_bytes = static_cast<std::int32_t>(size_of(residence.stored));
  job.element_bytes = static_cast<std::int32_t>(size_of(spec.dtype));
  if (auto wrong = take_steps(residence, job); !wrong.empty()) return wrong;
  if (spec.shape != shape_of(residence, job.out_height, job.out_width))
    return fmt::format("rows that the steps make {} x {} pixels of, and field '{}' says otherwise",
                       job.out_width, job.out_height, spec.name);
  plan.values = pixels::value_table(spec.dtype, residence.mean, residence.std);
  return {};
}

/// Takes the next field's place in the set's memory.
std::string add_field(const StreamInfo& info, FieldSpec spec, GatherPlan& plan) {
  const std::uint64_t row = row_bytes(spec);
  std::uint64_t bytes = 0, end = 0;
  if (row > kMostRowBytes || __builtin_mul_overflow(row, info.samples, &bytes) ||
      __builtin_add_overflow(bytes, plan.bytes + kAlignment - 1, &end) || end > kMostBytes)
    return fmt::format("{} samples of {} bytes in field '{}'", info.samples, row, spec.name);
  plan.fields.push_back({std::move(spec), plan.bytes});
  plan.bytes = end / kAlignment * kAlignment;
  return {};
}

/// Of every address that is a multiple of `bytes` away from an aligned one.
std::uint32_t unit_of(std::uint64_t bytes, std::uint64_t offset) {
  std::uint32_t unit = 16;
  while (bytes % unit != 0 || offset % unit != 0) unit /= 2;
  return unit;
}

std::string take_fields(const StreamInfo& info, const BatchLayout& layout, GatherPlan& plan) {
  const Residence& residence = *info.residence;
  bool found = residence.image.empty();
  for (std::size_t f = 0; f < info.fields.size(); ++f) {
    FieldSpec spec = info.fields[f];
    if (spec.kind != FieldKind::kDense)
      return fmt::format("field '{}' is ragged: rows of one size can be resident", spec.name);
    const std::size_t to = layout.fields[f].values;
    if (spec.name == residence.image && !residence.image.empty()) {
      if (auto wrong = take_picture(residence, spec, plan); !wrong.empty()) return wrong;
      found = true;
      spec.dtype = residence.stored;
      spec.shape = shape_of(residence, residence.height, residence.width);
      plan.image = f;
      plan.job.image_to = to;
    } else {
      if (plan.job.field_count == kGatherFields)
        return fmt::format("more than {} fields beside the picture", kGatherFields);
      GatherField& field = plan.job.fields[plan.job.field_count++];
      const std::uint64_t row = row_bytes(spec);
      field.to = to;
      field.row_bytes = static_cast<std::uint32_t>(std::min(row, kMostRowBytes));
      field.unit = unit_of(row, to);
    }
    if (auto wrong = add_field(info, std::move(spec), plan); !wrong.empty()) return wrong;
  }
  return found ? "" : fmt::format("there is no field '{}', which is to be the picture", residence.image);
}

}  // namespace

Result<GatherPlan> plan_gather(const StreamInfo& info, const BatchLayout& layout) {
  GatherPlan plan;
  std::string wrong = info.residence ? take_fields(info, layout, plan) : "the server says nothing of it";
  if (wrong.empty() && (info.samples == 0 || info.batch_size == 0)) wrong = "a set without samples or rows";
  if (!wrong.empty())
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("stream '{}' cannot be resident: {}", info.name, wrong));
  plan.values_at = plan.bytes;
  plan.bytes += sizeof plan.values;
  plan.job.samples = info.samples;
  plan.job.seed = info.residence->seed;
  plan.job.shuffled = info.shuffle;
  plan.job.batch_bytes = layout.bytes;
  return plan;
}

void GatherPlan::place(std::byte* base) {
  job.values = reinterpret_cast<const std::uint32_t*>(base + values_at);
  std::int32_t moved = 0;
  const bool pictures = job.channels > 0;
  for (std::size_t f = 0; f < fields.size(); ++f) {
    const auto* const at = reinterpret_cast<const std::uint8_t*>(base + fields[f].offset);
    if (pictures && f == image)
      job.pictures = at;
    else
      job.fields[moved++].from = at;
  }
}

std::int32_t gather_parts(const GatherJob& job) {
  constexpr std::int64_t kBytes = std::int64_t{kGatherThreads} * 16 * 2;  // two vectors of each thread
  std::int64_t bytes = std::int64_t{job.channels} * job.out_height * job.out_width * job.element_bytes;
  for (std::int32_t f = 0; f < job.field_count; ++f)
    bytes = std::max<std::int64_t>(bytes, job.fields[f].row_bytes);
  return static_cast<std::int32_t>(std::clamp<std::int64_t>((bytes + kBytes - 1) / kBytes, 1, 64));
}

}  // namespace headrace::gpu

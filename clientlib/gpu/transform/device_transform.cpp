#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "clientlib/gpu/device.h"
#include "clientlib/gpu/device_name.h"
#include "clientlib/gpu/transform/check.h"
#include "clientlib/gpu/transform/kernels.h"
#include "headrace/gpu_transform.h"

namespace headrace::gpu {
namespace {

constexpr std::size_t kMaxRows = 65'535;  // CUDA's limit for a grid's second axis

std::string wrong_with_output(const TransformOutput& output) {
  using pixels::kMaxOutputSide;
  if (std::min(output.height, output.width) < 1 || std::max(output.height, output.width) > kMaxOutputSide)
    return fmt::format("rows of {} x {} pixels: each side must be between 1 and {}", output.width,
                       output.height, kMaxOutputSide);
  if (output.channels != 1 && output.channels != 3)
    return fmt::format("{} channels: 1 or 3 can be", output.channels);
  const bool is_float =
      output.dtype == DType::kFloat16 || output.dtype == DType::kBFloat16 || output.dtype == DType::kFloat32;
  if (!is_float && output.dtype != DType::kUInt8)
    return fmt::format("dtype {}: uint8, float16, bfloat16 or float32 can be", name_of(output.dtype));
  if (output.mean.size() != output.std.size()) return "as many means as stds are needed";
  if (output.mean.empty()) return {};
  if (!is_float) return "normalize needs a float output";
  if (output.mean.size() != static_cast<std::size_t>(output.channels))
    return fmt::format("{} means for {} channels", output.mean.size(), output.channels);
  const auto finite = [](double value) { return std::isfinite(static_cast<float>(value)); };
  const auto positive = [&](double value) { return finite(value) && static_cast<float>(value) > 0.0F; };
  if (!std::all_of(output.mean.begin(), output.mean.end(), finite)) return "a mean that is no number";
  return std::all_of(output.std.begin(), output.std.end(), positive) ? "" : "std must be above 0";
}

std::int32_t contrasts_of(const pixels::RowSteps& steps) {
  return static_cast<std::int32_t>(std::count_if(
      steps.ops, steps.ops + steps.op_count,
      [](const pixels::PixelStep& step) { return step.kind == pixels::PixelStepKind::kContrast; }));
}

}  // namespace

std::size_t TransformOutput::row_bytes() const {
  return static_cast<std::size_t>(height) * static_cast<std::size_t>(width) *
         static_cast<std::size_t>(channels) * size_of(dtype);
}

struct DeviceTransform::Impl {
  TransformOutput output;
  pixels::ValueTable values{};
  std::unique_ptr<TransformKernels> kernels;
  std::vector<RowTask> tasks;

  static Result<DeviceTransform> make(const TransformOutput& output,
                                      Result<std::unique_ptr<TransformKernels>> kernels) {
    if (const auto wrong = wrong_with_output(output); !wrong.empty())
      return fail(ErrorCode::kInvalidArgument, "device transform: " + wrong);
    if (!kernels) return fail(kernels.error());
    auto impl = std::make_unique<Impl>();
    impl->output = output;
    impl->values = pixels::value_table(output.dtype, output.mean, output.std);
    impl->kernels = std::move(*kernels);
    return DeviceTransform(std::move(impl));
  }

  /// The steps as they are now: whoever writes to them later changes nothing.
  Result<void> take(const PictureBatch& batch, std::span<const pixels::RowSteps> steps) {
    tasks.clear();
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const PictureAt picture = batch.pictures[i];
      RowTask& task = tasks.emplace_back();
      task.steps = steps[i];
      task.offset = picture.offset;
      task.height = picture.height;
      task.width = picture.width;
      std::string wrong = gpu::wrong_with(task, output, batch.channels, batch.bytes);
      if (wrong.empty() && !plan_tiles(task, batch.channels))
        wrong = fmt::format(
            "making {} x {} pixels of {} x {} needs more of the picture at a time than the {} bytes "
            "of a block's shared memory: resize it before (at most {} times smaller here)",
            task.steps.resized_width, task.steps.resized_height, task.steps.crop.width,
            task.steps.crop.height, kSharedBytes, pixels::kMaxShrink);
      if (!wrong.empty())
        return fail(ErrorCode::kInvalidArgument, fmt::format("device transform: row {}: {}", i, wrong));
      task.contrasts = contrasts_of(task.steps);
    }
    return {};
  }
};

DeviceTransform::DeviceTransform(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
DeviceTransform::DeviceTransform(DeviceTransform&&) noexcept = default;
DeviceTransform& DeviceTransform::operator=(DeviceTransform&&) noexcept = default;
DeviceTransform::~DeviceTransform() = default;

Result<DeviceTransform> DeviceTransform::open(std::string_view device, const TransformOutput& output) {
  const auto ordinal = device_ordinal(device);
  if (!ordinal) return fail(ordinal.error());
  if (!*ordinal) return Impl::make(output, open_host_transform());
  return Impl::make(output, open_cuda_transform(**ordinal));
}

Result<DeviceTransform> DeviceTransform::open(Device& device, const TransformOutput& output) {
  return Impl::make(output, device.open_transform());
}

Result<void> DeviceTransform::launch(const PictureBatch& batch, std::span<const pixels::RowSteps> steps,
                                     std::byte* output, std::size_t output_bytes, StreamHandle stream) {
  const TransformOutput& rows = impl_->output;
  const auto invalid = [](std::string what) {
    return fail(ErrorCode::kInvalidArgument, "device transform: " + std::move(what));
  };
  if (batch.channels != 1 && batch.channels != 3)
    return invalid(fmt::format("pictures of {} channels: 1 or 3 can be", batch.channels));
  if (batch.channels < rows.channels) return invalid("gray pictures, and an output of three channels");
  if (batch.pictures.size() != steps.size())
    return invalid(fmt::format("{} pictures, and steps for {}", batch.pictures.size(), steps.size()));
  if (steps.size() > kMaxRows)
    return invalid(fmt::format("{} rows: at most {} at a time", steps.size(), kMaxRows));
  if (output_bytes < steps.size() * rows.row_bytes())
    return invalid(fmt::format("{} rows need {} bytes, the output has {}", steps.size(),
                               steps.size() * rows.row_bytes(), output_bytes));
  if (reinterpret_cast<std::uintptr_t>(output) % size_of(rows.dtype) != 0)
    return invalid(fmt::format("the output is not aligned to {} bytes", size_of(rows.dtype)));
  if (steps.empty()) return {};
  if (auto taken = impl_->take(batch, steps); !taken) return taken;
  const auto& tasks = impl_->tasks;
  TransformJob job;
  job.pixels = reinterpret_cast<const std::uint8_t*>(batch.pixels);
  job.pixels_end = job.pixels + batch.bytes;
  job.output = reinterpret_cast<std::uint8_t*>(output);
  job.rows = static_cast<std::int32_t>(steps.size());
  job.height = rows.height;
  job.width = rows.width;
  job.source_channels = batch.channels;
  job.channels = rows.channels;
  job.element_bytes = static_cast<std::int32_t>(size_of(rows.dtype));
  job.interleaved = rows.layout == pixels::PixelLayout::kNhwc && rows.channels == 3;
  for (const RowTask& task : tasks) job.contrasts = std::max(job.contrasts, task.contrasts);
  return impl_->kernels->launch(job, tasks, impl_->values, stream);
}

}  // namespace headrace::gpu

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "clientlib/gpu/cuda/on_device.h"
#include "clientlib/gpu/cuda/transform_kernels.h"
#include "clientlib/gpu/transform/block.h"
#include "clientlib/gpu/transform/kernels.h"

namespace headrace::gpu {
namespace {

tl::unexpected<Error> failed(cudaError_t error, std::string_view doing,
                             ErrorCode code = ErrorCode::kInternal) {
  return fail(taken(error, fmt::format("device transform: {}", doing), code));
}

/// What one launch takes along: tasks, values and sums, end to end; pinned here, and its copy on the device.
/// In use until `done`.
struct Parcel {
  std::byte* host = nullptr;
  std::byte* device = nullptr;
  std::size_t capacity = 0;
  cudaEvent_t done = nullptr;
};

class CudaTransform final : public TransformKernels {
 public:
  explicit CudaTransform(int ordinal) : ordinal_(ordinal) {}
  ~CudaTransform() override {
    const OnDevice here(ordinal_);
    for (Parcel& parcel : parcels_) {
      if (parcel.done == nullptr) continue;
      (void)cudaEventSynchronize(parcel.done);
      (void)cudaEventDestroy(parcel.done);
      release(parcel);
    }
    (void)cudaGetLastError();
  }

  Result<void> launch(TransformJob job, std::span<const RowTask> tasks, const pixels::ValueTable& values,
                      StreamHandle handle) override {
    const OnDevice here(ordinal_);
    if (here.error() != cudaSuccess) return failed(here.error(), "cudaSetDevice");
    auto* const stream = reinterpret_cast<cudaStream_t>(handle);
    const std::size_t sums = static_cast<std::size_t>(job.rows) * static_cast<std::size_t>(job.contrasts) *
                             sizeof(unsigned long long);
    const std::size_t values_at = tasks.size_bytes(), sums_at = values_at + sizeof values;
    static_assert(sizeof(RowTask) % alignof(unsigned long long) == 0 && sizeof values % 8 == 0);
    Parcel& parcel = parcels_[next_];
    if (auto ready = make_room(parcel, sums_at + sums); !ready) return ready;
    std::memcpy(parcel.host, tasks.data(), tasks.size_bytes());
    std::memcpy(parcel.host + values_at, values.data(), sizeof values);
    std::memset(parcel.host + sums_at, 0, sums);
    job.tasks = reinterpret_cast<const RowTask*>(parcel.device);
    job.values = reinterpret_cast<const std::uint32_t*>(parcel.device + values_at);
    job.sums = reinterpret_cast<unsigned long long*>(parcel.device + sums_at);
    auto error = cudaMemcpyAsync(parcel.device, parcel.host, sums_at + sums, cudaMemcpyHostToDevice, stream);
    if (error == cudaSuccess) error = launch_all(job, tasks, stream);
    const auto recorded = cudaEventRecord(parcel.done, stream);
    if (recorded != cudaSuccess) (void)cudaStreamSynchronize(stream);
    next_ = (next_ + 1) % parcels_.size();
    if (error == cudaSuccess) error = recorded;
    if (error != cudaSuccess) return failed(error, fmt::format("launch of {} rows", job.rows));
    return {};
  }

 private:
  static cudaError_t launch_all(const TransformJob& job, std::span<const RowTask> tasks,
                                cudaStream_t stream) {
    constexpr std::int32_t kMostTiles = 4096;  // blocks for a row; beyond it a block makes several tiles
    std::int32_t tiles = 1, shared = 0;
    bool colours = false;
    for (const RowTask& task : tasks) {
      tiles = std::max(tiles, std::min(tiles_of(task), kMostTiles));
      shared = std::max(shared, task.shared.size);
      colours = colours || task.steps.op_count > 0;
    }
    for (std::int32_t contrast = 0; contrast < job.contrasts; ++contrast)
      if (const auto error = launch_transform(job, tiles, shared, true, contrast, stream);
          error != cudaSuccess)
        return error;
    return launch_transform(job, tiles, shared, colours, -1, stream);
  }

  static void release(Parcel& parcel) {
    if (parcel.host != nullptr) (void)cudaFreeHost(parcel.host);
    if (parcel.device != nullptr) (void)cudaFree(parcel.device);
    parcel.host = parcel.device = nullptr;
    parcel.capacity = 0;
  }

  /// Waits for the launch that used it last.
  static Result<void> make_room(Parcel& parcel, std::size_t bytes) {
    if (parcel.done == nullptr) {
      const auto error =
          cudaEventCreateWithFlags(&parcel.done, cudaEventBlockingSync | cudaEventDisableTiming);
      if (error != cudaSuccess) return failed(error, "cudaEventCreate");
    } else if (const auto error = cudaEventSynchronize(parcel.done); error != cudaSuccess) {
      return failed(error, "an earlier launch");
    }
    if (parcel.capacity >= bytes) return {};
    release(parcel);
    void *host = nullptr, *device = nullptr;
    auto error = cudaMallocHost(&host, bytes);
    if (error == cudaSuccess) error = cudaMalloc(&device, bytes);
    parcel.host = static_cast<std::byte*>(host);
    parcel.device = static_cast<std::byte*>(device);
    if (error != cudaSuccess) {
      release(parcel);
      return failed(error, fmt::format("{} bytes for the steps of a batch", bytes),
                    ErrorCode::kNotEnoughMemory);
    }
    parcel.capacity = bytes;
    return {};
  }

  int ordinal_;
  std::array<Parcel, 4> parcels_{};  // taken in turn, so that launches need not wait for one another
  std::size_t next_ = 0;
};

}  // namespace

Result<std::unique_ptr<TransformKernels>> open_cuda_transform(int ordinal) {
  int count = 0;
  if (const auto error = cudaGetDeviceCount(&count); error != cudaSuccess)
    return failed(error, fmt::format("device \"cuda:{}\" cannot be used", ordinal), ErrorCode::kEnvironment);
  if (ordinal >= count)
    return fail(
        ErrorCode::kEnvironment,
        fmt::format("device \"cuda:{}\" is not there: this process sees {} CUDA device(s)", ordinal, count));
  const OnDevice here(ordinal);
  auto error = here.error();
  if (error == cudaSuccess) error = prepare_transform_kernels();
  if (error != cudaSuccess)
    return failed(
        error, fmt::format("device \"cuda:{}\" cannot run the kernels (built for sm_80 and newer)", ordinal),
        ErrorCode::kEnvironment);
  return std::make_unique<CudaTransform>(ordinal);
}

}  // namespace headrace::gpu

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "clientlib/gpu/cuda/gather_kernels.h"
#include "clientlib/gpu/cuda/on_device.h"
#include "clientlib/gpu/resident/kernel.h"

namespace headrace::gpu {
namespace {

class CudaGather final : public GatherKernel {
 public:
  explicit CudaGather(int ordinal) : ordinal_(ordinal) {}

  Result<void> launch(const GatherJob& job, StreamHandle stream) override {
    const OnDevice here(ordinal_);
    auto error = here.error();
    if (error == cudaSuccess) error = launch_gather(job, reinterpret_cast<cudaStream_t>(stream));
    if (error != cudaSuccess)
      return fail(taken(error, fmt::format("launch of {} rows of a resident set", job.batches * job.rows)));
    return {};
  }

 private:
  int ordinal_;
};

}  // namespace

Result<std::unique_ptr<GatherKernel>> open_cuda_gather(int ordinal) {
  const OnDevice here(ordinal);
  auto error = here.error();
  if (error == cudaSuccess) error = prepare_gather_kernels();
  if (error != cudaSuccess)
    return fail(taken(
        error, fmt::format("device \"cuda:{}\" cannot run the kernels (built for sm_80 and newer)", ordinal),
        ErrorCode::kEnvironment));
  return std::make_unique<CudaGather>(ordinal);
}

}  // namespace headrace::gpu

#include "clientlib/gpu/resident/kernel.h"

namespace headrace::gpu {

Result<std::unique_ptr<GatherKernel>> open_cuda_gather(int) {
  return fail(ErrorCode::kEnvironment,
              "device \"cuda\": this Headrace was built without CUDA's compiler (nvcc), so it cannot make "
              "batches of a resident set there; leave `residence` out, or build where the CUDA toolkit is");
}

}  // namespace headrace::gpu

#include "clientlib/gpu/transform/kernels.h"

namespace headrace::gpu {

Result<std::unique_ptr<TransformKernels>> open_cuda_transform(int) {
  return fail(
      ErrorCode::kEnvironment,
      "device \"cuda\": this Headrace was built without CUDA's compiler (nvcc), so it has no transforms "
      "there; let the server do them, or build where the CUDA toolkit is");
}

}  // namespace headrace::gpu

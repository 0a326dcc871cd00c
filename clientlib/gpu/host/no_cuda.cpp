#include "clientlib/gpu/device/device.h"

namespace headrace::gpu {

Result<std::unique_ptr<Device>> open_cuda_device(int, StreamHandle) {
  return fail(ErrorCode::kEnvironment,
              "device \"cuda\": this Headrace was built without CUDA (CMake found no CUDA toolkit with a "
              "compiler); use "
              "device \"host\", or build where the toolkit is");
}

}  // namespace headrace::gpu

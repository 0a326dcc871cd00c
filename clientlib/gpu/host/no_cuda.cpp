#include "clientlib/gpu/device/device.h"

namespace headrace::gpu {

Result<std::unique_ptr<Device>> open_cuda_device(int, StreamHandle) {
  return fail(ErrorCode::kEnvironment,
              "device \"cuda\" is not available: this Headrace was built without CUDA (CMake found no CUDA "
              "toolkit with nvcc, or HEADRACE_CUDA is OFF); install the toolkit and rebuild, or leave the "
              "device out for batches in host memory");
}

}  // namespace headrace::gpu

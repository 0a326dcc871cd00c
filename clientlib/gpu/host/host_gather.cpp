#include "clientlib/gpu/host/host_block.h"
#include "clientlib/gpu/resident/gather.h"
#include "clientlib/gpu/resident/kernel.h"

namespace headrace::gpu {
namespace {

/// "Device" memory is host memory, and there is no stream: a launch ends when it returns.
class HostGather final : public GatherKernel {
 public:
  Result<void> launch(const GatherJob& job, StreamHandle) override {
    const auto shared = static_cast<std::size_t>(gather_shared_bytes(job));
    with_elements(job, [&](auto stored, auto bytes) {
      for (std::int32_t number = 0; number < job.batches * job.rows * job.parts; ++number) {
        HostBlock block(kGatherThreads, shared, number % 2 == 0);
        run_gather<stored(), bytes()>(block, job, number);
      }
    });
    return {};
  }
};

}  // namespace

std::unique_ptr<GatherKernel> open_host_gather() {
  return std::make_unique<HostGather>();
}

Result<std::unique_ptr<GatherKernel>> open_gather(std::optional<int> ordinal) {
  if (ordinal) return open_cuda_gather(*ordinal);
  return open_host_gather();
}

}  // namespace headrace::gpu

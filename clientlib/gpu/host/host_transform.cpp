#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "clientlib/gpu/host/host_block.h"
#include "clientlib/gpu/transform/block.h"
#include "clientlib/gpu/transform/kernels.h"

namespace headrace::gpu {
namespace {

template <int kChannels, bool kSum>
void run(const TransformJob& job, std::span<const RowTask> tasks, std::int32_t contrast) {
  for (std::int32_t row = 0; row < job.rows; ++row) {
    const RowTask& task = tasks[static_cast<std::size_t>(row)];
    // Two blocks for each row, so that more than one share it.
    for (std::int32_t first = 0; first < 2; ++first) {
      HostBlock block(kThreads, static_cast<std::size_t>(task.shared.size), (row + first) % 2 == 0);
      if (task.steps.op_count > 0) {
        run_block<kChannels, true, kSum>(block, job, row, first, 2, contrast);
      } else {
        run_block<kChannels, false, kSum>(block, job, row, first, 2, contrast);
      }
    }
  }
}

template <int kChannels>
void run_all(const TransformJob& job, std::span<const RowTask> tasks) {
  for (std::int32_t contrast = 0; contrast < job.contrasts; ++contrast)
    run<kChannels, true>(job, tasks, contrast);
  run<kChannels, false>(job, tasks, -1);
}

/// A launch, with all that it takes along.
struct Launch {
  TransformJob job;
  std::vector<RowTask> tasks;
  pixels::ValueTable values;

  void operator()() {
    std::vector<unsigned long long> sums(static_cast<std::size_t>(job.rows) *
                                         static_cast<std::size_t>(job.contrasts));
    job.tasks = tasks.data();
    job.values = values.front().data();
    job.sums = sums.data();
    if (job.source_channels == 1) {
      run_all<1>(job, tasks);
    } else {
      run_all<3>(job, tasks);
    }
  }
};

/// "Device" memory is host memory.
class HostTransform final : public TransformKernels {
 public:
  explicit HostTransform(std::function<void(std::function<void()>)> queue) : queue_(std::move(queue)) {}

  Result<void> launch(TransformJob job, std::span<const RowTask> tasks, const pixels::ValueTable& values,
                      StreamHandle) override {
    Launch work{job, {tasks.begin(), tasks.end()}, values};
    if (queue_) {
      queue_(std::move(work));
    } else {
      work();
    }
    return {};
  }

 private:
  std::function<void(std::function<void()>)> queue_;
};

}  // namespace

std::unique_ptr<TransformKernels> open_host_transform(std::function<void(std::function<void()>)> queue) {
  return std::make_unique<HostTransform>(std::move(queue));
}

}  // namespace headrace::gpu

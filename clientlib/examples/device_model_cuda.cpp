// The host only queues work; it waits only for the loss.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "clientlib/examples/device_model.h"
#include "clientlib/examples/softmax_kernels.h"
#include "clientlib/examples/softmax_model.h"

namespace {

static_assert(kSoftmaxInputs == SoftmaxModel::kFeatures + 1);

void check(cudaError_t error, const char* doing) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "device_trainer: %s failed: %s\n", doing, cudaGetErrorString(error));
  std::exit(1);
}

/// Device memory that grows.
template <class T>
class Array {
 public:
  Array() = default;
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  ~Array() { (void)cudaFree(data_); }
  T* of(std::size_t count) {
    if (count <= count_) return data_;
    check(cudaFree(data_), "cudaFree");  // waits for kernels that read it
    void* memory = nullptr;
    check(cudaMalloc(&memory, count * sizeof(T)), "cudaMalloc");
    data_ = static_cast<T*>(memory);
    count_ = count;
    return data_;
  }

 private:
  T* data_ = nullptr;
  std::size_t count_ = 0;
};

class CudaModel final : public DeviceModel {
 public:
  CudaModel(int ordinal, std::size_t classes, float rate) : classes_(static_cast<int>(classes)), rate_(rate) {
    check(cudaSetDevice(ordinal), "cudaSetDevice");
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
    const std::size_t bytes = classes * kSoftmaxInputs * sizeof(float);
    check(cudaMemsetAsync(weights_.of(classes * kSoftmaxInputs), 0, bytes, stream_), "cudaMemset");
    check(cudaMemsetAsync(loss_.of(1), 0, sizeof(float), stream_), "cudaMemset");
  }
  ~CudaModel() override { (void)cudaStreamDestroy(stream_); }

  [[nodiscard]] headrace::gpu::StreamHandle stream() const override {
    return reinterpret_cast<headrace::gpu::StreamHandle>(stream_);
  }

  void step(const headrace::gpu::DeviceBatch& batch) override {
    const auto image = batch.field("image").value();
    const auto* labels = reinterpret_cast<const long long*>(batch.field("label").value().data);
    const int rows = static_cast<int>(batch.rows().size());
    std::vector<unsigned char> valid;
    for (const headrace::RowInfo& row : batch.rows()) valid.push_back(row.valid ? 1 : 0);
    const auto count = std::count(valid.begin(), valid.end(), 1);
    unsigned char* mask = valid_.of(valid.size());
    check(cudaMemcpyAsync(mask, valid.data(), valid.size(), cudaMemcpyHostToDevice, stream_),
          "cudaMemcpyAsync");
    const auto all = static_cast<std::size_t>(rows);
    const SoftmaxStep step{.images = reinterpret_cast<const float*>(image.data),
                           .labels = labels,
                           .valid = mask,
                           .rows = rows,
                           .height = static_cast<int>(image.shape[2]),
                           .width = static_cast<int>(image.shape[3]),
                           .classes = classes_,
                           .scale = 1.0F / static_cast<float>(count),
                           .rate = rate_,
                           .inputs = inputs_.of(all * kSoftmaxInputs),
                           .errors = errors_.of(all * static_cast<std::size_t>(classes_)),
                           .weights = weights_.of(0),
                           .loss = loss_.of(0)};
    check(queue_softmax_step(step, stream_), "queueing a step");
    ++steps_;
  }

  double mean_loss() override {
    float sum = 0;
    check(cudaMemcpyAsync(&sum, loss_.of(0), sizeof sum, cudaMemcpyDeviceToHost, stream_), "cudaMemcpyAsync");
    check(cudaMemsetAsync(loss_.of(0), 0, sizeof sum, stream_), "cudaMemset");
    check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    const double mean = static_cast<double>(sum) / steps_;
    steps_ = 0;
    return mean;
  }

 private:
  int classes_;
  float rate_;
  cudaStream_t stream_ = nullptr;
  Array<float> weights_, inputs_, errors_, loss_;
  Array<unsigned char> valid_;
  double steps_ = 0;
};

}  // namespace

std::unique_ptr<DeviceModel> cuda_model(int ordinal, std::size_t classes, float rate) {
  return std::make_unique<CudaModel>(ordinal, classes, rate);
}

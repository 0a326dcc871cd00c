// Three kernels a step, all on one stream; the host waits for none of them.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "clientlib/examples/device_model.h"
#include "clientlib/examples/softmax_model.h"

namespace {

constexpr int kCells = static_cast<int>(SoftmaxModel::kCells);
constexpr int kInputs = static_cast<int>(SoftmaxModel::kFeatures) + 1;  // the last one is the bias's

void check(cudaError_t error, const char* doing) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "device_trainer: %s: %s\n", doing, cudaGetErrorString(error));
  std::exit(1);
}

/// A block per row, a thread per feature: the mean of a cell.
__global__ void pool(const float* images, int height, int width, float* inputs) {
  const int f = static_cast<int>(threadIdx.x);
  float* out = inputs + blockIdx.x * kInputs;
  if (f == kInputs - 1) {
    out[f] = 1.0F;
    return;
  }
  const int channel = f / (kCells * kCells), down = f / kCells % kCells, across = f % kCells;
  const int left = across * width / kCells, right = (across + 1) * width / kCells;
  const int top = down * height / kCells, bottom = (down + 1) * height / kCells;
  const float* plane = images + (blockIdx.x * 3LL + channel) * height * width;
  float sum = 0;
  for (int y = top; y < bottom; ++y)
    for (int x = left; x < right; ++x) sum += plane[y * width + x];
  out[f] = sum / static_cast<float>((right - left) * (bottom - top));
}

/// A warp per row: its scores, its loss, and the derivative of the loss by each score.
__global__ void differentiate(const float* inputs, const long long* labels, const unsigned char* valid,
                              const float* weights, int classes, float scale, float* errors, float* loss) {
  const int row = static_cast<int>(blockIdx.x), lane = static_cast<int>(threadIdx.x);
  extern __shared__ float scores[];
  for (int c = 0; c < classes; ++c) {
    float sum = 0;
    for (int i = lane; i < kInputs; i += 32) sum += inputs[row * kInputs + i] * weights[c * kInputs + i];
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0U, sum, step);
    if (lane == 0) scores[c] = sum;
  }
  if (lane != 0) return;
  float most = scores[0], sum = 0;
  for (int c = 1; c < classes; ++c) most = fmaxf(most, scores[c]);
  for (int c = 0; c < classes; ++c) sum += expf(scores[c] - most);
  const float weight = valid[row] != 0 ? scale : 0.0F;
  for (int c = 0; c < classes; ++c)
    errors[row * classes + c] = weight * (expf(scores[c] - most) / sum - (c == labels[row] ? 1.0F : 0.0F));
  atomicAdd(loss, -weight * (scores[labels[row]] - most - logf(sum)));
}

/// A block per class, a thread per weight.
__global__ void update(const float* inputs, const float* errors, int rows, int classes, float rate,
                       float* weights) {
  const int c = static_cast<int>(blockIdx.x), i = static_cast<int>(threadIdx.x);
  float gradient = 0;
  for (int row = 0; row < rows; ++row) gradient += errors[row * classes + c] * inputs[row * kInputs + i];
  weights[c * kInputs + i] -= rate * gradient;
}

/// Device memory that grows.
template <class T>
class Array {
 public:
  ~Array() { (void)cudaFree(data_); }
  T* of(std::size_t count) {
    if (count <= count_) return data_;
    check(cudaFree(data_), "cudaFree");  // waits for who reads it
    check(cudaMalloc(&data_, count * sizeof(T)), "cudaMalloc");
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
    const std::size_t bytes = classes * kInputs * sizeof(float);
    check(cudaMemsetAsync(weights_.of(classes * kInputs), 0, bytes, stream_), "cudaMemset");
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
    float* inputs = inputs_.of(static_cast<std::size_t>(rows) * kInputs);
    float* errors = errors_.of(static_cast<std::size_t>(rows * classes_));
    pool<<<rows, kInputs, 0, stream_>>>(reinterpret_cast<const float*>(image.data),
                                        static_cast<int>(image.shape[2]), static_cast<int>(image.shape[3]),
                                        inputs);
    differentiate<<<rows, 32, classes_ * sizeof(float), stream_>>>(inputs, labels, mask, weights_.of(0),
                                                                   classes_, 1.0F / static_cast<float>(count),
                                                                   errors, loss_.of(0));
    update<<<classes_, kInputs, 0, stream_>>>(inputs, errors, rows, classes_, rate_, weights_.of(0));
    check(cudaGetLastError(), "a step");
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

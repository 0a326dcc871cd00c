#include "clientlib/examples/softmax_kernels.h"

namespace {

/// The mean of each cell: a block per row, a thread per feature.
__global__ void pool(const float* images, int height, int width, float* inputs) {
  const int f = static_cast<int>(threadIdx.x);
  float* out = inputs + blockIdx.x * kSoftmaxInputs;
  if (f == kSoftmaxInputs - 1) {
    out[f] = 1.0F;
    return;
  }
  const int channel = f / (kSoftmaxCells * kSoftmaxCells), down = f / kSoftmaxCells % kSoftmaxCells,
            across = f % kSoftmaxCells;
  const int left = across * width / kSoftmaxCells, right = (across + 1) * width / kSoftmaxCells;
  const int top = down * height / kSoftmaxCells, bottom = (down + 1) * height / kSoftmaxCells;
  const float* plane = images + (blockIdx.x * 3LL + channel) * height * width;
  float sum = 0;
  for (int y = top; y < bottom; ++y)
    for (int x = left; x < right; ++x) sum += plane[y * width + x];
  out[f] = sum / static_cast<float>((right - left) * (bottom - top));
}

/// The scores of a row, its loss, and the derivative of the loss by each score: a warp per row.
__global__ void differentiate(const float* inputs, const long long* labels, const unsigned char* valid,
                              const float* weights, int classes, float scale, float* errors, float* loss) {
  const int row = static_cast<int>(blockIdx.x), lane = static_cast<int>(threadIdx.x);
  extern __shared__ float scores[];
  for (int c = 0; c < classes; ++c) {
    float sum = 0;
    for (int i = lane; i < kSoftmaxInputs; i += 32)
      sum += inputs[row * kSoftmaxInputs + i] * weights[c * kSoftmaxInputs + i];
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

/// The update of the weights: a block per class, a thread per weight.
__global__ void update(const float* inputs, const float* errors, int rows, int classes, float rate,
                       float* weights) {
  const int c = static_cast<int>(blockIdx.x), i = static_cast<int>(threadIdx.x);
  float gradient = 0;
  for (int row = 0; row < rows; ++row)
    gradient += errors[row * classes + c] * inputs[row * kSoftmaxInputs + i];
  weights[c * kSoftmaxInputs + i] -= rate * gradient;
}

}  // namespace

cudaError_t queue_softmax_step(const SoftmaxStep& s, cudaStream_t stream) {
  pool<<<s.rows, kSoftmaxInputs, 0, stream>>>(s.images, s.height, s.width, s.inputs);
  differentiate<<<s.rows, 32, s.classes * sizeof(float), stream>>>(s.inputs, s.labels, s.valid, s.weights,
                                                                   s.classes, s.scale, s.errors, s.loss);
  update<<<s.classes, kSoftmaxInputs, 0, stream>>>(s.inputs, s.errors, s.rows, s.classes, s.rate, s.weights);
  return cudaGetLastError();
}

// SoftmaxModel's step in three kernels, queued on one stream. Uses only C++ that every nvcc supports.
#pragma once

#include <driver_types.h>

struct SoftmaxStep {
  const float* images;         ///< rows x 3 x height x width
  const long long* labels;     ///< rows
  const unsigned char* valid;  ///< rows; 0: does not count
  int rows, height, width, classes;
  float scale;     ///< of a row's loss: 1 / valid rows
  float rate;      ///< of learning
  float* inputs;   ///< rows x kSoftmaxInputs, scratch
  float* errors;   ///< rows x classes, scratch
  float* weights;  ///< classes x kSoftmaxInputs, changed
  float* loss;     ///< added to
};

inline constexpr int kSoftmaxCells = 8;
inline constexpr int kSoftmaxInputs = 3 * kSoftmaxCells * kSoftmaxCells + 1;  ///< the last one is the bias's

cudaError_t queue_softmax_step(const SoftmaxStep& step, cudaStream_t stream);

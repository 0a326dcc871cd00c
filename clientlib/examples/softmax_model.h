// A small model that trains within seconds: softmax regression on 8 x 8 average-pooled RGB, plain SGD.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "headrace/client.h"

/// float32 images of 3 x height x width, and a label and a RowInfo for each row.
struct LabelledImages {
  const float* images;
  const std::int64_t* labels;
  std::size_t height, width;
  std::span<const headrace::RowInfo> rows;
};

class SoftmaxModel {
 public:
  static constexpr std::size_t kCells = 8;
  static constexpr std::size_t kFeatures = 3 * kCells * kCells;

  SoftmaxModel(std::size_t classes, float rate)
      : classes_(classes), rate_(rate), weights_(classes * (kFeatures + 1), 0.0F) {}

  /// One step over the valid rows of a batch with the fields `image` (float32, 3 x H x W) and `label`.
  /// Returns the mean loss before the step.
  double step(const headrace::BatchView& batch);
  double step(const LabelledImages& batch);

 private:
  void pool(const float* image, std::size_t height, std::size_t width, float* features) const;
  double add_gradient(const float* features, std::int64_t label, std::vector<float>& gradient) const;

  std::size_t classes_;
  float rate_;
  std::vector<float> weights_;  // per class: kFeatures, then the bias
};

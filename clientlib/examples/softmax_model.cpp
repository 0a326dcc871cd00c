#include "clientlib/examples/softmax_model.h"

#include <algorithm>
#include <array>
#include <cmath>

using headrace::or_throw;

double SoftmaxModel::step(const headrace::BatchView& batch) {
  const auto shape = or_throw(batch.field("image")).shape;
  return step({or_throw(batch.values<float>("image")).data(),
               or_throw(batch.values<std::int64_t>("label")).data(), static_cast<std::size_t>(shape[2]),
               static_cast<std::size_t>(shape[3]), batch.all_rows()});
}

double SoftmaxModel::step(const LabelledImages& batch) {
  std::vector<float> gradient(weights_.size(), 0.0F);
  std::array<float, kFeatures + 1> features{};
  double loss = 0;
  float valid = 0;
  for (std::size_t row = 0; row < batch.rows.size(); ++row) {
    if (!batch.rows[row].valid) continue;
    pool(batch.images + row * 3 * batch.height * batch.width, batch.height, batch.width, features.data());
    loss += add_gradient(features.data(), batch.labels[row], gradient);
    ++valid;
  }
  for (std::size_t i = 0; i < weights_.size(); ++i) weights_[i] -= rate_ / valid * gradient[i];
  return loss / valid;
}

void SoftmaxModel::pool(const float* image, std::size_t height, std::size_t width, float* features) const {
  const auto edge = [](std::size_t cell, std::size_t size) { return cell * size / kCells; };
  for (std::size_t f = 0; f < kFeatures; ++f) {
    const std::size_t channel = f / (kCells * kCells);
    const std::size_t down = f / kCells % kCells;
    const std::size_t across = f % kCells;
    const std::size_t left = edge(across, width);
    const std::size_t right = edge(across + 1, width);
    float sum = 0;
    for (std::size_t y = edge(down, height); y < edge(down + 1, height); ++y) {
      const float* line = image + (channel * height + y) * width;
      for (std::size_t x = left; x < right; ++x) sum += line[x];
    }
    features[f] = sum / static_cast<float>((right - left) * (edge(down + 1, height) - edge(down, height)));
  }
  features[kFeatures] = 1.0F;
}

double SoftmaxModel::add_gradient(const float* features, std::int64_t label,
                                  std::vector<float>& gradient) const {
  std::vector<double> scores(classes_);
  for (std::size_t c = 0; c < classes_; ++c) {
    const float* weights = weights_.data() + c * (kFeatures + 1);
    float score = 0;
    for (std::size_t f = 0; f <= kFeatures; ++f) score += weights[f] * features[f];
    scores[c] = static_cast<double>(score);
  }
  const double highest = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (double& score : scores) sum += score = std::exp(score - highest);
  const auto truth = static_cast<std::size_t>(label);
  for (std::size_t c = 0; c < classes_; ++c) {
    const auto error = static_cast<float>(scores[c] / sum - (c == truth ? 1.0 : 0.0));
    float* row = gradient.data() + c * (kFeatures + 1);
    for (std::size_t f = 0; f <= kFeatures; ++f) row[f] += error * features[f];
  }
  return -std::log(std::max(scores[truth] / sum, 1e-12));
}

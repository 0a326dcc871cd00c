#include "server/transform/kernels/blur.h"

#include <algorithm>

#include "server/transform/kernels/exact_math.h"

namespace headrace::server::transform {
namespace {

constexpr std::size_t kSlack = 16;  // floats
// Added to a float below 2^22, it leaves no fraction bits, with ties to even. nearbyint would be a call.
constexpr float kRounding = 0x1.8p23F;

std::vector<float> gaussian(std::int32_t size, double sigma) {
  std::vector<double> values;
  double sum = 0;
  values.reserve(static_cast<std::size_t>(size));
  const std::int32_t half = size / 2;
  for (std::int32_t i = -half; i <= half; ++i) {
    const double x = i / sigma;
    values.push_back(exact_exp(std::max(-0.5 * x * x, -700.0)));
    sum += values.back();
  }
  std::vector<float> weights;
  weights.reserve(values.size());
  for (const double value : values) weights.push_back(static_cast<float>(value / sum));
  return weights;
}

std::int32_t reflected(std::int32_t at, std::int32_t size) {
  if (at < 0) return -at;
  return at < size ? at : 2 * size - 2 - at;
}

}  // namespace

BlurRows::BlurRows(const PixelOp& op, const PictureView& in)
    : in_(in),
      columns_(gaussian(op.kernel_width, op.factor)),
      rows_(gaussian(op.kernel_height, op.factor)),
      stride_(static_cast<std::size_t>(in.size.width) * 3 + kSlack),
      wide_(stride_ + columns_.size() * 3),
      lines_(stride_ * rows_.size()),
      held_(rows_.size(), -1),
      sum_(stride_) {}

const float* BlurRows::across(std::int32_t y) {
  const std::int32_t row = reflected(y, in_.size.height);
  // Reflected neighbors are within the kernel, too, so each row has its own index.
  const std::size_t place = static_cast<std::size_t>(row) % rows_.size();
  float* const line = lines_.data() + place * stride_;
  if (held_[place] == row) return line;
  held_[place] = row;
  const std::int32_t half = static_cast<std::int32_t>(columns_.size()) / 2;
  const std::uint8_t* const from = in_.row(row);
  float* to = wide_.data();
  const auto put = [&](std::int32_t x) {
    for (std::ptrdiff_t c = 0; c < 3; ++c) *to++ = static_cast<float>(from[3 * std::ptrdiff_t{x} + c]);
  };
  for (std::int32_t x = -half; x < 0; ++x) put(-x);
  for (std::int32_t x = 0; x < in_.size.width; ++x) put(x);
  for (std::int32_t x = in_.size.width; x < in_.size.width + half; ++x) put(reflected(x, in_.size.width));
  std::vector<const float*> shifted;
  shifted.reserve(columns_.size());
  for (std::size_t k = 0; k < columns_.size(); ++k) shifted.push_back(wide_.data() + 3 * k);
  weighted_sum(shifted.data(), columns_.data(), columns_.size(), stride_ - kSlack, line);
  return line;
}

void BlurRows::next(std::uint8_t* out) {
  const std::int32_t half = static_cast<std::int32_t>(rows_.size()) / 2;
  std::vector<const float*> lines;
  lines.reserve(rows_.size());
  for (std::int32_t k = -half; k <= half; ++k) lines.push_back(across(y_ + k));
  weighted_sum(lines.data(), rows_.data(), rows_.size(), stride_ - kSlack, sum_.data());
  for (std::size_t i = 0; i < stride_ - kSlack; ++i)
    out[i] = static_cast<std::uint8_t>(std::clamp((sum_[i] + kRounding) - kRounding, 0.0F, 255.0F));
  ++y_;
}

}  // namespace headrace::server::transform

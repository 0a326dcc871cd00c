#include <algorithm>
#include <array>
#include <cmath>

#include "clientlib/pixels/colors.h"
#include "server/transform/kernels/pixel_ops.h"

namespace headrace::server::transform::scalar {
namespace {

using Pixel = std::array<std::uint8_t, 3>;

std::uint8_t byte_of(int value) {
  return static_cast<std::uint8_t>(std::clamp(value, 0, 255));
}

std::uint8_t gray_of(const Pixel& p) {
  return pixels::gray_of(p[0], p[1], p[2]);
}

Pixel blend(std::uint8_t a, const Pixel& b, float factor) {
  return {pixels::blend(a, b[0], factor), pixels::blend(a, b[1], factor), pixels::blend(a, b[2], factor)};
}

// rgb2hsv_row of Convert.c, with its mixture of float and double.
Pixel hsv_of(const Pixel& p) {
  const auto [r, g, b] = p;
  const std::uint8_t most = std::max({r, g, b}), least = std::min({r, g, b});
  if (most == least) return {0, 0, most};
  const auto range = static_cast<float>(most - least);
  const float s = range / static_cast<float>(most);
  const float red = static_cast<float>(most - r) / range;
  const float green = static_cast<float>(most - g) / range;
  const float blue = static_cast<float>(most - b) / range;
  float h = 0;
  if (r == most) {
    h = blue - green;
  } else if (g == most) {
    h = static_cast<float>(2.0 + static_cast<double>(red) - static_cast<double>(blue));
  } else {
    h = static_cast<float>(4.0 + static_cast<double>(green) - static_cast<double>(red));
  }
  h = static_cast<float>(std::fmod(static_cast<double>(h) / 6.0 + 1.0, 1.0));
  return {byte_of(static_cast<int>(static_cast<double>(h) * 255.0)),
          byte_of(static_cast<int>(static_cast<double>(s) * 255.0)), most};
}

// hsv2rgb of Convert.c.
Pixel rgb_of(const Pixel& hsv) {
  const auto [h, s, v] = hsv;
  if (s == 0) return {v, v, v};
  const double sixths = static_cast<double>(h) * 6.0 / 255.0;
  const auto sector = static_cast<int>(std::floor(sixths));
  const auto f = static_cast<float>(sixths - static_cast<double>(static_cast<float>(sector)));
  const auto fs = static_cast<float>(static_cast<double>(s) / 255.0);
  const auto rounded = [v = v](double less) {
    return byte_of(static_cast<int>(std::round(static_cast<double>(v) * (1.0 - less))));
  };
  const std::uint8_t p = rounded(static_cast<double>(fs));
  const std::uint8_t q = rounded(static_cast<double>(fs * f));
  const std::uint8_t t = rounded(static_cast<double>(fs) * (1.0 - static_cast<double>(f)));
  switch (sector % 6) {
    case 0:
      return {v, t, p};
    case 1:
      return {q, v, p};
    case 2:
      return {p, v, t};
    case 3:
      return {p, q, v};
    case 4:
      return {t, p, v};
    default:
      return {v, p, q};
  }
}

Pixel apply(const PointOp& op, const Pixel& pixel) {
  switch (op.kind) {
    case PointOp::Kind::kBlendConstant:
      return blend(op.constant, pixel, op.factor);
    case PointOp::Kind::kBlendGray:
      return blend(gray_of(pixel), pixel, op.factor);
    case PointOp::Kind::kTable: {
      Pixel out;
      for (std::size_t c = 0; c < 3; ++c) out[c] = static_cast<std::uint8_t>((*op.table)[c][pixel[c]]);
      return out;
    }
    case PointOp::Kind::kHue:
      break;
  }
  Pixel hsv = hsv_of(pixel);
  hsv[0] = static_cast<std::uint8_t>(hsv[0] + op.shift);
  return rgb_of(hsv);
}

}  // namespace

std::uint64_t apply_ops(std::span<const PointOp> ops, const std::uint8_t* in, std::size_t width,
                        std::uint8_t* out, bool sum) {
  std::uint64_t total = 0;
  for (std::size_t x = 0; x < width; ++x, in += 3, out += 3) {
    Pixel pixel{in[0], in[1], in[2]};
    for (const PointOp& op : ops) pixel = apply(op, pixel);
    std::copy(pixel.begin(), pixel.end(), out);
    if (sum) total += gray_of(pixel);
  }
  return total;
}

void weighted_sum(const float* const* rows, const float* weights, std::size_t count, std::size_t size,
                  float* out) {
  for (std::size_t i = 0; i < size; ++i) {
    float sum = 0;
    for (std::size_t k = 0; k < count; ++k) sum += weights[k] * rows[k][i];
    out[i] = sum;
  }
}

}  // namespace headrace::server::transform::scalar

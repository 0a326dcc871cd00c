#include "server/transform/kernels/picture_ops.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "server/transform/kernels/exact_math.h"

namespace headrace::server::transform {
namespace {

using Histogram = std::array<std::array<std::uint64_t, 256>, 3>;

std::array<double, 6> rotation(double degrees, double width, double height) {
  degrees = std::fmod(degrees, 360.0);
  if (degrees < 0) degrees += 360.0;
  const double angle = -(degrees * (3.141592653589793 / 180.0));
  const double cosine = round_to_15_digits(exact_cos(angle)), sine = round_to_15_digits(exact_sin(angle));
  const double x = width / 2, y = height / 2;
  return {cosine, sine, (cosine * -x + sine * -y) + x, -sine, cosine, (-sine * -x + cosine * -y) + y};
}

std::array<double, 6> matrix_of(const PixelOp& op, decode::ImageSize size) {
  switch (op.kind) {
    case PixelOp::Kind::kShearX:
      return {1, op.factor, 0, 0, 1, 0};
    case PixelOp::Kind::kShearY:
      return {1, 0, 0, op.factor, 1, 0};
    case PixelOp::Kind::kTranslateX:
      return {1, 0, -op.factor, 0, 1, 0};
    case PixelOp::Kind::kTranslateY:
      return {1, 0, 0, 0, 1, -op.factor};
    default:
      return rotation(op.factor, size.width, size.height);
  }
}

Histogram histogram_of(const PictureView& in) {
  Histogram counts{};
  for (std::int32_t y = 0; y < in.size.height; ++y) {
    const std::uint8_t* at = in.row(y);
    for (std::int32_t x = 0; x < in.size.width; ++x, at += 3)
      for (std::size_t c = 0; c < 3; ++c) ++counts[c][at[c]];
  }
  return counts;
}

template <class F>
ByteTable table_of(F&& value) {
  ByteTable table;
  for (std::size_t c = 0; c < 3; ++c)
    for (std::size_t b = 0; b < 256; ++b) table[c][b] = static_cast<float>(value(c, b));
  return table;
}

// ImageFilter.SMOOTH: of thirteen parts, five are the pixel and one is each neighbor. Rounded to nearest;
// ties cannot occur.
std::uint8_t smooth(const std::uint8_t* above, const std::uint8_t* at, const std::uint8_t* below) {
  const int sum =
      above[-3] + above[0] + above[3] + at[-3] + 5 * at[0] + at[3] + below[-3] + below[0] + below[3];
  return static_cast<std::uint8_t>((sum + 6) / 13);
}

}  // namespace

void sharpen_row(const PictureView& in, float factor, std::int32_t y, std::uint8_t* out) {
  const std::size_t bytes = static_cast<std::size_t>(in.size.width) * 3;
  std::memcpy(out, in.row(y), bytes);
  if (y == 0 || y + 1 == in.size.height) return;
  const std::uint8_t *above = in.row(y - 1), *at = in.row(y), *below = in.row(y + 1);
  for (std::size_t i = 3; i + 3 < bytes; ++i) {
    const std::uint8_t blurred = smooth(above + i, at + i, below + i);
    const float mixed = static_cast<float>(blurred) + factor * static_cast<float>(at[i] - blurred);
    out[i] = static_cast<std::uint8_t>(std::clamp(mixed, 0.0F, 255.0F));
  }
}

WarpRows::WarpRows(const PixelOp& op, const PictureView& in)
    : in_(in), warp_(op.warp), matrix_(matrix_of(op, in.size)) {
  const auto& a = matrix_;
  const auto fits = [&](double x, double y) {
    return std::abs(x * a[0] + y * a[1] + a[2]) < 32768.0 && std::abs(x * a[3] + y * a[4] + a[5]) < 32768.0;
  };
  const double width = in.size.width, height = in.size.height;
  fixed_ = fits(0, 0) && fits(width, height) && fits(0, height) && fits(width, 0);
  x_start_ = a[2] + a[0] * 0.5 + a[1] * 0.5;
  y_start_ = a[5] + a[3] * 0.5 + a[4] * 0.5;
  if (!fixed_) return;
  const auto to_fixed = [](double value) {
    return static_cast<std::int64_t>(std::floor(value * 65536.0 + 0.5));
  };
  fixed_matrix_ = {to_fixed(a[0]), to_fixed(a[1]), to_fixed(x_start_),
                   to_fixed(a[3]), to_fixed(a[4]), to_fixed(y_start_)};
}

void WarpRows::next(std::uint8_t* out) {
  if (warp_.bilinear) {
    bilinear(out);
  } else {
    nearest(out);
  }
  ++y_;
}

void WarpRows::nearest(std::uint8_t* out) {
  const auto [width, height] = in_.size;
  const auto put = [&, width = width, height = height](std::int64_t x, std::int64_t y) {
    const bool inside = x >= 0 && x < width && y >= 0 && y < height;
    std::memcpy(out, inside ? in_.row(static_cast<std::int32_t>(y)) + 3 * x : warp_.fill.data(), 3);
    out += 3;
  };
  if (fixed_) {
    const auto& a = fixed_matrix_;
    std::int64_t x = a[2] + a[1] * y_, y = a[5] + a[4] * y_;
    for (std::int32_t i = 0; i < width; ++i, x += a[0], y += a[3]) put(x >> 16, y >> 16);
    return;
  }
  const auto whole = [](double v) { return v < 0 ? std::int64_t{-1} : static_cast<std::int64_t>(v); };
  double x = x_start_, y = y_start_;
  for (std::int32_t i = 0; i < width; ++i, x += matrix_[0], y += matrix_[3]) put(whole(x), whole(y));
  x_start_ += matrix_[1];
  y_start_ += matrix_[4];
}

void WarpRows::bilinear(std::uint8_t* out) const {
  const auto [width, height] = in_.size;
  const auto& a = matrix_;
  for (std::int32_t i = 0; i < width; ++i, out += 3) {
    const double to_x = i + 0.5, to_y = y_ + 0.5;
    double x = a[0] * to_x + a[1] * to_y + a[2], y = a[3] * to_x + a[4] * to_y + a[5];
    if (!(x >= 0 && x < width && y >= 0 && y < height)) {
      std::memcpy(out, warp_.fill.data(), 3);
      continue;
    }
    x -= 0.5;
    y -= 0.5;
    const auto left = static_cast<std::int32_t>(std::floor(x)),
               top = static_cast<std::int32_t>(std::floor(y));
    const double dx = x - left, dy = y - top;
    const auto first = static_cast<std::size_t>(std::max(left, 0)) * 3;
    const auto second = static_cast<std::size_t>(std::min(left + 1, width - 1)) * 3;
    const std::uint8_t* above = in_.row(std::max(top, 0));
    const std::uint8_t* below = top + 1 < height ? in_.row(top + 1) : above;
    for (std::size_t c = 0; c < 3; ++c) {
      const auto across = [&](const std::uint8_t* row) {
        return row[first + c] + (row[second + c] - row[first + c]) * dx;
      };
      const double upper = across(above);
      const double lower = top + 1 < height ? across(below) : upper;
      out[c] = static_cast<std::uint8_t>(upper + (lower - upper) * dy);
    }
  }
}

ByteTable autocontrast_table(const PictureView& in) {
  const Histogram counts = histogram_of(in);
  return table_of([&](std::size_t c, std::size_t byte) -> double {
    const auto there = [](std::uint64_t count) { return count != 0; };
    const auto& h = counts[c];
    const auto low = std::find_if(h.begin(), h.end(), there) - h.begin();
    const auto high = 255 - (std::find_if(h.rbegin(), h.rend(), there) - h.rbegin());
    if (high <= low) return static_cast<double>(byte);
    const double scale = 255.0 / static_cast<double>(high - low), offset = -static_cast<double>(low) * scale;
    return std::clamp(std::trunc(static_cast<double>(byte) * scale + offset), 0.0, 255.0);
  });
}

ByteTable equalize_table(const PictureView& in) {
  const Histogram counts = histogram_of(in);
  ByteTable table = table_of([](std::size_t, std::size_t byte) { return byte; });
  for (std::size_t c = 0; c < 3; ++c) {
    const auto& h = counts[c];
    const auto last = std::find_if(h.rbegin(), h.rend(), [](std::uint64_t count) { return count != 0; });
    const auto pixels =
        static_cast<std::uint64_t>(in.size.width) * static_cast<std::uint64_t>(in.size.height);
    const std::uint64_t step = (pixels - *last) / 255;
    if (step == 0) continue;
    std::uint64_t sum = step / 2;
    for (std::size_t b = 0; b < 256; ++b) {
      table[c][b] = static_cast<float>(std::min<std::uint64_t>(sum / step, 255));
      sum += h[b];
    }
  }
  return table;
}

ByteTable posterize_table(int bits) {
  const auto mask = static_cast<std::size_t>(0x100 - (1 << (8 - bits)));
  return table_of([&](std::size_t, std::size_t byte) { return byte & mask; });
}

ByteTable solarize_table(double threshold) {
  return table_of([&](std::size_t, std::size_t byte) {
    return static_cast<double>(byte) < threshold ? byte : 255 - byte;
  });
}

}  // namespace headrace::server::transform

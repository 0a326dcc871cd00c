#include "server/transform/pixel_sink.h"

#include <algorithm>

#include "server/decode/grow.h"

namespace headrace::server::transform {
namespace {

bool needs_the_picture(const PixelOp& op) {
  return op.kind == PixelOp::Kind::kContrast;
}

// torchvision's adjust_hue: truncated toward zero, then modulo 256.
std::uint8_t shift_of(float turns) {
  return static_cast<std::uint8_t>(static_cast<std::int32_t>(static_cast<double>(turns) * 255.0));
}

PointOp point_op(const PixelOp& op) {
  switch (op.kind) {
    case PixelOp::Kind::kSaturation:
      return {.kind = PointOp::Kind::kBlendGray, .factor = op.factor};
    case PixelOp::Kind::kGrayscale:
      return {.kind = PointOp::Kind::kBlendGray, .factor = 0};
    case PixelOp::Kind::kHue:
      return {.kind = PointOp::Kind::kHue, .shift = shift_of(op.factor)};
    case PixelOp::Kind::kBrightness:
    case PixelOp::Kind::kContrast:
      break;
  }
  return {.kind = PointOp::Kind::kBlendConstant, .factor = op.factor};
}

}  // namespace

PixelSink::PixelSink(std::span<const PixelOp> ops, decode::ImageSize size, RowSink& next,
                     Scratch::State& scratch)
    : ops_(ops), size_(size), next_(next), stride_(padded_stride(size.width)) {
  const bool whole = std::any_of(ops.begin(), ops.end(), needs_the_picture);
  rows_ = decode::grow(scratch.painted, stride_ * (whole ? static_cast<std::size_t>(size.height) : 1));
  gather();
}

void PixelSink::gather() {
  for (; !last_pass() && !needs_the_picture(ops_[done_]); ++done_) pass_.push_back(point_op(ops_[done_]));
}

void PixelSink::write(std::int32_t y, const std::uint8_t* rgb) {
  std::uint8_t* const to = last_pass() ? rows_ : row(y);
  sum_ += apply_ops(pass_, rgb, static_cast<std::size_t>(size_.width), to, !last_pass());
  if (last_pass()) next_.write(y, to);
}

void PixelSink::finish() {
  const double pixels = static_cast<double>(size_.width) * static_cast<double>(size_.height);
  while (!last_pass()) {
    pass_.assign(1, point_op(ops_[done_++]));
    pass_[0].constant = static_cast<std::uint8_t>(static_cast<double>(sum_) / pixels + 0.5);
    gather();
    sum_ = 0;
    for (std::int32_t y = 0; y < size_.height; ++y) {
      sum_ += apply_ops(pass_, row(y), static_cast<std::size_t>(size_.width), row(y), !last_pass());
      if (last_pass()) next_.write(y, row(y));
    }
  }
}

}  // namespace headrace::server::transform

#include "server/transform/stages/pixel_sink.h"

#include <algorithm>
#include <optional>

#include "server/decode/grow.h"
#include "server/transform/kernels/blur.h"

namespace headrace::server::transform {
namespace {

using Kind = PixelOp::Kind;

bool needs_the_picture(const PixelOp& op) {
  return moves_pixels(op) || op.kind == Kind::kContrast || op.kind == Kind::kAutoContrast ||
         op.kind == Kind::kEqualize;
}

}  // namespace

PixelSink::PixelSink(std::span<const PixelOp> ops, decode::ImageSize size, RowSink& next,
                     Scratch::State& scratch)
    : ops_(ops), size_(size), next_(next), scratch_(scratch), stride_(padded_stride(size.width)) {
  const bool whole = std::any_of(ops.begin(), ops.end(), needs_the_picture);
  decode::grow(scratch.painted[0], stride_ * (whole ? static_cast<std::size_t>(size.height) : 1));
  tables_.reserve(ops.size());
  gather();
}

void PixelSink::add_table(const ByteTable& table) {
  tables_.push_back(table);
  pass_.push_back({.kind = PointOp::Kind::kTable, .table = &tables_.back()});
}

void PixelSink::add(const PixelOp& op) {
  const auto factor = static_cast<float>(op.factor);
  switch (op.kind) {
    case Kind::kBrightness:
      return pass_.push_back({.kind = PointOp::Kind::kBlendConstant, .factor = factor});
    case Kind::kSaturation:
      return pass_.push_back({.kind = PointOp::Kind::kBlendGray, .factor = factor});
    case Kind::kGrayscale:
      return pass_.push_back({.kind = PointOp::Kind::kBlendGray, .factor = 0});
    case Kind::kHue:
      return pass_.push_back({.kind = PointOp::Kind::kHue, .shift = hue_shift(op.factor)});
    case Kind::kPosterize:
      return add_table(posterize_table(static_cast<int>(op.factor)));
    case Kind::kSolarize:
      return add_table(solarize_table(op.factor));
    default:
      return;
  }
}

void PixelSink::gather() {
  for (; !last_pass() && !needs_the_picture(ops_[done_]); ++done_) add(ops_[done_]);
}

std::uint64_t PixelSink::apply(const std::uint8_t* from, std::uint8_t* to) const {
  const bool mean_is_wanted = !last_pass() && ops_[done_].kind == Kind::kContrast;
  const std::size_t row_bytes = static_cast<std::size_t>(size_.width) * 3;
  decode::mark_defined(from + row_bytes, stride_ - row_bytes);
  return apply_ops(pass_, from, static_cast<std::size_t>(size_.width), to, mean_is_wanted);
}

void PixelSink::write(std::int32_t y, const std::uint8_t* rgb) {
  std::uint8_t* const to =
      scratch_.painted[0].data() + (last_pass() ? 0 : static_cast<std::size_t>(y) * stride_);
  sum_ += apply(rgb, to);
  if (last_pass()) next_.write(y, to);
}

void PixelSink::finish() {
  while (!last_pass()) {
    const PixelOp& op = ops_[done_++];
    run_pass(op);
  }
}

void PixelSink::run_pass(const PixelOp& op) {
  std::uint8_t* const from = scratch_.painted[picture_].data();
  const PictureView in{from, stride_, size_};
  pass_.clear();
  if (op.kind == Kind::kContrast) {
    // Rounded, ties up: equals PIL's int(mean + 0.5) for fewer than 2^44 pixels.
    const std::uint64_t pixels =
        static_cast<std::uint64_t>(size_.width) * static_cast<std::uint64_t>(size_.height);
    pass_.push_back({.kind = PointOp::Kind::kBlendConstant,
                     .factor = static_cast<float>(op.factor),
                     .constant = static_cast<std::uint8_t>((2 * sum_ + pixels) / (2 * pixels))});
  } else if (op.kind == Kind::kAutoContrast) {
    add_table(autocontrast_table(in));
  } else if (op.kind == Kind::kEqualize) {
    add_table(equalize_table(in));
  }
  gather();
  sum_ = 0;
  std::optional<WarpRows> warp;
  if (op.geometric()) warp.emplace(op, in);
  std::optional<BlurRows> blur;
  if (op.kind == Kind::kBlur) blur.emplace(op, in);
  // In place, unless pixels come from other positions in the picture.
  const bool moves = moves_pixels(op);
  const std::size_t target = moves ? 1 - picture_ : picture_;
  auto* const to = moves ? decode::grow(scratch_.painted[target],
                                        stride_ * (last_pass() ? 1 : static_cast<std::size_t>(size_.height)))
                         : from;
  for (std::int32_t y = 0; y < size_.height; ++y) {
    std::uint8_t* const row = to + (moves && last_pass() ? 0 : static_cast<std::size_t>(y) * stride_);
    if (warp) warp->next(row);
    if (blur) blur->next(row);
    if (op.kind == Kind::kSharpness) sharpen_row(in, static_cast<float>(op.factor), y, row);
    if (!pass_.empty() || !last_pass()) sum_ += apply(row, row);
    if (last_pass()) next_.write(y, row);
  }
  picture_ = target;
}

}  // namespace headrace::server::transform

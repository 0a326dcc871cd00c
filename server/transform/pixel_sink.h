// A stage's pixel operations, between the rows that it makes and what takes them.
#pragma once

#include <span>
#include <vector>

#include "server/transform/pixel_ops.h"
#include "server/transform/render.h"

namespace headrace::server::transform {

/// Operations on single pixels are made row by row, while the row is in the cache. Contrast needs the mean
/// of all: up to there the picture is kept, and the sum taken on the way.
class PixelSink final : public RowSink {
 public:
  PixelSink(std::span<const PixelOp> ops, decode::ImageSize size, RowSink& next, Scratch::State& scratch);

  void write(std::int32_t y, const std::uint8_t* rgb) override;
  /// After the last row; `next` has all of them then.
  void finish();

 private:
  /// Adds to the pass what can be made before the next operation that needs the whole picture.
  void gather();
  [[nodiscard]] bool last_pass() const { return done_ == ops_.size(); }
  std::uint8_t* row(std::int32_t y) { return rows_ + static_cast<std::size_t>(y) * stride_; }

  std::span<const PixelOp> ops_;
  decode::ImageSize size_;
  RowSink& next_;
  std::size_t stride_;
  std::uint8_t* rows_;  // one, or those of the picture
  std::size_t done_ = 0;
  std::vector<PointOp> pass_;
  std::uint64_t sum_ = 0;  // of the grays that the pass makes
};

}  // namespace headrace::server::transform

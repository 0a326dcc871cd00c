// Applies a stage's pixel operations to the rows that it makes, and passes them on.
#pragma once

#include <span>
#include <vector>

#include "server/transform/kernels/picture_ops.h"
#include "server/transform/stages/render.h"

namespace headrace::server::transform {

/// Operations on single pixels are applied row by row, while the row is in the cache. Those that need more
/// than a row (a mean, a histogram, neighbors) divide the others into passes: the picture before each is
/// kept.
class PixelSink final : public RowSink {
 public:
  PixelSink(std::span<const PixelOp> ops, decode::ImageSize size, RowSink& next, Scratch::State& scratch);

  void write(std::int32_t y, const std::uint8_t* rgb) override;
  /// Call it after the last row; `next` then has all rows.
  void finish();

 private:
  /// Adds to the pass what can be applied before the next operation that needs the whole picture.
  void gather();
  void add(const PixelOp& op);
  void add_table(const ByteTable& table);
  [[nodiscard]] bool last_pass() const { return done_ == ops_.size(); }
  /// Makes the rows of `op` and of its pass from those of `picture_`.
  void run_pass(const PixelOp& op);
  std::uint64_t apply(const std::uint8_t* from, std::uint8_t* to) const;

  std::span<const PixelOp> ops_;
  decode::ImageSize size_;
  RowSink& next_;
  Scratch::State& scratch_;
  std::size_t stride_;
  std::size_t picture_ = 0;  // index of the current picture in scratch_.painted
  std::size_t done_ = 0;
  std::vector<PointOp> pass_;
  std::vector<ByteTable> tables_;  // never grows beyond its reserved size: pass_ points into it
  std::uint64_t sum_ = 0;          // of the grays that the pass makes, if an operation needs it
};

}  // namespace headrace::server::transform

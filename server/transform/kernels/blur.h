// Gaussian blur, row by row.
#pragma once

#include <cstdint>
#include <vector>

#include "server/transform/kernels/picture_ops.h"

namespace headrace::server::transform {

/// Two passes over floats, with reflected edges and one rounding (ties to even): torchvision's result except
/// for the last bits of its sums, so bytes may differ by one. The bytes are the same on every machine.
class BlurRows {
 public:
  /// `op` is kBlur; its kernel is at most twice as wide as the picture, which must outlive this object.
  BlurRows(const PixelOp& op, const PictureView& in);
  /// Makes the next row, from the topmost on.
  void next(std::uint8_t* out);

 private:
  /// Row y of the picture after the horizontal pass, with y reflected; it is kept until it leaves the kernel.
  const float* across(std::int32_t y);

  PictureView in_;
  std::vector<float> columns_, rows_;  // weights
  std::size_t stride_;                 // floats
  std::vector<float> wide_;            // a row with its reflections at both ends
  std::vector<float> lines_;           // ring of rows after the horizontal pass
  std::vector<std::int32_t> held_;     // the row number of each of them
  std::vector<float> sum_;
  std::int32_t y_ = 0;
};

}  // namespace headrace::server::transform

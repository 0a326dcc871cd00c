// Gaussian blur, row by row.
#pragma once

#include <cstdint>
#include <vector>

#include "server/transform/picture_ops.h"

namespace headrace::server::transform {

/// Two passes over floats, edges reflected, rounded once (ties to even): torchvision's result but for the
/// last bits of its sums, so bytes may differ by one. The same bytes on every machine.
class BlurRows {
 public:
  /// `op` is kBlur, its kernel not wider than twice the picture; the picture must stay.
  BlurRows(const PixelOp& op, const PictureView& in);
  /// The next row, from the topmost on.
  void next(std::uint8_t* out);

 private:
  /// Row y of the picture after the horizontal pass, y reflected; it is kept until it leaves the kernel.
  const float* across(std::int32_t y);

  PictureView in_;
  std::vector<float> columns_, rows_;  // weights
  std::size_t stride_;                 // floats
  std::vector<float> wide_;            // a row with what is reflected at both ends
  std::vector<float> lines_;           // ring of rows after the horizontal pass
  std::vector<std::int32_t> held_;     // which row each of them is
  std::vector<float> sum_;
  std::int32_t y_ = 0;
};

}  // namespace headrace::server::transform
